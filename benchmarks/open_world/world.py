"""The worlds: CIFAR-10 among CIFAR-100, which is of the same source, and SVHN among CIFAR-100.

Truth of the pool is kept for scoring only. The leak guard runs on every pool.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from odst.data.named.download import load_set
from odst.data.packing import build_pool
from odst.data.pool import open_pool
from odst.data.reading import read_set
from odst.duplicates.artefacts import audit
from odst.duplicates.scan import Guard
from odst.errors import UserError
from odst.files import whole
from odst.seeds import stream
from odst.vision.corruptions import CORRUPTIONS, LEVELS, corrupt
from odst.vision.perceptual import read_lpips_weights

CONFUSED = ("bus", "pickup_truck")  # CIFAR-100 classes that show CIFAR-10's automobile and truck
CORRUPTED = 1000  # test images for the corruption error
LABELLED, RELATED = 1_000, 3_000  # of the sweep, the same in all its worlds
SWEEP = {"sweep-0": 0, "sweep-1500": 1_500, "sweep-6000": 6_000, "sweep-29400": 29_400}  # unrelated images
SIDES = {"near": 6_000, "far": 6_000}  # as many unrelated images, of classes that are like the task's, and of others
# CIFAR-100's land mammals, reptiles and vehicles; CIFAR-10 has cats, deer, dogs, horses, birds, frogs and vehicles
NEAR = (
    "bear", "leopard", "lion", "tiger", "wolf", "camel", "cattle", "chimpanzee", "elephant", "kangaroo", "fox",
    "porcupine", "possum", "raccoon", "skunk", "hamster", "mouse", "rabbit", "shrew", "squirrel", "crocodile",
    "dinosaur", "lizard", "snake", "turtle", "bicycle", "motorcycle", "train", "lawn_mower", "rocket", "streetcar",
    "tank", "tractor",
)  # fmt: skip


@dataclass(frozen=True)
class Set:
    x: np.ndarray
    names: np.ndarray  # class names

    def where(self, rows: np.ndarray) -> "Set":
        return Set(self.x[rows], self.names[rows])

    def without(self, *classes: str) -> "Set":
        return self.where(~np.isin(self.names, classes))

    def sample(self, per_class: int, *name: str) -> "Set":
        """The same images for everybody: `per_class` of each class, drawn by name."""
        rows = [
            stream(0, *name, c).permutation(np.flatnonzero(self.names == c))[:per_class] for c in np.unique(self.names)
        ]
        return self.where(np.sort(np.concatenate(rows)))

    def draw(self, n: int, *name: str) -> "Set":
        """`n` of all, drawn by name: of two numbers the larger draw holds the smaller."""
        return self.where(np.sort(stream(0, *name).permutation(len(self.x))[:n]))


def parquet(folder: Path, file: str, split: str) -> Set:
    found = read_set(f"{folder / file}.parquet?split={split}", 32, labelled=True)
    return Set(found.x, np.array(found.labels))


def named(spec: str) -> Set:
    stored = load_set(spec)
    return Set(stored.x[:], np.array(stored.classes)[stored.y])


def cifar_sets(folder: Path | None) -> dict[str, Set]:
    """labelled 4,000, val_in 2,000, related up to 16,000, test 5,000; unrelated 29,400, val_out and an out-test set from
    disjoint halves of CIFAR-100's test images. From the folder of the benchmark, or from `odst data get`."""
    if folder is not None:
        sets = {
            "labelled": parquet(folder, "cifar10_train", "labelled"),
            "val_in": parquet(folder, "cifar10_train", "val_in"),
            "related": parquet(folder, "cifar10_train", "pool"),
            "test": parquet(folder, "cifar10_test", "test"),
            "unrelated": parquet(folder, "cifar100_train", "pool").without(*CONFUSED),
            "val_out": parquet(folder, "cifar100_test", "val_out").without(*CONFUSED),
            "out_cifar100": parquet(folder, "cifar100_test", "out_test").without(*CONFUSED),
            "out_svhn": parquet(folder, "svhn_test", "test"),
        }
        return sets | {f"out_{name}": parquet(folder, name, "out_test") for name in ("flowers", "textures", "scenes")}
    train, test = named("cifar10:train").sample(2200, "open world"), named("cifar10:test").sample(500, "open world")
    rank = np.zeros(len(train.x), int)
    for c in np.unique(train.names):
        own = np.flatnonzero(train.names == c)
        rank[stream(0, "open world", "deal", c).permutation(own)] = np.arange(len(own))
    other = named("cifar100:test").without(*CONFUSED)
    half = stream(0, "open world", "halves").permutation(len(other.x)) % 2 == 0
    return {
        "labelled": train.where(rank < 400),
        "val_in": train.where((rank >= 400) & (rank < 600)),
        "related": train.where(rank >= 600),
        "test": test,
        "unrelated": named("cifar100:train").sample(300, "open world").without(*CONFUSED),
        "val_out": other.where(half),
        "out_cifar100": other.where(~half),
        "out_svhn": named("svhn:test"),
    }


def svhn_sets(folder: Path) -> dict[str, Set]:
    """The paper's SVHN experiment in small: digits and CIFAR-100 images in one pool."""
    return {
        "labelled": parquet(folder, "svhn_train", "labelled"),
        "val_in": parquet(folder, "svhn_train", "val_in"),
        "related": parquet(folder, "svhn_train", "pool"),
        "test": parquet(folder, "svhn_test", "test"),
        "unrelated": parquet(folder, "cifar100_train", "pool"),
        "val_out": parquet(folder, "cifar100_test", "val_out"),
        "out_cifar100": parquet(folder, "cifar100_test", "out_test"),
        "out_flowers": parquet(folder, "flowers", "out_test"),
    }


def cut(world: str, sets: dict[str, Set]) -> dict[str, Set]:
    """The sets of one world: which of the labelled, related and unrelated images it has."""
    if world == "33":
        n = len(sets["unrelated"].x) // 2
        if n > len(sets["related"].x):
            raise UserError(f"world 33: it needs {n} related images, and there are {len(sets['related'].x)}.")
        return sets | {"related": sets["related"].draw(n, "share")}
    if world not in SWEEP | SIDES:
        return sets
    K, unrelated = len(np.unique(sets["labelled"].names)), sets["unrelated"]
    if world in SIDES:
        unrelated = unrelated.where(np.isin(unrelated.names, NEAR) == (world == "near"))
    return sets | {
        "labelled": sets["labelled"].sample(LABELLED // K, "sweep", "labelled"),
        "related": sets["related"].sample(RELATED // K, "sweep", "related"),
        "unrelated": unrelated.draw((SWEEP | SIDES)[world], "sweep", "unrelated"),
    }


def build(out: Path, sets: dict[str, Set], weights: Path | None) -> None:
    """Write a world to `out`: each set as .npz, and the pool of related and unrelated images, packed, shuffled and guarded."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    related, unrelated = sets["related"], sets["unrelated"]
    order = stream(0, "pool").permutation(len(related.x) + len(unrelated.x))
    pool = Set(np.concatenate([related.x, unrelated.x])[order], np.concatenate([related.names, unrelated.names])[order])
    for name, one in {**sets, "pool": pool}.items():
        if name not in ("related", "unrelated"):
            np.savez(out / f"{name}.npz", x=one.x, labels=one.names)
    build_pool(out / "pool.npz", out / "pool")
    (out / "pool.npz").unlink()
    references = {
        name: sets[name].x for name in sets if name in ("test", "val_in", "val_out") or name.startswith("out_")
    }
    found = audit(
        open_pool(out / "pool"),
        Guard(references, weights=None if weights is None else read_lpips_weights(weights)),
        out / "pool",
    )
    left = pool.where(np.setdiff1d(np.arange(len(pool.x)), open_pool(out / "pool").excluded))
    known = left.where(
        np.isin(left.names, np.unique(sets["labelled"].names))
    )  # the bound's: what the guard takes out is no label either
    np.savez(out / "related.npz", x=known.x, labels=known.names)
    print(f"{out.name}: {len(pool.x):,} images, {len(related.x):,} related, the leak guard took {found['excluded']}")
    write_corrupted(out, sets["test"])
    with whole(out / "whole") as marker:
        marker.write_text("")


def sets_in(world: Path) -> dict[str, Any]:
    """The sets of a world's folder, as a config names them."""
    if not (world / "labelled.npz").exists():
        raise UserError(f"{world}: this is no world. python -m benchmarks.open_world makes some, as OUT/world-NAME.")
    sets: dict[str, Any] = {
        f"data.{name}": str(world / f"{name}.npz") for name in ("labelled", "val_in", "val_out", "test")
    }
    outs = {file.stem.removeprefix("out_"): str(file) for file in sorted(world.glob("out_*.npz"))}
    return sets | {"data.pool": str(world / "pool"), "data.out_test": outs}


def write_corrupted(out: Path, test: Set) -> None:
    """A thousand fixed test images with each of the 15 corruptions, the five levels in turn: every model sees the same."""
    few = test.sample(CORRUPTED // len(np.unique(test.names)), "corrupted")
    level = stream(0, "corrupted").permutation(len(few.x)) % len(LEVELS)
    x = np.empty((len(CORRUPTIONS), *few.x.shape), np.uint8)
    for made, name in zip(x, CORRUPTIONS, strict=True):
        for i, strength in enumerate(LEVELS):
            made[level == i] = corrupt(few.x[level == i], name, strength, seed=0)
    np.savez(out / "corrupted.npz", x=x.reshape(-1, *few.x.shape[1:]), labels=np.tile(few.names, len(x)))
