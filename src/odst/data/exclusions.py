"""Lists of pool ids that leave a pool: those that odst writes, one's own tables, and the published ones."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from odst.errors import UserError, refused
from odst.files import sha256

ZERO_BASED = {
    *("80mn_cifar10_test_idxs.txt", "80mn_cifar100_test_idxs.txt", "80mn_cifar101_idxs.txt"),
    *("80mn_cifar10_train_idxs.txt", "80mn_cifar100_train_idxs.txt"),
}
IDENTITY = "pool_identity"  # a column of CSV lists: the pool that a line's id is of
ONE_BASED = {"80mn_cifar_idxs.txt"}  # Hendrycks counts from 1, the paper's authors from 0


def read_ids(path: Path, m: int, pool: str | None = None, base: int | None = None) -> np.ndarray:
    """Sorted pool ids from a parquet or CSV table with a column `pool_id`, or from a plain list, one a line.

    `pool` is the pool's identity: a list that odst wrote says which pool it was made for. `base` is of plain lists.
    """
    if not path.is_file():
        raise UserError(f"{path}: there is no such list of pool ids.")
    if path.suffix not in (".parquet", ".csv", ".tsv"):
        return read_exclusions(path, m, base)
    if path.suffix == ".parquet":
        with refused(str(path), "a readable parquet file with a column `pool_id`", "Name the column so."):
            table = pq.read_table(path, columns=["pool_id"])
            values = table["pool_id"].to_pylist()
            made_for = {(table.schema.metadata or {}).get(b"odst.pool", b"").decode("utf-8", "replace")}
        maker = "odst dedup"
    else:
        with (
            refused(str(path), "a readable table with a column `pool_id`", "Name the column so."),
            open(path, encoding="utf-8-sig", errors="replace", newline="") as file,
        ):
            rows = list(csv.DictReader(file, delimiter="\t" if path.suffix == ".tsv" else ","))
            values = [_number(row["pool_id"]) for row in rows]
            made_for = {row.get(IDENTITY) or "" for row in rows}  # line by line: a person may move them to another list
        maker = "odst init"
    if (bad := next((value for value in values if not _is_id(value)), values)) is not values:
        raise UserError(
            f"{path}: a pool id is a whole number from 0 on, and the column `pool_id` holds {str(bad)[:40]!r}. Mend the list."
        )
    largest = max(values, default=-1)
    if pool and (others := made_for - {"", pool}):
        raise UserError(
            f"{path}: `{maker}` made this list for another pool or an earlier state of it ({min(others)[:12]}, now "
            f"{pool[:12]}), so its ids name other images. Run `{maker}` on this pool"
            f"{', with --fresh if it has changed' if maker == 'odst dedup' else ' again, with a new --out'}."
        )
    if largest >= m:
        raise UserError(
            f"{path}: pool id {str(int(largest))[:40]} is outside a pool of {m} images. This list belongs to another pool."
        )
    return np.unique(np.array(values, np.int64))


def _number(text: str | None) -> int | str | None:
    """The whole number that a cell of a text is; anything else as it is, to be shown."""
    return int(text) if text is not None and re.fullmatch(r"\s*[0-9]{1,4000}\s*", text) else text


def _is_id(value: Any) -> bool:
    """Whole and not below 0. pandas makes a column with gaps one of floats; True and 0.5 are nobody's number."""
    whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    return whole and not isinstance(value, bool) and value >= 0


def read_exclusions(path: Path, m: int, base: int | None = None) -> np.ndarray:
    """Sorted pool ids from a published list of one index a line, counted from `base`; known lists know their own.

    m is the size of the pool: an index outside it means the wrong base or the wrong list, and is refused.
    """
    if base is None:
        if path.name not in ZERO_BASED | ONE_BASED:
            raise UserError(
                f"{path}: does this list count from 0 or from 1? Published lists are known by their names; give others "
                "as a .csv with a column pool_id, counted from 0, or to `odst dedup` with --list-base."
            )
        base = int(path.name in ONE_BASED)
    try:
        words = path.read_text().split()
        if (bad := next((word for word in words if not re.fullmatch(r"[+-]?[0-9]{1,4000}", word)), None)) is not None:
            raise ValueError(f"{bad[:40]!r} is none")  # int() and numpy take 1_0 for 10
        ids = np.array(words, dtype=np.int64) - base
    except (ValueError, OverflowError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: an exclusion list holds one whole number a line ({error}).") from None
    if len(ids) and (ids.min() < 0 or ids.max() >= m):
        wrong = ids.min() if ids.min() < 0 else ids.max()
        raise UserError(
            f"{path}: index {wrong + base} is outside a pool of {m} images when counted from {base}. "
            f"It counts from {1 - base}, or belongs to another pool."
        )
    return np.unique(ids)


def check_numbering(file: Path, pool: Path, manifest: dict[str, Any]) -> None:
    """A published list counts the images of tiny_images.bin; in a pool that has left some out, its numbers name others."""
    as_counted = "order" in manifest and manifest["order"]["items"] == manifest["count"]
    if file.name in ZERO_BASED | ONE_BASED and not as_counted:
        what = (
            "joins several pools" if "pools" in manifest else f"left {sum(manifest['rejected'].values()):,} of them out"
        )
        raise UserError(
            f"{file}: this list counts the images of tiny_images.bin, and {pool} {what}, so its ids are other images'. "
            "Give the list with a pool of that file alone, packed with --keep-duplicates."
        )


def check_finished(folder: Path) -> None:
    """Refuse the lists of a folder in which a pass of the leak guard was cut."""
    if (folder / ".dedup").is_dir():
        raise UserError(
            f"{folder}: a pass of `odst dedup` is not finished here, so what it would exclude is not known. Give its command "
            f"again, without --fresh: it goes on. Or delete {folder / '.dedup'} to give the pass up."
        )
    try:
        expected = json.loads((folder / "dedup.json").read_text(encoding="utf-8")).get("excluded_sha256")
    except (OSError, ValueError, AttributeError, RecursionError):
        return  # no pass was here, or one whose page is damaged: its list speaks for itself
    file = folder / "excluded.parquet"
    if expected and not (file.is_file() and sha256(file) == expected):
        raise UserError(
            f"{file}: `odst dedup` wrote this list, and it {'has changed' if file.is_file() else 'is missing'}. Restore it or run "
            f"`odst dedup --fresh`; if you did it on purpose, delete {folder / 'dedup.json'}."
        )
