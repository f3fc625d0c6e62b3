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
    pairs = ((name, level) for name in CORRUPTIONS for level in LEVELS)
    return _errors(predict, ((corrupted_blocks(images, name, level, seed), labels) for name, level in pairs))


def published_corruption_errors(predict: Predict, folder: str | Path) -> np.ndarray:
    """The same from CIFAR-10-C or CIFAR-100-C as published."""
    sets = read_corruptions(Path(folder))
    return _errors(predict, ((np.split(x, range(_BLOCK, len(x), _BLOCK)), y) for _, _, x, y in sets))


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


def _errors(predict: Predict, sets: Iterable[tuple[Iterable[np.ndarray], np.ndarray]]) -> np.ndarray:
    """Each set is its images in blocks, and their labels."""
    errors = np.empty((len(CORRUPTIONS), len(LEVELS)))
    with stage("corruptions", total=errors.size, unit="sets") as advance:
        for place, (blocks, labels) in enumerate(sets):
            wrong = done = 0
            for block in blocks:
                wrong += int((predict(np.asarray(block)) != labels[done : done + len(block)]).sum())
                done += len(block)
            errors.flat[place] = wrong / done
            advance(1)
    return errors
