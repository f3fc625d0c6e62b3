"""The forecast's related share of each class against the truth: do its 95 % intervals hold it, and how wide are they?

    ODST_TEST_DATA=FOLDER python -m benchmarks.forecast [--quick] [--features FOLDER]

Worlds: digits and photos, which are built in (a quick base on pixels), and on frozen features of a backbone the photographs of
scenes and CIFAR-10 among CIFAR-100 with 33, 10 and 2 % related. Every seed deals labelled images, val_in, val_out and pool
anew; no test image is read. One thread. Without the folder of parquet files the built-in worlds alone; --quick is one seed.
Features are made once, by the product's own embedding code, and kept.
"""

import argparse
import logging
import os
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.measuring import conclude, table
from odst.data.encoding import Encoding
from odst.data.images import Data, Labelled, Pool
from odst.data.vectors import Embedder
from odst.data.worlds import load_world
from odst.evaluation.shares import Shares, related_shares
from odst.files import whole
from odst.method.calibration import fit_temperature
from odst.method.labelling import infer
from odst.run.quick_base import scan_pool
from odst.seeds import stream

BACKBONE = "efficientnet-lite1"
SETS = {
    "cifar10": ("cifar10_train", ("labelled", "val_in", "pool")),
    "cifar100": ("cifar100_train", ("pool",)),
    "cifar100-val": ("cifar100_test", ("val_out",)),
    "photos": ("scene_photos", ("labelled", "val_in", "pool")),
    "photos-val": ("scene_photos", ("val_out",)),
}
CONFUSED = ("bus", "pickup_truck")  # CIFAR-100 classes that show CIFAR-10's automobile and truck
SCENES = ("buildings", "glacier", "mountain", "street")
RELATED = {"33": 1 / 3, "10": 0.1, "2": 0.02}
SCAN = 20_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed")
    parser.add_argument("--features", type=Path, default=Path("runs/forecast/features"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    logging.getLogger("odst").setLevel(logging.ERROR)
    names = ["digits", "photos"]
    if folder := os.environ.get("ODST_TEST_DATA"):
        make_features(Path(folder), arguments.features)
        names = [*RELATED, "scenes", *names]
    rows, every, widths = [], [], []
    for name in names:
        found = []
        for seed in range(1 if arguments.quick else 5):
            begin = time.process_time()
            data = deal(name, seed, arguments.features)
            shares = forecast(data, seed)
            found.append((shares, truth(data), time.process_time() - begin))
            print(name, seed, *map(described, *column(shares), found[-1][1]), flush=True)
        held = np.concatenate([(one.low <= true) & (true <= one.high) for one, true, _ in found])
        width = np.concatenate([one.high / np.maximum(one.low, 1e-12) for one, _, _ in found])
        total = [one.related[0] <= true.sum() <= one.related[2] for one, true, _ in found]
        misfit = np.mean([one.misfit for one, _, _ in found])
        every.append(held)
        widths += [width] if name == "33" else []
        middle = f"{np.median(width):.1f}" if np.median(width) < 1e3 else "open below"
        seconds = np.mean([seconds for *_, seconds in found])
        rows.append(
            [
                name,
                len(held),
                f"{held.mean():.0%}",
                middle,
                f"{sum(total)} of {len(total)}",
                f"{misfit:.1f}",
                f"{seconds:.0f}",
            ]
        )
    held = np.concatenate(every)
    heads = ["world", "intervals", "hold the truth", "median upper/lower", "all classes together", "misfit", "CPU s"]
    print(table(heads, [*rows, ["all", len(held), f"{held.mean():.1%}", "", "", "", ""]]))
    if widths:
        print(f"median upper/lower at 33 %: {np.median(widths):.2f}")
    conclude("forecast", float(held.mean()), "truth")


def forecast(data: Data, seed: int) -> Shares:
    scan = scan_pool(data, SCAN, seed=seed, device="cpu")
    logits_in = infer(scan.model, data.val_in.x)
    logits_out = None if data.val_out is None else infer(scan.model, data.val_out)
    return related_shares(logits_in, data.val_in.y, logits_out, scan.logits, fit_temperature(logits_in, data.val_in.y))


def truth(data: Data) -> np.ndarray:
    """The share of each class in the whole pool."""
    assert data.pool is not None and data.pool.truth is not None
    return np.bincount(data.pool.truth + 1, minlength=data.K + 1)[1:] / len(data.pool)


def column(shares: Shares) -> tuple[list[float], list[float]]:
    return shares.low.tolist(), shares.high.tolist()


def described(low: float, high: float, true: float) -> str:
    return f"{100 * low:.1f}-{100 * high:.1f}{'' if low <= true <= high else ' MISSES'} ({100 * true:.1f})"


# worlds --------------------------------------------------------------------------------------------------------------------


def deal(name: str, seed: int, features: Path) -> Data:
    if name in ("digits", "photos"):
        return load_world(name, seed)
    if name == "scenes":
        every, other = load("photos", features), load("photos-val", features)
        task = np.isin(every[1], SCENES)
        related, rest = (every[0][task], every[1][task]), every[0][~task]
        return together(SCENES, related, np.concatenate([rest, other[0]]), (20, 20, len(other[0])), None, seed)
    task, other = load("cifar10", features), [load(part, features)[0] for part in ("cifar100", "cifar100-val")]
    classes = tuple(np.unique(task[1]).tolist())
    return together(classes, task, np.concatenate(other), (400, 200, 2450), RELATED[name], seed)


def together(
    classes: tuple[str, ...], task: tuple[np.ndarray, np.ndarray], other: np.ndarray, sizes: tuple[int, int, int],
    share: float | None, seed: int,
) -> Data:  # fmt: skip
    """`sizes`: labelled and val_in a class, val_out. What is left is the pool, with `share` of it related."""
    labelled, val_in, out = sizes
    y = np.searchsorted(classes, task[1])
    rank = np.empty(len(y), np.int64)
    for c in range(len(classes)):
        own = np.flatnonzero(y == c)
        rank[stream(seed, "forecast world", c).permutation(own)] = np.arange(len(own))
    other = other[stream(seed, "forecast world", "out").permutation(len(other))]
    left = np.flatnonzero(rank >= labelled + val_in)
    if share is not None:
        many = round(len(other[out:]) * share / (1 - share))
        left = stream(seed, "forecast world", "related").permutation(left)[:many]
    order = stream(seed, "forecast world", "pool").permutation(len(left) + len(other) - out)
    true = np.concatenate([y[left], np.full(len(other) - out, -1)])[order]
    first, second = rank < labelled, (rank >= labelled) & (rank < labelled + val_in)
    return Data(
        labelled=Labelled(task[0][first], y[first]),
        val_in=Labelled(task[0][second], y[second]),
        val_out=other[:out],
        pool=Pool(np.concatenate([task[0][left], other[out:]])[order], truth=true),
        classes=classes,
    )


def load(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(folder / f"{name}.npz") as file:
        return file["x"], file["names"]


def make_features(data: Path, folder: Path) -> None:
    encoding = None
    for name, (file, splits) in SETS.items():
        if (folder / f"{name}.npz").exists():
            continue
        encoding = encoding or Encoding(Embedder(BACKBONE))
        found = encoding.read([f"{data / file}.parquet?split={split}" for split in splits], 32, "crop", labelled=True)
        kept = ~np.isin(found.labels, CONFUSED)
        with whole(folder / f"{name}.npz") as part, part.open("wb") as out:
            np.savez(out, x=found.x[kept], names=np.array(found.labels)[kept])


if __name__ == "__main__":
    main()
