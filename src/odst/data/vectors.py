"""Pictures -> vectors of a backbone, rounded to float16: what the pool keeps, so that one picture has one vector everywhere."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from odst.errors import UserError

if TYPE_CHECKING:
    from odst.vision.backbones import Backbone  # imports torch, which a process that only decodes does without


class Embedder:
    """A backbone that travels between processes by its spec: each opens it for itself, when first asked.

    One thread, whatever the process has: the bits of a vector do not depend on how many processes share the work.
    """

    def __init__(self, spec: str):
        self.spec = spec
        self._backbone: Backbone | None = None
        self.identity = self._open().identity

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_backbone": None}

    def __call__(self, pictures: np.ndarray, uris: Sequence[str]) -> np.ndarray:
        """uint8 (n, size, size, 3) to float16 (n, D). A vector that is not finite is a fault of the backbone: one line."""
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            with np.errstate(over="ignore"):
                vectors = self._open()(pictures).astype(np.float16)
        finally:
            torch.set_num_threads(threads)
        if not (whole := np.isfinite(vectors).all(1)).all():
            raise UserError(
                f"{uris[int(np.argmin(whole))]}: its vector by {self.identity} is NaN or beyond float16 (65,504). "
                "Take another backbone, or one that scales its vectors."
            )
        return vectors

    def _open(self) -> "Backbone":
        if self._backbone is None:
            import torch

            from odst.vision.backbones import open_backbone

            threads = torch.get_num_threads()
            torch.set_num_threads(1)  # a session of ONNX Runtime keeps the number it was opened with
            try:
                self._backbone = open_backbone(self.spec)
            finally:
                torch.set_num_threads(threads)
        return self._backbone
