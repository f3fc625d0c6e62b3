"""The whole training step against the bare forward, backward and step of the same network on one fixed batch.

    python -m benchmarks.training [--quick]

The whole step reads a packed pool from disk, takes the teacher's targets from logits on disk, augments with crops, flips,
AutoAugment and Cutout, and trains on the joint batch of a student's round: it is `odst.training.steps.train` itself, timed
between two steps. The two take turns; medians of all steps.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from benchmarks.measuring import conclude, table
from benchmarks.reads import write_pool
from odst import Labelled, Phase, Schedule
from odst.data.pool import open_pool
from odst.method.labelling import Predictions
from odst.method.selection import Selection
from odst.method.targets import Examples
from odst.progress import listening
from odst.training.steps import train
from odst.vision.networks import make_network

K, T, POOL, SELECTED = 10, 4_000, 100_000, 5_000
AUGMENT = ("crop:4", "flip", "autoaugment:cifar10", "cutout:16")
NETWORKS = {"resnet18": (64, 4, 0.95), "small": (128, 20, 0.85)}  # batch of each half, steps in a turn, what is wanted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one turn instead of four")
    turns = 1 if parser.parse_args().quick else 4
    torch.set_num_threads(2)
    rows, ratios = [], {}
    with tempfile.TemporaryDirectory() as folder:
        examples = student(Path(folder))
        for name, (batch, steps, wanted) in NETWORKS.items():
            bare: list[float] = []
            full: list[float] = []
            for _ in range(turns):
                bare += bare_steps(name, batch, steps)
                full += full_steps(name, examples, batch, steps)
            one, other = (2 * batch / statistics.median(seconds) for seconds in (bare, full))
            ratios[name] = other / one
            rows.append(
                [name, f"{batch}+{batch}", f"{one:,.0f}", f"{other:,.0f}", f"{other / one:.1%}", f"{wanted:.0%}"]
            )
    print(table(["network", "batch", "bare, images/s", "whole step, images/s", "share", "wanted"], rows))
    for name, ratio in ratios.items():
        conclude("training", ratio, f"bare-step-{name}")


def student(folder: Path) -> Examples:
    """The examples of a student's round: T, a pool on disk, a teacher's logits on disk, a selection."""
    rng = np.random.default_rng(0)
    write_pool(folder / "pool", POOL, shard_rows=65_536)
    np.save(folder / "logits.npy", rng.normal(size=(POOL, K)).astype(np.float32))
    ids = np.sort(rng.choice(POOL, SELECTED, replace=False))
    I = Selection(
        ids=ids,
        classes=rng.integers(K, size=SELECTED),
        log_odds=np.zeros(SELECTED),
        copies=np.ones(SELECTED, np.int64),
        above=np.full(K, SELECTED // K),
        stop=("full",) * K,
        k=SELECTED // K,
    )
    labelled = Labelled(rng.integers(256, size=(T, 32, 32, 3), dtype=np.uint8), rng.integers(K, size=T))
    p = Predictions(np.load(folder / "logits.npy", mmap_mode="r"), 1.2)
    return Examples(labelled, open_pool(folder / "pool"), p, I, 0.5, K)


def network(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return make_network(name, K, shape=(32, 32, 3), mean=0.5, std=0.25).to(memory_format=torch.channels_last)


def bare_steps(name: str, batch: int, steps: int) -> list[float]:
    model = network(name).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4)
    x = torch.rand(2 * batch, 3, 32, 32).to(memory_format=torch.channels_last)
    target = torch.full((2 * batch, K), 1 / K)
    seconds = []
    for _ in range(steps):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()
        seconds.append(time.perf_counter() - begin)
    return seconds[1:]  # the first one warms up


class Clock:
    """A listener that notes when each step of a training ends."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def start(self, name: str, total: int | None, unit: str, done: int) -> Callable[[int], None]:
        return lambda n: self.times.append(time.perf_counter())

    def finish(self, name: str, completed: bool) -> None:
        pass


def full_steps(name: str, examples: Examples, batch: int, steps: int) -> list[float]:
    clock = Clock()
    schedule = Schedule(phases=(Phase(steps=steps, lr=0.01, augment=AUGMENT),), batch=batch)
    val_in = Labelled(examples.T.x[:1], examples.T.y[:1])  # which model to keep is not part of a step
    with listening(clock):
        train(network(name), examples, schedule, val_in, rest_weight=1.0, seed=0, t=1)
    return np.diff(clock.times).tolist()


if __name__ == "__main__":
    main()
