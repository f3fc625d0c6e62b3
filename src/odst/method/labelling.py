"""B) Label: the teacher's logits for every image. Logits are stored, never probabilities."""

import hashlib
import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from safetensors.torch import save
from torch import nn

from odst.data.images import Images, is_image
from odst.errors import UserError, refused
from odst.files import whole, write_json
from odst.method.calibration import probabilities, top_log_odds
from odst.progress import stage

BATCH = 512  # images of up to 64×64 in one forward pass: part of the result's bits, so not an option
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


def batch_for(x: Images) -> int:
    """Rows for one forward pass; of large images fewer, so that memory is that of BATCH images of 64×64."""
    return max(1, min(BATCH, BATCH * 64 * 64 // (x.shape[1] * x.shape[2]))) if is_image(x) else BATCH


def as_tensor(rows: np.ndarray, device: torch.device | str) -> torch.Tensor:
    """A mapped pool is read-only: torch wants a copy."""
    return torch.from_numpy(np.require(rows, requirements=["C", "W"])).to(device)


def as_input(x: torch.Tensor, augment: Callable[[torch.Tensor], torch.Tensor] | None = None) -> torch.Tensor:
    """What a network is given of rows: images (n, H, W, 3), augmented as NCHW, in [0, 1] and channels last in memory;
    features as float32. Levels that are floats already are divided where they lie."""
    if x.ndim == 2:
        return x.float()
    x = x.permute(0, 3, 1, 2)
    return (x if augment is None else augment(x)).float().div_(255)


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
    K = model(as_input(as_tensor(x[:1], device))).shape[1]
    file = None if out is None else _Scan(out, model_hash(model), identity, len(x), K)
    done, step = 0 if file is None else file.done, batch_for(x)
    # Where the floats of a batch of images go: fresh memory for every batch costs a small network one image in twelve
    room = torch.empty(min(step, len(x)), *x.shape[1:]) if is_image(x) and device == "cpu" else None
    logits = np.empty((len(x) if file is None else min(BLOCK, len(x)), K), np.float32)
    with stage(name, len(x), "images", done) if name else nullcontext(lambda n: None) as advance:
        for block in range(done, len(x), BLOCK):
            n = min(BLOCK, len(x) - block)
            part = logits[block : block + n] if file is None else logits[:n]
            for start in range(0, n, step):
                batch = x[block + start : block + min(start + step, n)]
                if room is None:
                    rows = as_tensor(batch, device)
                else:
                    (rows := room[: len(batch)]).numpy()[:] = batch
                z = model(as_input(rows)).float().cpu().numpy()
                if z.shape != (len(batch), K):
                    raise UserError(
                        f"model: it made {z.shape} of {len(batch)} images. It must return ({len(batch)}, {K})."
                    )
                # Into place: a small array that outlives its batch would split the room that the next batch's layers need
                part[start : start + len(batch)] = z
                advance(len(batch))
            if file is not None:
                file.add(part)
    return logits if out is None else np.load(out, mmap_mode="r")


def logits_file(scratch: Path, t: int) -> Path:
    """Where a scan of teacher t over the pool goes."""
    return scratch / f"pool-logits-{t}.npy"


def read_logits(file: Path) -> np.ndarray | None:
    """The logits of a scan that is finished, mapped from disk and checked; None where there are none, or not all."""
    if not file.with_suffix(".json").exists():
        return None
    with refused(
        str(file), "the logits that were written", f"Delete it and {file.with_suffix('.json').name} to do without."
    ):
        note = json.loads(file.with_suffix(".json").read_text())
        if note["done"] != note["rows"]:
            return None
        logits = np.load(file, mmap_mode="r", allow_pickle=False)
        with file.open("rb") as opened:
            opened.seek(logits.offset)
            if logits.shape != (note["rows"], note["classes"]) or _hashed(opened, *logits.shape) != note["hash"]:
                raise ValueError("they have changed")
        return logits


class _Scan:
    """Logits in a .npy file that grows block by block, and a note beside it of what they are and how far they have come.

    Written, not mapped: a full disk is then an error to report and not a signal that kills.
    """

    def __init__(self, out: Path, model: str, pool: str, rows: int, K: int):
        self.out, self.file = out, out.with_suffix(".json")
        self.note: dict[str, str | int] = {"model": model, "pool": pool, "rows": rows, "classes": K}
        head = io.BytesIO()
        np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": (rows, K)})
        self.head, self.K = head.getvalue(), K
        if self.file.exists():
            self.done = self._resume()
            return
        with whole(out) as temporary:
            temporary.write_bytes(self.head)
        self._write_note(0, "")

    def _resume(self) -> int:
        try:
            was = json.loads(self.file.read_text())
            done = int(was["done"])
            with self.out.open("rb") as file:
                sound = file.read(len(self.head)) == self.head
                self.hash = _hashed(file, done, self.K)
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"{self.out}: the logits or the note beside them are damaged ({error}). Delete both to label the pool again."
            ) from None
        if was != {**self.note, "done": done, "hash": self.hash} or not sound:
            raise UserError(
                f"{self.out}: these logits belong to another model or pool, or are damaged. "
                f"Delete them and {self.file.name} to label the pool again."
            )
        return done

    def add(self, logits: np.ndarray) -> None:
        with self.out.open("r+b") as file:
            file.seek(len(self.head) + 4 * self.done * self.K)
            file.write(logits.tobytes())
            file.flush()
            os.fsync(file.fileno())
        self._write_note(self.done + len(logits), _chained(self.hash, logits.tobytes()))

    def _write_note(self, done: int, hash_: str) -> None:
        self.done, self.hash = done, hash_
        write_json(self.file, self.note | {"done": done, "hash": hash_})


def _chained(before: str, block: bytes) -> str:
    """The hash of all blocks up to this one."""
    return hashlib.blake2b(before.encode() + block, digest_size=16).hexdigest()


def _hashed(file: BinaryIO, rows: int, K: int) -> str:
    """The same of the first `rows`, from where the file is read."""
    hash_ = ""
    for start in range(0, rows, BLOCK):
        hash_ = _chained(hash_, file.read(4 * K * (min(start + BLOCK, rows) - start)))
    return hash_
