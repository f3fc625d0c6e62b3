"""The small network through odst's training against a plain PyTorch loop with ResNet-18: CIFAR-10 error against seconds.

    ODST_TEST_DATA=FOLDER python -m benchmarks.small_net [--quick]

The folder holds cifar10_train.parquet and cifar10_test.parquet. Both get the same images, the same augmentation (crop and
flip), two threads, and for every budget a schedule of their own that ends with it. Reading the data and the final test are
outside the budget; odst's looks at val_in are inside. Three seeds take 55 minutes; --quick is one seed at 30 and 60 s.
"""

import argparse
import math
import os
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.measuring import conclude, table
from odst import Labelled, Phase, Schedule
from odst.data.reading import read_set
from odst.method.labelling import infer
from odst.method.targets import Examples
from odst.training.steps import train
from odst.vision.augmentation import augmenter
from odst.vision.networks import make_network, mean_level

K, VAL_IN = 10, 500
TRIAL = 100  # steps, to learn the machine's pace from
MARGIN = 0.85  # of the budget, since the pace changes
AUGMENT = ("crop:4", "flip")
SMALL_BATCH, SMALL_LR = 64, 0.1
RESNET_BATCH, RESNET_LR = 32, 0.03  # the best of 16, 32, 64 and 0.01, 0.03, 0.1 after 30 s, on val_in


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, 30 and 60 s")
    quick = parser.parse_args().quick
    budgets, seeds = ((30, 60), (0,)) if quick else ((30, 60, 120, 240), (0, 1, 2))
    folder = os.environ.get("ODST_TEST_DATA")
    if not folder:
        raise SystemExit(
            "small_net: set ODST_TEST_DATA to the folder with cifar10_train.parquet and cifar10_test.parquet"
        )
    torch.set_num_threads(2)
    T, test = (labelled(Path(folder) / f"cifar10_{part}.parquet") for part in ("train", "test"))
    small, rows, ratios = Small(T), [], []
    for budget in budgets:
        measured = {
            "odst small": [small.measure(test, budget, seed) for seed in seeds],
            "PyTorch ResNet-18": [resnet18(T, test, budget, seed) for seed in seeds],
        }
        mean = {name: np.mean([error for error, _ in runs]) for name, runs in measured.items()}
        for name, runs in measured.items():
            errors = [f"{100 * error:.1f}" for error, _ in runs]
            seconds = max(seconds for _, seconds in runs)
            rows.append([budget, name, f"{100 * mean[name]:.1f} %", ", ".join(errors), f"{seconds:.1f}"])
            print(rows[-1], flush=True)
        ratios.append(mean["odst small"] / mean["PyTorch ResNet-18"])
    print(table(["budget, s", "", "mean error", "seeds", "longest, s"], rows))
    conclude("small_net", max(ratios), "error-of-plain-resnet18-worst-budget")


def labelled(file: Path) -> Labelled:
    found = read_set(file, 32, labelled=True)
    assert found.labels is not None
    classes = sorted(set(found.labels))
    return Labelled(found.x, np.array([classes.index(label) for label in found.labels]))


def network(name: str, T: Labelled) -> nn.Module:
    return make_network(name, K, T.x[:5000])


class Small:
    """odst's own training of the small network, val_in set aside. Its schedule is in steps, so the pace is learnt first."""

    def __init__(self, T: Labelled):
        order = np.random.default_rng(0).permutation(len(T))
        self.val_in, rest = (Labelled(T.x[rows], T.y[rows]) for rows in (order[:VAL_IN], order[VAL_IN:]))
        self.T, self.examples = T, Examples(rest, None, None, None, 1.0, K)
        self.fit(TRIAL, 0)  # warms up
        self.fit(TRIAL, 0)

    def fit(self, steps: int, seed: int) -> tuple[nn.Module, float]:
        phases = (Phase(steps=steps, lr=SMALL_LR, shape="linear", augment=AUGMENT),)
        schedule = Schedule(phases=phases, batch=SMALL_BATCH, weight_decay=5e-4)
        torch.manual_seed(seed)
        model = network("small", self.T)
        begin = time.perf_counter()
        model = train(model, self.examples, schedule, self.val_in, rest_weight=0.0, seed=seed, t=0)
        seconds = time.perf_counter() - begin
        self.pace = seconds / steps
        return model, seconds

    def measure(self, test: Labelled, budget: float, seed: int) -> tuple[float, float]:
        """(test error, seconds) of a training within the budget; one that was too long is not counted and made again."""
        while True:
            model, seconds = self.fit(int(MARGIN * budget / self.pace), seed)
            if seconds <= budget:
                return error(model, test), seconds


def resnet18(T: Labelled, test: Labelled, budget: float, seed: int) -> tuple[float, float]:
    """(test error, seconds) of the loop everybody writes."""
    torch.manual_seed(seed)
    model = network("resnet18", T).to(memory_format=torch.channels_last).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=RESNET_LR, momentum=0.9, nesterov=True, weight_decay=5e-4)
    augment, generator = augmenter(AUGMENT, mean_level(T.x)), torch.Generator().manual_seed(seed)
    x, y = torch.from_numpy(T.x[:]).permute(0, 3, 1, 2), torch.from_numpy(T.y)
    begin, step, pace = time.perf_counter(), 0, 0.0
    while (passed := time.perf_counter() - begin) + pace < budget:
        if step % (len(x) // RESNET_BATCH) == 0:
            order = torch.randperm(len(x))
        first = step * RESNET_BATCH % (len(x) // RESNET_BATCH * RESNET_BATCH)
        rows = order[first : first + RESNET_BATCH]
        for group in optimizer.param_groups:
            group["lr"] = RESNET_LR * (1 + math.cos(math.pi * passed / budget)) / 2
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(augment(x[rows], generator).float() / 255), y[rows]).backward()
        optimizer.step()
        step += 1
        pace = (time.perf_counter() - begin) / step
    seconds = time.perf_counter() - begin
    return error(model, test), seconds


def error(model: nn.Module, test: Labelled) -> float:
    return float((infer(model, test.x).argmax(1) != test.y).mean())


if __name__ == "__main__":
    main()
