"""A small open world of features: three classes as blobs on a circle, and unrelated blobs between and beyond them."""

import numpy as np
from torch import nn

from odst import Data, Labelled, Phase, Pool, Schedule
from odst.seeds import stream
from odst.vision.networks import make_network

SCHEDULES = [Schedule(phases=(Phase(steps=120, lr=0.2, shape="cosine"),), batch=32, weight_decay=1e-3)]


def blob_world(seed: int = 0, pool: int = 600, related: float = 0.25) -> Data:
    rng = stream(seed, "blobs")
    angles = np.arange(3) * 2 * np.pi / 3
    inside = 3 * np.stack([np.cos(angles), np.sin(angles)], axis=1)
    outside = np.array([[9.0, 0], [-9, 6], [-9, -6], [5, 9]])

    def draw(centres: np.ndarray, which: np.ndarray) -> np.ndarray:
        noise = rng.normal(size=(len(which), 6))
        noise[:, :2] += centres[which]
        return noise.astype(np.float32)

    def task(n: int) -> Labelled:
        y = np.arange(n) % 3
        return Labelled(draw(inside, y), y)

    def others(n: int) -> np.ndarray:
        return draw(outside, rng.integers(len(outside), size=n))

    n = round(related * pool)
    own = task(n)
    return Data(
        labelled=task(12),
        pool=Pool(np.concatenate([own.x, others(pool - n)]), truth=np.concatenate([own.y, np.full(pool - n, -1)])),
        val_in=task(150),
        val_out=others(200),
        test=task(300),
        out_tests={"others": others(300)},
        classes=("a", "b", "c"),
    )


def make_mlp():
    """The MLP without its dropout: a world of six features has none to spare, and tests repeat its training step by step."""
    network = make_network("mlp", 3, shape=(6,), std=3.0)
    network.net = nn.Sequential(*(layer for layer in network.net if not isinstance(layer, nn.Dropout)))
    return network
