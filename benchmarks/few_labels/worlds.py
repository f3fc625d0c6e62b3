"""The worlds, dealt anew by every seed and written as the files a user would have: `odst init` finds them by their names.

CIFAR-10 among CIFAR-100 as vectors, at five sizes; photographs of scenes as pictures."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.few_labels.features import Vectors, load
from odst.seeds import stream


@dataclass(frozen=True)
class World:
    labelled: int
    related: int  # in the pool
    pool: int

    @property
    def val_in(self) -> int:
        return min(2000, 3 * self.labelled)


CIFAR = {
    "100": World(100, 3_000, 15_000),
    "400": World(400, 6_000, 18_000),
    "400-rare": World(400, 1_000, 30_000),
    "1,000": World(1_000, 3_000, 32_000),
    "4,000": World(4_000, 14_000, 42_000),
}
# A pool of one size with ever fewer related images; the labelled ones of one number are the same in all three
SHARES = {
    f"{n}-{share}": World(n, related, 18_000)
    for n in (100, 400, 1_000, 4_000)
    for share, related in ((33, 6_000), (10, 1_800), (2, 360))
}
PHOTOS, PIXELS = (
    "photos",
    "photos-pixels",
)  # 80 labelled, 80 for val_in, 900 related of 3,000: by a backbone, and without
SCENES = ("buildings", "glacier", "mountain", "street")
PER_SCENE = 20  # labelled, and as many for val_in


def write_vectors(name: str, seed: int, folder: Path, features: Path) -> Vectors:
    """The files of a CIFAR world in `folder`; returns the CIFAR-10 training images that no set of it has taken."""
    world = (CIFAR | SHARES)[name]
    deal_name = name if name in CIFAR else f"shares of {world.labelled}"
    task, other = load("cifar10", features), load("cifar100", features)
    classes = np.unique(task.names)
    sizes = [n // len(classes) for n in (world.labelled, world.val_in, world.related)]
    labelled, val_in, related, spare = (task.where(rows) for rows in deal(task.names, classes, sizes, seed, deal_name))
    some = stream(seed, "few labels", deal_name, "unrelated").permutation(len(other))[: world.pool - world.related]
    unrelated = other.where(np.sort(some))
    order = stream(seed, "few labels", "pool").permutation(world.pool)
    pool = Vectors(
        np.concatenate([related.x, unrelated.x])[order], np.concatenate([related.names, unrelated.names])[order]
    )
    (folder / "out_test").mkdir(parents=True)
    sets = {"labelled": labelled, "val_in": val_in, "pool": pool, "val_out": load("cifar100-val", features)}
    sets |= {"test": load("cifar10-test", features), "out_test/cifar100": load("cifar100-test", features)}
    for role, one in sets.items():
        np.savez(folder / f"{role}.npz", x=one.x, labels=one.names)
    return spare


def write_photographs(seed: int, folder: Path, data: Path) -> None:
    """The files of the photographs' world in `folder`: parquet with pictures, as in `data`."""
    every = pq.read_table(data / "scene_photos.parquet")
    names = label_names(every)
    dealt = every.filter(pc.is_in(every["split"], pa.array(["labelled", "val_in", "pool"])))
    truth = np.array(names)[dealt["label"].to_numpy()]
    labelled, val_in, related = deal(truth, SCENES, [PER_SCENE, PER_SCENE], seed, PHOTOS)
    pool = np.concatenate([related, np.flatnonzero(~np.isin(truth, SCENES))])
    pool = stream(seed, "few labels", "pool").permutation(pool)
    (folder / "out_test").mkdir(parents=True)
    for role, rows in {"labelled": labelled, "val_in": val_in, "pool": pool}.items():
        pq.write_table(dealt.take(rows).drop_columns("split"), folder / f"{role}.parquet")
    for role, split in {"val_out": "val_out", "test": "test", "out_test/scenes": "out_test"}.items():
        pq.write_table(every.filter(pc.equal(every["split"], split)).drop_columns("split"), folder / f"{role}.parquet")


def label_names(table: pa.Table) -> list[str]:
    import json

    features = json.loads(table.schema.metadata[b"huggingface"])["info"]["features"]
    found: list[str] = features["label"]["names"]
    return found


def deal(names: np.ndarray, classes: Sequence[str], sizes: list[int], seed: int, world: str) -> list[np.ndarray]:
    """Rows of parts of so many pictures a class, drawn by name, and those that are left."""
    parts: list[list[np.ndarray]] = [[] for _ in range(len(sizes) + 1)]
    for c in classes:
        own = stream(seed, "few labels", world, c).permutation(np.flatnonzero(names == c))
        for part, rows in zip(parts, np.split(own, np.cumsum(sizes)), strict=True):
            part.append(rows)
    return [np.sort(np.concatenate(rows)) for rows in parts]
