"""The file formats of the paper's sets: CIFAR batches, SVHN .mat, tiny_images.bin, CIFAR-C and CIFAR-10.1 folders."""

import pickle
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from odst.data.formats.arrays import ArraySource, load_npy, numbered
from odst.data.formats.unpickling import load_arrays
from odst.data.images import Images
from odst.data.items import label_text
from odst.data.views import ColumnMajor, Concatenated
from odst.errors import UserError, refused

LARGEST = 9_999  # no set that is published in these formats has a label above it
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_TRAIN_BATCH = re.compile(r"(train_)?data_batch_(\d+)(\.bin)?")  # train_data_batch_1 is ImageNet-32's
_PICKLES = {"test_batch", "val_data", "train", "test"}
_BINARIES = {"test_batch.bin", "train.bin", "test.bin"}


@dataclass(frozen=True)
class Stored:
    """Images that lie ready-made in one file or folder, with labels and their names where the format has them."""

    path: Path
    x: Images  # uint8 (m, H, W, 3)
    y: np.ndarray | None = None  # (m,) int64, a position in `classes`
    classes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.x)


def open_format(path: Path) -> ArraySource | None:
    """The path as a source if it is one of these formats, else None."""
    stored = read_format(path)
    return None if stored is None else as_source(stored)


def as_source(stored: Stored) -> ArraySource:
    """Its items carry class names; what is memory-mapped stays so in every process."""
    labels: list[str | None] | None = None if stored.y is None else [stored.classes[k] for k in stored.y.tolist()]
    mapped = isinstance(stored.x, ColumnMajor) and isinstance(stored.x.raw, np.memmap)
    return ArraySource(
        stored.path, stored.x, labels=labels, reopen=partial(_tiny_rows, stored.path) if mapped else None
    )


def _tiny_rows(path: Path) -> Images:
    return read_tiny_images(path).x


def read_format(path: Path) -> Stored | None:
    """The images at `path` if it is one of these formats, else None.

    A folder of CIFAR or ImageNet-32 batches is its training set; the test set is named by its file
    (cifar-10-batches-py/test_batch). A CIFAR-C folder is its 15 corruptions one after the other.
    """
    path = Path(path)
    if path.is_dir():
        return _open_folder(path)
    if not path.is_file():
        return None
    if path.suffix == ".mat":
        return read_svhn(path)
    if _is_pickled_batch(path) or path.name in _BINARIES or _TRAIN_BATCH.fullmatch(path.name):
        return read_cifar([path])
    if path.suffix == ".bin":
        return read_tiny_images(path)
    if re.fullmatch(r"cifar10\.1_v\d+_data\.npy", path.name):
        return read_cifar10_1(path)
    return None


def _is_pickled_batch(path: Path) -> bool:
    if path.name not in _PICKLES and path.suffix not in {".pickle", ".pkl"}:
        return False
    with path.open("rb") as file:
        return file.read(1) == pickle.PROTO  # else a file that happens to be called `train`


def _open_folder(path: Path) -> Stored | None:
    names = {item.name for item in path.iterdir() if item.is_file()}
    batches = sorted(
        (int(match[2]), path / name) for name in names if (match := _TRAIN_BATCH.fullmatch(name)) is not None
    )
    if batches:
        return read_cifar([file for _, file in batches])
    for train, meta in (("train", "meta"), ("train.bin", "fine_label_names.txt")):
        if {train, meta} <= names:
            return read_cifar([path / train])
    if "labels.npy" in names and any(f"{name}.npy" in names for name in _corruptions()):
        sets = [(x, y) for _, _, x, y in read_corruptions(path)]
        y = np.concatenate([y for _, y in sets])
        return Stored(path, Concatenated([x for x, _ in sets]), y, _class_names(path / "labels.npy", int(y.max()) + 1))
    versions = sorted(name for name in names if re.fullmatch(r"cifar10\.1_v\d+_data\.npy", name))
    return read_cifar10_1(path / versions[-1]) if versions else None


def read_cifar(files: Sequence[Path]) -> Stored:
    """CIFAR-10, CIFAR-100 or ImageNet-32 batches, binary or pickled, or the pickle of 500k selected Tiny Images."""
    batches = [_binary_batch(file) if file.suffix == ".bin" else _pickled_batch(file) for file in files]
    x = Concatenated([x for x, _ in batches]) if len(batches) > 1 else batches[0][0]  # ImageNet-32 would not fit twice
    y = np.concatenate([y for _, y in batches])
    classes = _class_names(files[0], K := int(y.max(initial=-1)) + 1)
    if len(classes) < K:
        raise UserError(
            f"{files[0]}: label {K - 1} but only {len(classes)} class names beside it. Fetch the set again."
        )
    return Stored(files[0] if len(files) == 1 else files[0].parent, x, y, classes)


def _binary_batch(file: Path) -> tuple[np.ndarray, np.ndarray]:
    head = 1 if "batch" in file.name else 2  # CIFAR-100 has a coarse label before the fine one
    raw = np.fromfile(file, np.uint8)
    if raw.size == 0 or raw.size % (head + 3072):
        raise UserError(
            f"{file}: {raw.size} bytes are no whole number of CIFAR records of {head + 3072} bytes. "
            "It is cut short or no CIFAR batch; fetch it again."
        )
    raw = raw.reshape(-1, head + 3072)
    return _upright(raw[:, head:]), raw[:, head - 1].astype(np.int64)


def _pickled_batch(file: Path) -> tuple[np.ndarray, np.ndarray]:
    with file.open("rb") as opened:
        batch = load_arrays(opened, file)
    keys = ("labels", "fine_labels", "extrapolated_targets")
    found = next((key for key in keys if isinstance(batch, dict) and key in batch), None)
    if found is None or not isinstance(x := batch.get("data"), np.ndarray) or x.dtype != np.uint8:
        raise UserError(f"{file}: no images and labels in this pickle. A batch holds `data` (uint8) and one of {keys}.")
    with refused(str(file), "a batch whose labels are numbers", "Fetch it again."):
        y = np.asarray(batch[found]).reshape(-1)
    first = 1 if "mean" in batch else 0  # ImageNet-32 counts from 1
    y = numbered(file, y, first, LARGEST) - first
    planes = x.ndim == 2 and x.shape[1] > 0 and x.shape[1] == 3 * round((x.shape[1] / 3) ** 0.5) ** 2
    x = _upright(x) if planes else x
    if x.ndim != 4 or len(x) != len(y) or x.shape[1:] != (x.shape[1], x.shape[1], 3):
        raise UserError(f"{file}: {len(y)} labels for images of shape {x.shape}. The batch is damaged; fetch it again.")
    return x, y


def _upright(planes: np.ndarray) -> np.ndarray:
    side = round((planes.shape[1] / 3) ** 0.5)
    return np.ascontiguousarray(planes.reshape(-1, 3, side, side).transpose(0, 2, 3, 1))


def _class_names(file: Path, K: int) -> tuple[str, ...]:
    """The names beside a batch, in whichever of the four places its version keeps them."""
    for name, key in (("batches.meta", "label_names"), ("meta", "fine_label_names")):
        if file.suffix != ".bin" and (meta := file.with_name(name)).is_file():
            with meta.open("rb") as opened:
                names = load_arrays(opened, meta)
            named = names.get(key) if isinstance(names, dict) else None
            if not isinstance(named, list | tuple) or not all(isinstance(one, str | bytes) for one in named):
                raise UserError(f"{meta}: no list of names under {key!r} in it. Fetch the set again.")
            return tuple(map(label_text, named))
    for name in ("batches.meta.txt", "fine_label_names.txt"):
        if file.suffix == ".bin" and (meta := file.with_name(name)).is_file():
            with refused(str(meta), "a list of names", "Fetch the set again."):
                return tuple(meta.read_text(encoding="utf-8").split())
    return CIFAR10 if K <= 10 else tuple(map(str, range(K)))


def read_svhn(path: Path) -> Stored:
    """SVHN's cropped digits: X (32, 32, 3, n) and y in 1..10, where 10 is the digit 0. Read into memory."""
    from scipy.io import loadmat  # slow to import, and only SVHN needs it

    try:
        content = loadmat(path, variable_names=["X", "y"])
        x, y = content["X"], content["y"].reshape(-1)
    except MemoryError:
        raise
    except Exception as error:  # a cut file fails anywhere in scipy or zlib, each time with another type
        raise UserError(
            f"{path}: not a MATLAB v5 file with X and y as SVHN's are ({error}). Type `odst data get svhn`."
        ) from None
    if x.dtype != np.uint8 or x.shape[:3] != (32, 32, 3) or x.shape[3:] != (len(y),):
        raise UserError(
            f"{path}: X is {x.dtype} {x.shape} with {len(y)} labels; SVHN has uint8 (32, 32, 3, n) and n labels."
        )
    raw = np.asfortranarray(x).reshape(3072, -1, order="F").T
    return Stored(path, ColumnMajor(raw), numbered(path, y, 0, 10) % 10, tuple(map(str, range(10))))


def read_tiny_images(path: Path) -> Stored:
    """80 Million Tiny Images as its authors packed them: 3,072 bytes an image, column-major; memory-mapped."""
    size = path.stat().st_size
    if size == 0 or size % 3072:
        raise UserError(
            f"{path}: {size} bytes are no whole number of images of 3,072. It is cut short or not tiny_images.bin."
        )
    return Stored(path, ColumnMajor(np.memmap(path, np.uint8, mode="r", shape=(size // 3072, 3072))))


def read_cifar10_1(path: Path) -> Stored:
    labels = path.with_name(path.name.replace("_data", "_labels"))
    if not labels.is_file():
        raise UserError(f"{path}: its labels {labels.name} are not beside it. Type `odst data get cifar10.1`.")
    x, y = load_npy(path, "r"), load_npy(labels, "r")
    if y.shape != x.shape[:1]:
        raise UserError(f"{labels}: labels of shape {y.shape} for {len(x)} images. Type `odst data get cifar10.1`.")
    return Stored(path, x, numbered(labels, y, 0, 9), CIFAR10)


def _corruptions() -> tuple[str, ...]:
    from odst.vision.corruptions import CORRUPTIONS  # slow to import: they can be made as well as read

    return CORRUPTIONS


def corruption_labels(folder: Path) -> np.ndarray:
    """The labels of a CIFAR-C folder as published: NAME.npy, five levels one after another, and labels.npy for all of them."""
    if absent := [name for name in (*_corruptions(), "labels") if not (folder / f"{name}.npy").is_file()]:
        raise UserError(
            f"{folder}: {len(absent)} of the 16 files of CIFAR-C are not there, {absent[0]}.npy first. "
            "Type `odst data get cifar10-c` or cifar100-c, or give the folder that holds labels.npy."
        )
    labels = load_npy(folder / "labels.npy", "r")
    if labels.ndim != 1 or len(labels) == 0 or len(labels) % 5:
        raise UserError(
            f"{folder / 'labels.npy'}: expected one label per image of five levels, got shape {labels.shape}."
        )
    return numbered(folder / "labels.npy", labels, 0, LARGEST)


def read_corruptions(folder: Path) -> Iterator[tuple[str, int, np.ndarray, np.ndarray]]:
    """(corruption, level, images, labels) for the paper's 15 corruptions × 5 levels, memory-mapped."""
    labels = corruption_labels(folder)
    n = len(labels) // 5
    for name in _corruptions():
        x = load_npy(folder / f"{name}.npy", "r")
        if x.dtype != np.uint8 or x.ndim != 4 or x.shape[3] != 3 or len(x) != len(labels):
            raise UserError(
                f"{folder / name}.npy: expected {len(labels)} uint8 images (height, width, 3) to go with labels.npy, "
                f"got {x.dtype} {x.shape}. Fetch it again."
            )
        for level in range(1, 6):
            rows = slice((level - 1) * n, level * n)
            yield name, level, x[rows], labels[rows]
