"""The error under common corruptions: made on the fly for own images, or read from the published files."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from odst.data.formats.originals import corruption_labels, read_corruptions
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
    """The same from CIFAR-10-C or CIFAR-100-C as published."""
    errors = np.empty((len(CORRUPTIONS), len(LEVELS)))
    with stage("corruptions", total=errors.size, unit="sets") as advance:
        for name, level, images, labels in read_corruptions(Path(folder)):
            blocks = (np.asarray(images[start : start + _BLOCK]) for start in range(0, len(images), _BLOCK))
            errors[CORRUPTIONS.index(name), LEVELS.index(level)] = _error(predict, blocks, labels)
            advance(1)
    return errors


def published_labels(folder: str | Path, K: int) -> np.ndarray:
    """Those of CIFAR-C, after a look at whether all files are there and the labels are of K classes."""
    labels = corruption_labels(Path(folder))
    if not np.array_equal(np.unique(labels), np.arange(K)):
        raise UserError(
            f"{Path(folder) / 'labels.npy'}: its labels run from {labels.min()} to {labels.max()}, and this run has {K} classes. "
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
