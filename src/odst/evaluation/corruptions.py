"""The error under common corruptions: made on the fly for own images, or read from the published files."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from odst.data.images import Images
from odst.errors import UserError
from odst.progress import stage
from odst.vision.corruptions import CORRUPTIONS, LEVELS, corrupted_blocks

Predict = Callable[[np.ndarray], np.ndarray]  # uint8 images (n, H, W, 3) -> classes (n,)

_BLOCK = 4096


def corruption_errors(predict: Predict, images: Images, labels: np.ndarray, *, seed: int) -> np.ndarray:
    """The error at each corruption and level, (15, 5) in the order of CORRUPTIONS and LEVELS."""
    errors = np.empty((len(CORRUPTIONS), len(LEVELS)))
    with stage("corruptions", total=errors.size, unit="sets") as advance:
        for i, name in enumerate(CORRUPTIONS):
            for j, level in enumerate(LEVELS):
                errors[i, j] = _error(predict, corrupted_blocks(images, name, level, seed), labels)
                advance(1)
    return errors


def published_corruption_errors(predict: Predict, folder: str | Path) -> np.ndarray:
    """The same from CIFAR-10-C or CIFAR-100-C as published: NAME.npy, the five levels one after another, and labels.npy."""
    folder, labels = Path(folder), published_labels(folder)
    n = len(labels) // len(LEVELS)
    errors = np.empty((len(CORRUPTIONS), len(LEVELS)))
    with stage("corruptions", total=errors.size, unit="sets") as advance:
        for i, name in enumerate(CORRUPTIONS):
            images = _array(folder / f"{name}.npy")
            if images.dtype != np.uint8 or images.ndim != 4 or images.shape[3] != 3 or len(images) != len(labels):
                raise UserError(
                    f"{folder / name}.npy: expected {len(labels)} uint8 images (height, width, 3) to go with labels.npy, "
                    f"got {images.dtype} {images.shape}. Fetch the file anew."
                )
            for j in range(len(LEVELS)):
                rows = range(j * n, (j + 1) * n, _BLOCK)
                blocks = (np.asarray(images[start : min(start + _BLOCK, (j + 1) * n)]) for start in rows)
                errors[i, j] = _error(predict, blocks, labels[j * n : (j + 1) * n])
                advance(1)
    return errors


def published_labels(folder: str | Path, K: int | None = None) -> np.ndarray:
    """labels.npy, after a look at whether all 16 files are there and, given K, whether they are of K classes."""
    folder = Path(folder)
    absent = [name for name in (*CORRUPTIONS, "labels") if not (folder / f"{name}.npy").is_file()]
    if absent:
        raise UserError(
            f"{folder}: {len(absent)} of the 16 files of CIFAR-C are not there, {absent[0]}.npy first. "
            "Unpack CIFAR-10-C.tar or CIFAR-100-C.tar and give the folder that holds labels.npy."
        )
    labels = _array(folder / "labels.npy")
    if labels.ndim != 1 or len(labels) == 0 or len(labels) % len(LEVELS):
        raise UserError(
            f"{folder / 'labels.npy'}: expected one label per image of five levels, got shape {labels.shape}."
        )
    if K is not None and not np.array_equal(np.unique(labels), np.arange(K)):
        raise UserError(
            f"{folder / 'labels.npy'}: its labels run from {labels.min()} to {labels.max()}, and this run has {K} classes. "
            "CIFAR-10-C goes with a run on CIFAR-10, CIFAR-100-C with one on CIFAR-100."
        )
    return labels


def mean_corruption_error(predict: Predict, images: Images, labels: np.ndarray, *, seed: int) -> float:
    """The plain mean over the 15 corruptions and 5 levels."""
    return float(corruption_errors(predict, images, labels, seed=seed).mean())


def _error(predict: Predict, blocks: Iterable[np.ndarray], labels: np.ndarray) -> float:
    wrong = done = 0
    for block in blocks:
        wrong += int((predict(block) != labels[done : done + len(block)]).sum())
        done += len(block)
    return wrong / done


def _array(path: Path) -> np.ndarray:
    """Mapped, not loaded, and never unpickled."""
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, OSError, EOFError) as e:
        raise UserError(f"{path}: not a NumPy array file ({e}). Fetch the file anew.") from e
