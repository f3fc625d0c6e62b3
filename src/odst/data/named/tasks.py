"""The paper's named sets and its three experiments: which set plays which part, with the splits and exclusions of the paper."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from odst.data.formats.arrays import ArraySource, map_npy
from odst.data.formats.originals import (
    ONE_BASED,
    ZERO_BASED,
    Stored,
    as_source,
    read_corruptions,
    read_exclusions,
    read_format,
)
from odst.data.images import Data, Images, Labelled, Pool, fingerprint
from odst.data.named.catalogue import CATALOGUE
from odst.data.named.download import data_folder, find, require
from odst.data.views import Joined
from odst.errors import UserError
from odst.files import digest
from odst.seeds import stream

log = logging.getLogger("odst")

_TEST_FILES = {  # beside the training set, under the name that its version gives it
    "cifar10": ("test_batch", "test_batch.bin"),
    "cifar100": ("test", "test.bin"),
    "svhn": ("test_32x32.mat",),
}


@dataclass(frozen=True)
class Task:
    """One experiment of the paper. Sets are named as load_set takes them."""

    labelled: str
    test: str
    val_out: str
    without: tuple[str, ...] = ()  # classes of val_out that may be taken for one of the task's
    val_in: str = ""  # a set of its own; else taken at random as the next two say
    val_in_per_class: int = 0  # out of the labelled set
    extra: str = ""  # a set of task images: `val_in_of_extra` become val_in, the others are mixed into the pool
    val_in_of_extra: int = 0
    out_tests: tuple[str, ...] = ()
    corrupted: str = ""


TASKS = {
    "cifar10": Task(
        labelled="cifar10:train",
        test="cifar10:test",
        val_in="cifar10.1",
        val_out="cifar100:train",
        without=("bus", "pickup_truck"),
        out_tests=("cifar100:test", "svhn:test", "lsun-cr", "flowers102", "food101"),
        corrupted="cifar10-c",
    ),
    "cifar100": Task(
        labelled="cifar100:train",
        test="cifar100:test",
        val_in_per_class=50,
        val_out="cifar10:train",
        without=("automobile", "truck"),
        out_tests=("cifar10:test", "svhn:test", "lsun-cr", "fgvc-aircraft"),
        corrupted="cifar100-c",
    ),
    "svhn": Task(
        labelled="svhn:train",
        test="svhn:test",
        extra="svhn-extra",
        val_in_of_extra=10_000,
        val_out="cifar100:train",  # the paper does not say which it used
    ),
}


def load_set(spec: str, folder: Path | None = None) -> Stored:
    """A set of the catalogue by name; where it has splits, "cifar10:train" or "cifar10:test"."""
    name, _, split = spec.partition(":")
    require(name, folder=folder)
    paths = find(name, folder)
    assert paths is not None
    if name in _TEST_FILES:
        if split not in ("train", "test"):
            raise UserError(f"{spec}: say which part: {name}:train or {name}:test.")
        beside = paths[0] if paths[0].is_dir() else paths[0].parent
        tests = [beside / test for test in _TEST_FILES[name] if (beside / test).is_file()]
        path = tests[0] if split == "test" and tests else paths[0]
        if split == "test" and not tests:
            raise UserError(f"{beside}: no test set beside the training set. Fetch {name} again into an empty folder.")
    elif split:
        raise UserError(f"{spec}: {name} has no parts. Leave out :{split}.")
    else:
        path = paths[0]
    stored = read_format(path)
    if stored is None and path.suffix == ".npy":
        stored = Stored(path, map_npy(path))
    if stored is None:
        raise UserError(f"{spec}: {path} holds no images.")
    return stored


def named_source(spec: str) -> ArraySource | None:
    """A set of the catalogue as a source, so that its name stands wherever a path does; None for any other text."""
    return as_source(load_set(spec)) if spec.partition(":")[0] in CATALOGUE else None


def load_pool(name: str, folder: Path | None = None) -> Pool:
    """A set as a pool. Published lists of what to leave out of Tiny Images are honoured where they lie in the folder."""
    stored = load_set(name, folder)
    if name != "tiny-images":
        return Pool(stored.x)
    lists = [path for file in sorted(ZERO_BASED | ONE_BASED) if (path := (folder or data_folder()) / file).is_file()]
    if not lists:
        log.warning(
            "tiny-images: no exclusion list lies beside it, and it holds CIFAR's test images. Run `odst dedup`."
        )
    excluded = [read_exclusions(path, len(stored)) for path in lists]
    return Pool(stored.x, np.unique(np.concatenate([np.empty(0, np.int64), *excluded])))


def load_task(
    name: str,
    pool: Pool | Images | str | None = None,
    *,
    seed: int = 0,
    out_tests: Sequence[str] | None = None,
    folder: Path | None = None,
) -> Data:
    """The sets of the paper's experiment `name`; what is missing is said in one line, all of it at once.

    pool may be the name of a set. For svhn it is joined by the 521k extra digits, whose truth is known; with pool None
    those alone are the pool, which is the paper's closed world. out_tests None means the task's own list.
    """
    if name not in TASKS:
        raise UserError(f"{name}: no task of the paper. Choose one of {', '.join(TASKS)}.")
    task = TASKS[name]
    outs = task.out_tests if out_tests is None else tuple(out_tests)
    asked = (
        task.labelled,
        task.test,
        task.val_in,
        task.val_out,
        task.extra,
        *outs,
        pool if isinstance(pool, str) else "",
    )
    require(*dict.fromkeys(spec.partition(":")[0] for spec in asked if spec), folder=folder)

    stored = load_set(task.labelled, folder)
    classes, labelled = stored.classes, _labelled(stored, stored.classes)
    given = load_pool(pool, folder) if isinstance(pool, str) else pool
    if given is not None and not isinstance(given, Pool):
        given = Pool(given)
    if task.val_in:
        val_in = _labelled(load_set(task.val_in, folder), classes)
    elif task.val_in_per_class:
        labelled, val_in = _split(labelled, len(classes), task.val_in_per_class, stream(seed, name, "val_in"))
    else:
        extra = load_set(task.extra, folder)
        rows = np.sort(stream(seed, name, "val_in").choice(len(extra), task.val_in_of_extra, replace=False))
        y = match_classes(extra, classes)
        val_in = Labelled(extra.x[rows], y[rows])
        given = _with_extra(given, extra, y, rows)
    return Data(
        labelled=labelled,
        pool=given,
        val_in=val_in,
        val_out=_without(load_set(task.val_out, folder), task.without),
        test=_labelled(load_set(task.test, folder), classes),
        out_tests={spec.partition(":")[0]: load_set(spec, folder).x[:] for spec in outs},
        classes=classes,
    )


def load_corruptions(task: str, folder: Path | None = None) -> Iterator[tuple[str, int, np.ndarray, np.ndarray]]:
    """(corruption, level, images, labels): the published corrupted test set of the task, 15 × 5."""
    name = TASKS[task].corrupted if task in TASKS else ""
    if not name:
        raise UserError(f"{task}: nobody has published a corrupted test set for it. Make one with --corruptions.")
    require(name, folder=folder)
    paths = find(name, folder)
    assert paths is not None
    return read_corruptions(paths[0])


def match_classes(stored: Stored, classes: Sequence[str]) -> np.ndarray:
    """Its labels as positions in `classes`, matched by name and never by position."""
    if stored.y is None:
        raise UserError(f"{stored.path}: it has no labels. Give a set that has.")
    places = {name: k for k, name in enumerate(classes)}
    if unknown := [name for name in stored.classes if name not in places]:
        raise UserError(
            f"{stored.path}: its class {unknown[0]} is none of {', '.join(classes)}. Classes are matched by name."
        )
    return np.array([places[name] for name in stored.classes], np.int64)[stored.y]


def _labelled(stored: Stored, classes: Sequence[str]) -> Labelled:
    return Labelled(np.asarray(stored.x[:]), match_classes(stored, classes))


def _without(stored: Stored, names: Sequence[str]) -> np.ndarray:
    if absent := [name for name in names if name not in stored.classes]:
        raise UserError(f"{stored.path}: there is no class {absent[0]} to leave out. Fetch the set again.")
    if not names or stored.y is None:
        return np.asarray(stored.x[:])
    return np.asarray(stored.x[np.flatnonzero(~np.isin(stored.y, [stored.classes.index(name) for name in names]))])


def _split(labelled: Labelled, K: int, per_class: int, rng: np.random.Generator) -> tuple[Labelled, Labelled]:
    """The labelled set without, and the images taken: so many of each class, at random."""
    taken = np.sort(np.concatenate([rng.permutation(np.flatnonzero(labelled.y == c))[:per_class] for c in range(K)]))
    left = np.setdiff1d(np.arange(len(labelled)), taken)
    return Labelled(labelled.x[left], labelled.y[left]), Labelled(labelled.x[taken], labelled.y[taken])


def _with_extra(pool: Pool | None, extra: Stored, y: np.ndarray, val_in: np.ndarray) -> Pool:
    """The pool followed by all of `extra`; the rows that became val_in are excluded, so every id stays what it was."""
    m = 0 if pool is None else len(pool)
    parts = [extra.x] if pool is None else [pool.x, extra.x]
    before = np.full(m, -1) if pool is None or pool.truth is None else pool.truth
    identity = None
    if pool is None or pool.identity is not None:
        identity = digest([pool and pool.identity, fingerprint(extra.x)])
    return Pool(
        Joined(parts) if len(parts) > 1 else extra.x,
        excluded=np.concatenate([np.empty(0, np.int64) if pool is None else pool.excluded, m + val_in]),
        sources=_Sources(pool, extra.path, m),
        truth=np.concatenate([before, y]),
        identity=identity,
    )


@dataclass(frozen=True)
class _Sources:
    pool: Pool | None
    path: Path
    m: int

    def __getitem__(self, rows: np.ndarray) -> list[str]:
        own = f"{self.path.absolute().as_uri()}#row="
        return [
            f"{own}{j - self.m}" if self.pool is None or j >= self.m else self.pool.source(np.array([j]))[0]
            for j in rows
        ]
