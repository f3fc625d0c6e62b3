"""The paper's named sets and its three experiments: which set plays which part, with the splits and exclusions of the paper."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from odst.data.exclusions import ONE_BASED, ZERO_BASED, read_exclusions
from odst.data.formats.originals import Stored
from odst.data.images import Data, Images, Labelled, Pool, fingerprint
from odst.data.items import file_uri
from odst.data.named.download import data_folder, load_set, require
from odst.data.sets import class_numbers, hold_out, split
from odst.data.views import Concatenated
from odst.errors import UserError
from odst.files import digest
from odst.seeds import stream

log = logging.getLogger("odst")


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


TASKS = {
    "cifar10": Task(
        labelled="cifar10:train",
        test="cifar10:test",
        val_in="cifar10.1",
        val_out="cifar100:train",
        without=("bus", "pickup_truck"),
        out_tests=("cifar100:test", "svhn:test", "lsun-cr", "flowers102", "food101"),
    ),
    "cifar100": Task(
        labelled="cifar100:train",
        test="cifar100:test",
        val_in_per_class=50,
        val_out="cifar10:train",
        without=("automobile", "truck"),
        out_tests=("cifar10:test", "svhn:test", "lsun-cr", "fgvc-aircraft"),
    ),
    "svhn": Task(
        labelled="svhn:train",
        test="svhn:test",
        extra="svhn-extra",
        val_in_of_extra=10_000,
        val_out="cifar100:train",  # the paper does not say which it used
    ),
}


def load_pool(name: str, folder: Path | None = None, classes: Sequence[str] | None = None) -> Pool:
    """A set as a pool. Published lists of what to leave out of Tiny Images are honoured where they lie in the folder.

    With `classes`, the set's own labels are the truth.
    """
    stored = load_set(name, folder)
    if classes is not None and stored.y is None:
        raise UserError(f"data.pool_truth: {name} has no labels to take for the truth. Take pool_truth out.")
    if name != "tiny-images":
        truth = None if classes is None else class_numbers(name, stored.classes, classes, foreign=-1)[stored.y]
        return Pool(stored.x, truth=truth)
    lists = [path for file in sorted(ZERO_BASED | ONE_BASED) if (path := (folder or data_folder()) / file).is_file()]
    if not lists:
        log.warning(
            "tiny-images: no exclusion list lies beside it, and it holds CIFAR's test images. Run `odst dedup`."
        )
    excluded = [read_exclusions(path, len(stored)) for path in lists]
    return Pool(stored.x, np.concatenate([np.empty(0, np.int64), *excluded]))


def task_classes(name: str) -> tuple[str, ...]:
    return load_set(_task(name).labelled).classes


def load_task(
    name: str,
    pool: Pool | Images | str | None = None,
    *,
    seed: int = 0,
    out_tests: Sequence[str] | None = None,
    pool_truth: bool = False,
    folder: Path | None = None,
) -> Data:
    """The sets of the paper's experiment `name`; what is missing is said in one line, all of it at once.

    pool may be the name of a set. For svhn the 521k extra digits follow it, whose truth is known; with pool None
    they alone are the pool, which is the paper's closed world. out_tests None means the task's own list. pool_truth takes
    the labels of a pool by name for the truth.
    """
    task = _task(name)
    outs = task.out_tests if out_tests is None else tuple(out_tests)
    sets = (task.labelled, task.test, task.val_in, task.val_out, task.extra)
    asked = (*sets, *outs, pool if isinstance(pool, str) else "")
    require(*dict.fromkeys(spec.partition(":")[0] for spec in asked if spec), folder=folder)

    stored = load_set(task.labelled, folder)
    classes, labelled = stored.classes, _labelled(stored, stored.classes)
    given = load_pool(pool, folder, classes if pool_truth else None) if isinstance(pool, str) else pool
    if given is not None and not isinstance(given, Pool):
        given = Pool(given)
    if task.val_in:
        val_in = _labelled(load_set(task.val_in, folder), classes)
    elif task.val_in_per_class:
        K, rng = len(classes), stream(seed, name, "val_in")
        taken = hold_out(labelled.y, [task.val_in_per_class] * K, [rng] * K)
        labelled, val_in = split(labelled, taken)
    else:
        extra = load_set(task.extra, folder)
        rows = np.sort(stream(seed, name, "val_in").choice(len(extra), task.val_in_of_extra, replace=False))
        y = _numbers(extra, classes)
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


def _task(name: str) -> Task:
    if name not in TASKS:
        raise UserError(f"{name}: no task of the paper. Choose one of {', '.join(TASKS)}.")
    return TASKS[name]


def _numbers(stored: Stored, classes: Sequence[str]) -> np.ndarray:
    if stored.y is None:
        raise UserError(f"{stored.path}: it has no labels. Give a set that has.")
    return class_numbers(str(stored.path), stored.classes, classes)[stored.y]


def _labelled(stored: Stored, classes: Sequence[str]) -> Labelled:
    return Labelled(np.asarray(stored.x[:]), _numbers(stored, classes))


def _without(stored: Stored, names: Sequence[str]) -> np.ndarray:
    if absent := [name for name in names if name not in stored.classes]:
        raise UserError(f"{stored.path}: there is no class {absent[0]} to leave out. Fetch the set again.")
    if not names or stored.y is None:
        return np.asarray(stored.x[:])
    return np.asarray(stored.x[np.flatnonzero(~np.isin(stored.y, [stored.classes.index(name) for name in names]))])


def _with_extra(pool: Pool | None, extra: Stored, y: np.ndarray, val_in: np.ndarray) -> Pool:
    """The pool followed by all of `extra`; the rows that became val_in are excluded, so every id stays what it was."""
    identity = digest([pool and pool.identity, fingerprint(extra.x)]) if pool is None or pool.identity else None
    more = Pool(extra.x, val_in, _Rows(partial(_uris, extra.path)), truth=y, identity=identity)
    if pool is None:
        return more
    m = len(pool)
    return Pool(
        Concatenated([pool.x, extra.x]),
        excluded=np.concatenate([pool.excluded, m + val_in]),
        sources=_Rows(more.source, pool.source, m),
        hashes=_Rows(more.content_hash, pool.content_hash, m),
        truth=np.concatenate([np.full(m, -1) if pool.truth is None else pool.truth, y]),
        identity=identity,
    )


def _uris(path: Path, rows: np.ndarray) -> list[str]:
    return [f"{file_uri(path)}#row={j}" for j in rows]


@dataclass(frozen=True)
class _Rows:
    """The texts of two sets one after the other; the first m rows are those of `before`, which is asked once for all."""

    after: Callable[[np.ndarray], Sequence[str]]
    before: Callable[[np.ndarray], Sequence[str]] | None = None
    m: int = 0

    def __getitem__(self, rows: np.ndarray) -> list[str]:
        rows = np.asarray(rows)
        out = np.empty(len(rows), object)
        if self.before is not None:
            out[rows < self.m] = self.before(rows[rows < self.m])
        out[rows >= self.m] = self.after(rows[rows >= self.m] - self.m)
        return out.tolist()
