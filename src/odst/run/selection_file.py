"""selection.parquet, both ways: what a teacher selected and why, written with its round and read by reports; and a selection
from a file applied to another copy of the pool, found by content hash, or by pool id where there is none."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from odst.data.images import Data, is_counted
from odst.data.sets import class_numbers
from odst.errors import UserError
from odst.files import whole
from odst.method.selection import GIVEN, Selection
from odst.progress import stage

SELECTION = pa.schema(
    {
        "pool_id": pa.int64(),
        "source": pa.string(),
        "content_hash": pa.string(),
        "class": pa.string(),
        "log_odds": pa.float64(),
        "probability": pa.float64(),
        "threshold": pa.float64(),
        "repeats": pa.int64(),
        "reason": pa.string(),
        "model_hash": pa.string(),
    }
)


class Teacher(NamedTuple):
    """Who selected: what a selection records of it."""

    round: int
    model_hash: str
    tau: np.ndarray  # (K,) log-odds


def write_selection(file: Path, I: Selection, data: Data, teacher: Teacher | None) -> None:
    """selection.parquet: what was selected and why, so that it can be re-applied to another copy of the pool. `repeats` is how
    often the image stands in I; `threshold` is the teacher's, in log-odds like `log_odds`."""
    assert data.pool is not None
    names = np.array(data.classes, dtype=object)
    tau = np.full(data.K, np.nan) if teacher is None else teacher.tau if I.tau is None else I.tau
    reasons = np.array([stop.split(":")[0] for stop in I.stop], dtype=object)
    why = {
        "full": "among the k most confident above the threshold"
        if I.pick == "top"
        else "drawn, one of k, from those above the threshold",
        "short": "above the threshold",
        "given": "given in a file",
    }
    columns = [
        I.ids,
        list(data.pool.source(I.ids)),
        list(data.pool.content_hash(I.ids)),
        list(names[I.classes]),
        I.log_odds,
        1 / (1 + np.exp(-I.log_odds)),
        tau[I.classes],
        I.copies,
        [why[reason] for reason in reasons[I.classes]],
        [None if teacher is None else teacher.model_hash] * len(I),
    ]
    table = pa.Table.from_arrays(
        [pa.array(c, type=f.type) for c, f in zip(columns, SELECTION, strict=True)], schema=SELECTION
    )
    with whole(file) as temporary:
        pq.write_table(table, temporary)


class Chosen(NamedTuple):
    """A selection as one class sees it."""

    ids: np.ndarray
    odds: np.ndarray
    copies: np.ndarray


def read_table(file: Path, *, every: bool = False) -> pa.Table:
    """What pages show of a selection; without the texts, which are long, unless every column is asked for."""
    columns = ["pool_id", "content_hash", "class", "log_odds", "repeats"]
    return pq.read_table(file, columns=None if every else columns)


def of_class(table: pa.Table, name: str) -> Chosen:
    own = table.filter(pc.equal(table["class"], name))
    return Chosen(*(own[key].to_numpy() for key in ("pool_id", "log_odds", "repeats")))


def read_selection(file: Path, data: Data) -> Selection:
    """I and its labels out of a selection.parquet: `class` with `content_hash` or `pool_id`, and `repeats` where given."""
    if data.pool is None:
        raise UserError(f"{file}: a given selection needs the pool it was made from. Set data.pool.")
    try:
        table = pq.read_table(file)
    except (OSError, pa.ArrowInvalid) as error:
        raise UserError(f"{file}: not a readable parquet file ({error}). Give a selection.parquet of a run.") from None
    names = set(table.column_names)
    if "class" not in names or not names & {"content_hash", "pool_id"}:
        raise UserError(
            f"{file}: a selection has the columns class and content_hash (or pool_id), got {', '.join(sorted(names))}."
        )
    labels = [str(label) for label in table.column("class").to_pylist()]
    classes = class_numbers(str(file), labels, data.classes, advice="Use the labelled set's class names.")
    copies = _integers(file, table, "repeats") if "repeats" in names else np.ones(len(labels), np.int64)
    if (copies < 1).any():
        raise UserError(f"{file}: repeats is at least 1, got {copies.min()}. Take images that are not used out of it.")
    ids = _integers(file, table, "pool_id") if "pool_id" in names else None
    if is_counted(data.pool.x):  # still to be packed: which images they are is seen then
        ids = np.arange(len(labels))
    elif "content_hash" in names:
        ids = _find(table.column("content_hash").to_pylist(), ids, data, file)
    assert ids is not None
    if len(ids) and (ids.min() < 0 or ids.max() >= len(data.pool)):
        raise UserError(
            f"{file}: pool id {ids.max()} lies outside the pool of {len(data.pool)} images. It was made from another pool."
        )
    if len(np.unique(ids)) != len(ids):
        raise UserError(f"{file}: a pool image stands in it twice. Use the column repeats for copies.")
    gone = np.intersect1d(ids, data.pool.excluded)
    if len(gone):
        raise UserError(
            f"{file}: {len(gone)} of its images are excluded from this pool, the first with id {gone[0]}. "
            "Take them out of the selection, or out of the exclusion list."
        )
    used = np.bincount(classes, minlength=data.K)
    return Selection(
        ids=ids,
        classes=classes,
        log_odds=np.full(len(ids), np.inf),
        copies=copies,
        above=used,
        stop=(GIVEN,) * data.K,
        k=int(used.max(initial=0)),
        hard=True,
    )


def _find(hashes: list[str], ids: np.ndarray | None, data: Data, file: Path, block: int = 65536) -> np.ndarray:
    """The pool ids of these content hashes: as noted where the hash agrees, else by a scan of the pool."""
    pool = data.pool
    assert pool is not None
    if (
        ids is not None
        and len(ids)
        and ids.min() >= 0
        and ids.max() < len(pool)
        and list(pool.content_hash(ids)) == hashes
    ):
        return ids
    wanted: dict[str, list[int]] = {hash_: [] for hash_ in hashes}
    with stage("find selection", len(pool), "images") as advance:
        for start in range(0, len(pool), block):
            rows = np.arange(start, min(start + block, len(pool)))
            for row, hash_ in zip(rows, pool.content_hash(rows), strict=True):
                if hash_ in wanted:
                    wanted[hash_].append(int(row))
            advance(len(rows))
    # an image that stands twice in the pool may stand twice in the selection: each takes the next row
    found = np.array([wanted[hash_].pop(0) if wanted[hash_] else -1 for hash_ in hashes], np.int64)
    missing = int((found < 0).sum())
    if missing:
        raise UserError(
            f"{file}: {missing} of its {len(hashes)} images are not in this pool. Build the pool from the same images."
        )
    return found


def _integers(file: Path, table: pa.Table, column: str) -> np.ndarray:
    try:
        return table.column(column).cast(pa.int64()).to_numpy(zero_copy_only=False).astype(np.int64, casting="safe")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TypeError, ValueError):
        raise UserError(
            f"{file}: the column {column} holds what is no whole number. Give one for every image."
        ) from None
