"""B) Label: the teacher's logits for every image. Logits are stored, never probabilities."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import nn

from odst.data.images import Images, is_image
from odst.errors import UserError
from odst.files import write_json
from odst.method.calibration import probabilities, top_log_odds
from odst.progress import stage

BATCH = 512  # images in one forward pass: part of the result's bits, so not an option
BLOCK = 64 * BATCH  # images between two notes of how far a scan has come


@dataclass(frozen=True)
class Predictions:
    """p: the calibrated teacher on a whole set, as a view over its logits, in memory or on disk."""

    logits: np.ndarray  # (m, K) float32
    temperature: float

    def top(
        self, tau: np.ndarray | None = None, block: int = 1 << 17
    ) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """(ids, predicted classes, their log-odds), block by block; with `tau`, rows that cannot lie above it are left out."""
        for start in range(0, len(self.logits), block):
            z = np.asarray(self.logits[start : start + block])
            ids = np.arange(len(z)) if tau is None else self._hopeful(z, tau)
            c, odds = top_log_odds(z[ids], self.temperature)
            yield start + ids, c, odds

    def _hopeful(self, z: np.ndarray, tau: np.ndarray) -> np.ndarray:
        """The lead of the top logit over the second bounds the log-odds, and costs no exponential."""
        rows, c = np.arange(len(z)), z.argmax(axis=1)
        others = z.copy()
        others[rows, c] = -np.inf
        lead = (z[rows, c] - others.max(axis=1)) / np.float32(self.temperature)
        return np.flatnonzero(lead >= tau[c] - 1e-4 * (1 + np.abs(lead)))  # float32 may round either way

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        return probabilities(self.logits[rows], self.temperature)  # (len(rows), K)


def weights(model: nn.Module) -> bytes:
    """The model's parameters and buffers as a safetensors file; its SHA-256 is the model's hash."""
    return save({name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()})


def model_hash(model: nn.Module) -> str:
    return hashlib.sha256(weights(model)).hexdigest()


def as_input(rows: np.ndarray, device: torch.device | str) -> torch.Tensor:
    """Images as float NCHW in [0, 1] (channels last in memory), features as they are."""
    x = torch.from_numpy(np.ascontiguousarray(rows)).to(device)
    return x.permute(0, 3, 1, 2).float().div_(255) if x.ndim == 4 else x.float()


@torch.inference_mode()
def infer(
    model: nn.Module,
    x: Images,
    *,
    out: Path | None = None,
    device: str = "cpu",
    name: str | None = None,
    identity: str = "",
) -> np.ndarray:
    """Logits of every row of x, float32 (m, K): in memory, or in the file `out`.

    A scan into a file notes each finished block beside it, so that an interrupted one goes on there. `identity` names the
    pool in that note: a file that belongs to another model or pool is refused. `name` is the stage shown to the user.
    """
    model = model.to(device).eval()
    if is_image(x):
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    K = model(as_input(x[:1], device)).shape[1]
    if out is None:
        logits, done = np.empty((len(x), K), np.float32), 0
    else:
        note = {"model": model_hash(model), "pool": identity, "rows": len(x), "classes": K}
        logits, done = _open(out, note)
    with stage(name, len(x), "images", done) if name else nullcontext(lambda n: None) as advance:
        for block in range(done, len(x), BLOCK):
            end = min(block + BLOCK, len(x))
            for start in range(block, end, BATCH):
                stop = min(start + BATCH, end)
                logits[start:stop] = model(as_input(x[start:stop], device)).float().cpu().numpy()
                advance(stop - start)
            if isinstance(logits, np.memmap):
                logits.flush()
                write_json(_note(out), note | {"done": end})
    if out is None:
        return logits
    return np.load(out, mmap_mode="r")


def _note(out: Path | None) -> Path:
    assert out is not None
    return out.with_suffix(".json")


def _open(out: Path, note: dict) -> tuple[np.ndarray, int]:
    """The file to go on writing and the number of rows that are already in it."""
    shape = (note["rows"], note["classes"])
    if not _note(out).exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        logits = np.lib.format.open_memmap(out, mode="w+", dtype=np.float32, shape=shape)
        logits.flush()
        write_json(_note(out), note | {"done": 0})
        return logits, 0
    try:
        was = json.loads(_note(out).read_text())
        logits = np.lib.format.open_memmap(out, mode="r+")
        done = int(was["done"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{out}: the logits or the note beside them are damaged ({error}). Delete both to label the pool again."
        ) from None
    if {**note, "done": done} != was or logits.shape != shape or logits.dtype != np.float32:
        raise UserError(
            f"{out}: these logits belong to another model or pool. Delete the file to label the pool again."
        )
    return logits, done
