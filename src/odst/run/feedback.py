"""Marks fed back: what people said of pool images becomes part of the sets of a run.

Right and relabelled images join T with hard labels, those of none of the classes join val_out, and both leave the pool; a
wrong one stays in the pool and is never selected as that class. Marks on images that are excluded already are passed over: the
leak guard, or the list of val_out, has the last word.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from odst.data.images import Data, Labelled, Pool, is_counted
from odst.errors import UserError
from odst.files import digest, sha256, whole
from odst.run.config import LEARNT, Config, files_of
from odst.run.directory import RunDir
from odst.run.marks import NONE, RELABELLED, VAL_OUT, Settled, check_marks, read_marks, settle

log = logging.getLogger("odst")


def settled_marks(files: str | Sequence[str], pool: Pool | None, classes: Sequence[str]) -> Settled | None:
    """What the files say of this pool, one mark an image; None without files, or while the pool is only counted."""
    files = files_of(files)
    if not files:
        return None
    if pool is None:
        raise UserError(
            f"{files[0]}: marks are of pool images, and this run has no pool. Set data.pool, or take data.marks out."
        )
    if is_counted(pool.x):
        return None
    marks = []
    for file in files:
        own = read_marks(Path(file))
        if any(mark.mode == VAL_OUT for mark in own):
            raise UserError(
                f"{file}: these marks are of a val_out. Give them to `odst review PROJECT --val-out --marks`."
            )
        check_marks(own, str(file), pool, classes)
        marks += own
    return settle(marks)


def own_marks(config: Config, run: RunDir, fresh: bool) -> tuple[Config, dict[Path, bytes]]:
    """The config with the marks named as the run keeps them, and these files: what lies in somebody's folder of downloads will
    not be there for ever. A run goes on with the marks that its config names, unless it begins afresh."""
    files = files_of(config.data.marks)
    if not files or (not fresh and run.exists() and files == files_of(run.config().data.marks)):
        return config, {}
    home, copies = run.path.resolve() / LEARNT, {}
    for file in map(Path, files):
        read_marks(file)  # one line if it is not there, or no marks
        name = file.name if file.parent == home else f"{file.stem}-{sha256(file)[:8]}{file.suffix}"
        copies[home / name] = file.read_bytes()
    data = config.data.model_copy(update={"marks": tuple(map(str, copies))})
    return config.model_copy(update={"data": data}), copies


def write_copies(copies: dict[Path, bytes]) -> None:
    for file, raw in copies.items():
        with whole(file) as temporary:
            temporary.write_bytes(raw)


def with_marks(data: Data, settled: Settled | None) -> Data:
    if settled is None or data.pool is None:
        return data
    pool, x = marked_pool(data.pool, settled, data.classes), data.pool.x
    taught, none = _taught(data.pool, settled), _foreign(data.pool, settled)
    T, val_out = data.labelled, data.val_out
    if taught:
        ids = np.array(list(taught), np.int64)
        y = np.array([data.classes.index(name) for name in taught.values()], np.int64)
        T = Labelled(np.concatenate([T.x[:], x[ids].astype(T.x.dtype, copy=False)]), np.concatenate([T.y, y]))
    if len(none):
        rows = x[none]
        val_out = rows if val_out is None else np.concatenate([val_out[:], rows.astype(val_out.dtype, copy=False)])
    return replace(data, labelled=T, val_out=val_out, pool=pool)


def marked_pool(pool: Pool, settled: Settled, classes: Sequence[str]) -> Pool:
    """The pool without what has joined T or val_out, and with what is ruled out."""
    gone = [*_taught(pool, settled), *_foreign(pool, settled).tolist()]
    number = {name: c for c, name in enumerate(classes)}
    barred = [(j, number[name]) for j, name in settled.barred]
    return replace(
        pool,
        excluded=np.union1d(pool.excluded, np.array(gone, np.int64)),
        barred=np.array(barred, np.int64).reshape(-1, 2),
    )


def describe_marks(settled: Settled, pool: Pool) -> dict[str, Any]:
    """For run.json; `pool` is the one before the marks."""
    taught = _taught(pool, settled)
    relabelled = sum(mark.verdict == RELABELLED and mark.pool_id in taught for mark in settled.marks)
    foreign, there = len(_foreign(pool, settled)), _there(pool, settled)
    return {
        "images": len(settled.marks),
        "right": len(taught) - relabelled,
        "relabelled": relabelled,
        "none": foreign,
        "wrong": len({j for j, _ in settled.barred if j in there} - taught.keys()) - foreign,
        "disagreements": len(settled.disagreements),
        "hash": digest([[mark.to_json() for mark in settled.marks], settled.barred]),
    }


def _there(pool: Pool, settled: Settled) -> set[int]:
    ids = np.array([mark.pool_id for mark in settled.marks], np.int64)
    return set(np.setdiff1d(ids, pool.excluded).tolist())


def _taught(pool: Pool, settled: Settled) -> dict[int, str]:
    there = _there(pool, settled)
    return {mark.pool_id: mark.teaches for mark in settled.marks if mark.teaches and mark.pool_id in there}


def _foreign(pool: Pool, settled: Settled) -> np.ndarray:
    there = _there(pool, settled)
    return np.array([m.pool_id for m in settled.marks if m.verdict == NONE and m.pool_id in there], np.int64)
