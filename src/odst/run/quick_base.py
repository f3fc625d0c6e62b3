"""A base in a minute, and what it makes of a random part of the pool: for forecasts, not for use."""

from dataclasses import dataclass, replace

import numpy as np
from torch import nn

from odst.data.images import Data, Images, is_image
from odst.errors import UserError
from odst.method.labelling import infer
from odst.method.targets import Examples
from odst.rounds import seeded
from odst.seeds import key, stream
from odst.training.schedule import Phase, Schedule
from odst.training.steps import train
from odst.vision.networks import make_network

STEPS = 200
REST_WEIGHT = 0.3  # out-distribution aware, and with few labels not yet blind to its own classes (docs/forecast.md)
FEWEST = 100  # pool images that a scan says anything from


@dataclass(frozen=True)
class Scan:
    """A quick base and its logits of a random part of the pool, none of which it learnt from."""

    model: nn.Module
    ids: np.ndarray  # pool ids, ascending
    logits: np.ndarray  # (len(ids), K)


def scan_pool(data: Data, most: int, *, seed: int, device: str, steps: int = STEPS) -> Scan:
    """At most `most` images, and at most half of the pool: the base learns from the other part. An image that it learnt from
    would look less like its class than the images of val_in do, and every share would come out too small."""
    assert data.pool is not None
    inside = np.setdiff1d(np.arange(len(data.pool)), data.pool.excluded)
    n = min(most, len(inside) // 2)
    if n < FEWEST:
        raise UserError(
            f"forecast: a scan of {n} images says nothing. It takes --scan {FEWEST} and a pool of {2 * FEWEST} at least."
        )
    ids = np.sort(stream(seed, "forecast").choice(inside, n, replace=False))
    rest = replace(data.pool, excluded=np.union1d(data.pool.excluded, ids))
    x = data.labelled.x
    name = quick_network(tuple(x.shape[1:]))
    model = seeded(lambda: make_network(name, data.K, x), key(seed, "forecast", "init"))
    augment, lr = (("crop:4",), 0.1) if is_image(x) else ((), 0.01)
    schedule = Schedule(batch=64, phases=(Phase(steps=steps, lr=lr, shape="cosine", augment=augment),))
    examples = Examples(data.labelled, rest, p=None, I=None, damping=1.0, K=data.K)
    model = train(
        model, examples, schedule, data.val_in, rest_weight=REST_WEIGHT, seed=seed, t=0, device=device, name="quick base"
    )  # fmt: skip
    return Scan(model, ids, infer(model, Rows(data.pool.x, ids), device=device, name="scan pool"))


class Rows:
    """Some rows of images, read when they are asked for."""

    def __init__(self, x: Images, ids: np.ndarray):
        self.x, self.ids, self.dtype, self.shape = x, ids, x.dtype, (len(ids), *x.shape[1:])

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        return self.x[self.ids[rows]]


def quick_network(shape: tuple[int, ...]) -> str:
    """The smallest network that takes such rows and is worth training."""
    if len(shape) == 1:
        return "head"
    return "tiny" if shape[0] < 16 else "small" if shape[0] <= 96 else "resnet18"
