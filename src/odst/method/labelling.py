"""B) Label: the teacher's logits for every image. Logits are stored, never probabilities."""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import torch
from safetensors.torch import save
from torch import nn

from odst.data.images import Images, is_image
from odst.errors import UserError
from odst.method.calibration import probabilities, top_log_odds
from odst.progress import stage

BATCH = 512  # images of up to 64×64 in one forward pass: part of the result's bits, so not an option


@dataclass(frozen=True)
class Predictions:
    """p: the calibrated teacher on a whole set, as a view over its logits, in memory or on disk."""

    logits: Images  # (m, K) float32, in memory or on disk
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
def infer(model: nn.Module, x: Images, *, device: str = "cpu", name: str | None = None) -> np.ndarray:
    """Logits of every row of x, float32 (m, K), in memory. `name` is the stage shown to the user."""
    model = ready(model, x, device)
    logits = np.empty((len(x), classes_of(model, x, device)), np.float32)
    forward = Forward(model, x, logits.shape[1], device)
    with stage(name, len(x), "images") if name else nullcontext(lambda n: None) as advance:
        for start in range(0, len(x), forward.step):
            # Into place: a small array that outlives its batch would split the room that the next batch's layers need
            stop = min(start + forward.step, len(x))
            logits[start:stop] = forward(start, stop)
            advance(stop - start)
    return logits


def ready(model: nn.Module, x: Images, device: str) -> nn.Module:
    model = model.to(device).eval()
    return model.to(memory_format=torch.channels_last) if is_image(x) else model  # type: ignore[call-overload]


@torch.inference_mode()
def classes_of(model: nn.Module, x: Images, device: str) -> int:
    return int(model(as_input(as_tensor(x[:1], device))).shape[1])


class Forward:
    """Rows of x -> their logits, a batch at a time. With `padded` every batch is a full one: the bits of a row then do not
    depend on where the set ends."""

    def __init__(self, model: nn.Module, x: Images, K: int, device: str, *, padded: bool = False):
        self.model, self.x, self.K, self.device, self.padded = model, x, K, device, padded
        self.step = batch_for(x)
        # Where the floats of a batch of images go: fresh memory for every batch costs a small network one image in twelve
        own = padded or (is_image(x) and device == "cpu")
        kind = torch.float32 if is_image(x) else torch.from_numpy(np.empty(0, x.dtype)).dtype
        rows = self.step if padded else min(self.step, len(x))
        self.room = torch.zeros(rows, *x.shape[1:], dtype=kind) if own else None

    @torch.inference_mode()
    def __call__(self, start: int, stop: int) -> np.ndarray:
        batch, n = self.x[start:stop], stop - start
        if self.room is None:
            rows = as_tensor(batch, self.device)
        else:
            self.room[:n].numpy()[:] = batch
            rows = (self.room if self.padded else self.room[:n]).to(self.device)
        z = self.model(as_input(rows)).float().cpu().numpy()
        if z.shape != (len(rows), self.K):
            raise UserError(f"model: it made {z.shape} of {len(rows)} images. It must return ({len(rows)}, {self.K}).")
        return z[:n]
