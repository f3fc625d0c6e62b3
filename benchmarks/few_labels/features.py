"""The benchmark's pictures as vectors, made once by the product's own embedding code and kept in a folder of the user's."""

import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from odst.data.encoding import Encoding
from odst.data.vectors import Embedder
from odst.files import whole

BACKBONE = "efficientnet-lite1"  # 128 pixels a side, 1,280 numbers a picture
CONFUSED = ("bus", "pickup_truck")  # CIFAR-100 classes that show CIFAR-10's automobile and truck
SETS = {
    "cifar10": ("cifar10_train", ("labelled", "val_in", "pool")),  # dealt anew by every seed
    "cifar10-test": ("cifar10_test", ("test",)),
    "cifar100": ("cifar100_train", ("pool",)),
    "cifar100-val": ("cifar100_test", ("val_out",)),
    "cifar100-test": ("cifar100_test", ("out_test",)),
    "photos": ("scene_photos", ("labelled", "val_in", "pool")),
    "photos-val": ("scene_photos", ("val_out",)),
    "photos-test": ("scene_photos", ("test",)),
    "photos-out": ("scene_photos", ("out_test",)),
}


@dataclass(frozen=True)
class Vectors:
    x: np.ndarray  # (n, 1280) float16
    names: np.ndarray  # (n,) class names

    def __len__(self) -> int:
        return len(self.x)

    def where(self, rows: np.ndarray) -> "Vectors":
        return Vectors(self.x[rows], self.names[rows])


def load(name: str, folder: Path) -> Vectors:
    with np.load(folder / f"{name}.npz") as file:
        return Vectors(file["x"], file["names"])


def missing(folder: Path) -> list[str]:
    return [name for name in SETS if not (folder / f"{name}.npz").exists()]


def make(data: Path, folder: Path) -> float:
    """Embed what is not there yet; return the seconds. The embedding code takes as many processes as it finds worth it."""
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    encoding = Encoding(Embedder(BACKBONE))
    for name in missing(folder):
        file, splits = SETS[name]
        found = encoding.read([f"{data / file}.parquet?split={split}" for split in splits], 32, "crop", labelled=True)
        kept = ~np.isin(found.labels, CONFUSED)
        with whole(folder / f"{name}.npz") as part, part.open("wb") as out:
            np.savez(out, x=found.x[kept], names=np.array(found.labels)[kept])
    return time.perf_counter() - start
