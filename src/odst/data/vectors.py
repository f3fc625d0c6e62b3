"""Pictures -> vectors of a backbone, rounded to float16: what the pool keeps, so that one picture has one vector everywhere."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from odst.errors import UserError

if TYPE_CHECKING:
    from odst.vision.backbones import Backbone  # imports torch, which a process that decodes and embeds does without
    from odst.vision.sessions import Run


class Embedder:
    """A backbone that travels between processes by its spec: each opens it for itself, when first asked.

    One thread, whatever the process has: the bits of a vector do not depend on how many processes share the work.
    """

    def __init__(self, spec: str):
        self.spec = spec
        self._backbone: Backbone | None = None
        self._run: Run | None = None  # of a graph that came from elsewhere
        self.identity = self._open().identity

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_backbone": None, "_run": None}

    def graph(self) -> bytes | None:
        """What `take` needs; None for a backbone that every process opens by its spec."""
        return self._open().graph

    def take(self, graph: bytes) -> None:
        """Go by the graph of the same backbone in another process. To import torch and open it anew takes a second."""
        from odst.vision.sessions import open_graph

        self._run = open_graph(graph, 1)

    def __call__(self, pictures: np.ndarray, uris: Sequence[str]) -> np.ndarray:
        """uint8 (n, size, size, 3) to float16 (n, D). A vector that is not finite is a fault of the backbone: one line."""
        with np.errstate(over="ignore"):
            vectors = self._vectors(pictures).astype(np.float16)
        if not (whole := np.isfinite(vectors).all(1)).all():
            raise UserError(
                f"{uris[int(np.argmin(whole))]}: its vector by {self.identity} is NaN or beyond float16 (65,504). "
                "Take another backbone, or one that scales its vectors."
            )
        return vectors

    def _vectors(self, pictures: np.ndarray) -> np.ndarray:
        if self._run is not None:
            from odst.vision.sessions import in_batches

            return in_batches(self._run, pictures, self.identity.dimension)
        with _one_thread():
            return self._open()(pictures)

    def _open(self) -> "Backbone":
        if self._backbone is None:
            from odst.vision.backbones import open_backbone

            with _one_thread():  # a session of ONNX Runtime keeps the number it was opened with
                self._backbone = open_backbone(self.spec)
        return self._backbone


@contextmanager
def _one_thread() -> Iterator[None]:
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
