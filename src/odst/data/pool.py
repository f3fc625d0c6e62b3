"""The packed pool: raw uint8 shards that memory-map, an index of where each row came from, and what was rejected.

    POOL/manifest.json      format, row shape, and the length and SHA-256 of every shard
    POOL/shards/00000.npy   rows, in the order of the pool ids
    POOL/index.parquet      id, source, hash, width, height, label
    POOL/rejected.parquet   source, reason, detail
    POOL/features           vectors of encoders, row by row beside the shards (features.py)
    POOL/excluded.parquet   pool ids that are in the pool no more (the leak guard leaves it), in a column pool_id
    POOL/.dedup             what the leak guard has so far, until its list is whole
    POOL/.checked.json      size and time of the files when their hashes were last found right (unchanged.py)

A joined pool has only a manifest that names other packed pools; their rows follow each other and nothing is copied.
"""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from odst.data.decoding import Fit
from odst.data.exclusions import check_finished, check_numbering, read_ids
from odst.data.images import Images, Pool
from odst.data.mapped import Mapped
from odst.data.remote import elsewhere, here
from odst.data.unchanged import check_unchanged, compare_files, note_checked
from odst.data.views import Concatenated
from odst.engine.interface import share
from odst.errors import UserError
from odst.files import digest, write_json

FORMAT = 1
SEAL = "digest"  # of the rest of manifest.json
AGAIN = "Restore it, or build the pool again."


def is_packed(path: Path) -> bool:
    return (path / "manifest.json").is_file() or (path / "building").is_dir()


def read_manifest(path: Path) -> dict[str, Any]:
    if not (path / "manifest.json").is_file():
        if (path / "building").is_dir():
            raise UserError(
                f"{path}: this pool is not finished. Give the same `odst pool build` command again: it goes on."
            )
        raise UserError(f"{path}: this is no packed pool. Make one with `odst pool build SOURCE... --out {path}`.")
    try:
        manifest: dict[str, Any] = json.loads((path / "manifest.json").read_text(encoding="utf-8"))
        known = manifest["format"] == FORMAT
        whole = known and {"dtype", "row", "count"} <= manifest.keys() and bool({"shards", "pools"} & manifest.keys())
        seal = manifest.pop(SEAL, None)  # an older odst made none
        whole = whole and seal in (None, digest(manifest)) and manifest["count"] == _rows(manifest)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        known, whole = True, False
    if not known:
        raise UserError(
            f"{path}: pool format {manifest['format']} is not the {FORMAT} known here. Update odst or pack it again."
        )
    if not whole:
        raise UserError(f"{path}/manifest.json: it is damaged. Restore it, or build the pool again.")
    return manifest


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """The last file of a pool: with it the pool is whole."""
    write_json(path / "manifest.json", manifest | {SEAL: digest(manifest)})


def _rows(manifest: dict[str, Any]) -> int:
    held = [part["count"] for part in manifest["pools"]] if "pools" in manifest else None
    return sum(held if held is not None else [shard["length"] for shard in manifest["shards"]])


def identity(manifest: dict[str, Any]) -> str:
    """A hash of what the pool holds, wherever it lies and however it was packed."""
    held = (
        [part["identity"] for part in manifest["pools"]]
        if "pools" in manifest
        else [s["sha256"] for s in manifest["shards"]]
    )
    return digest([manifest["format"], manifest["dtype"], manifest["row"], held])


@dataclass(frozen=True)
class Shard:
    """One shard of a pool, or of a pool that it joins."""

    file: Path
    length: int
    sha256: str


def open_pool(
    path: str | os.PathLike[str], excluded: Iterable[str | os.PathLike[str]] = (), *, every: bool = False
) -> Pool:
    """Memory-mapped; a few bytes of memory per shard. `excluded` are more lists of ids that leave the pool.

    `every` is for the leak guard, which looks at all images, whatever an earlier pass has left in the pool.
    """
    path = Path(path)
    manifest = read_manifest(path)
    check_files(path, manifest)
    x = Concatenated([_map(shard, manifest) for shard in shards(path, manifest)], partial(pool_rows, elsewhere(path)))
    columns = indexes(path, manifest)
    lists = [] if every else list(_excluded(path, manifest))
    for file in map(Path, excluded):
        check_finished(file.parent)
        check_numbering(file, path, manifest)
        lists.append(read_ids(file, len(x), identity(manifest)))
    gone = np.concatenate([np.empty(0, np.int64), *lists])
    return Pool(x, gone, Column(columns, "source"), Column(columns, "hash"), identity=identity(manifest))


def pool_rows(place: Path | str) -> Images:
    """All rows of a pool and nothing else."""
    return open_pool(here(place), every=True).x


def check_files(path: Path, manifest: dict[str, Any]) -> None:
    """Raise one line if a file of the pool, or of one that it joins, is missing or not what it was."""
    for member, below in members(path, manifest):
        check_files(member, below)
    check_unchanged(path, _hashes(manifest), AGAIN)


def _hashes(manifest: dict[str, Any]) -> dict[str, str]:
    """By name, of the files that lie in the pool's own folder."""
    files: dict[str, str] = manifest.get("files", {})
    return {shard["file"]: shard["sha256"] for shard in manifest.get("shards", ())} | files


def open_labels(path: Path) -> "Column":
    """The class each pool image had in its source, or None. For scoring, and for reading a pool as a set."""
    return Column(indexes(path, read_manifest(path)), "label")


def leaves(path: Path, manifest: dict[str, Any]) -> Iterable[tuple[Path, dict[str, Any]]]:
    """The pools that hold the rows: this one, or those it joins, down to the last."""
    if "pools" not in manifest:
        yield path, manifest
    for member, below in members(path, manifest):
        yield from leaves(member, below)


def shards(path: Path, manifest: dict[str, Any]) -> list[Shard]:
    return [
        Shard(leaf / shard["file"], shard["length"], shard["sha256"])
        for leaf, below in leaves(path, manifest)
        for shard in below["shards"]
    ]


def indexes(path: Path, manifest: dict[str, Any]) -> list[tuple[Path, int]]:
    return [(leaf / "index.parquet", below["count"]) for leaf, below in leaves(path, manifest)]


def members(path: Path, manifest: dict[str, Any]) -> Iterable[tuple[Path, dict[str, Any]]]:
    """The pools that a joined pool names, checked to be what they were."""
    for part in manifest.get("pools", ()):
        member = path / part["path"]
        below = read_manifest(member)
        if identity(below) != part["identity"]:
            raise UserError(f"{member}: this pool has changed since {path} joined it. Join again under a new name.")
        yield member, below


def packed_fits(path: Path, manifest: dict[str, Any]) -> set[Fit]:
    """How the pictures of a pool, or of the pools it joins, became square."""
    return {below["order"]["fit"] for _, below in leaves(path, manifest) if "order" in below}


def _excluded(path: Path, manifest: dict[str, Any]) -> Iterable[np.ndarray]:
    check_finished(path)
    for name in ("excluded.parquet", "duplicates.parquet"):
        if (path / name).is_file():
            yield read_ids(path / name, manifest["count"], identity(manifest))
    first = 0
    for member, below in members(path, manifest):
        yield from (ids + first for ids in _excluded(member, below))
        first += below["count"]


def _map(shard: Shard, manifest: dict[str, Any]) -> Mapped:
    array = Mapped(shard.file, AGAIN)
    if array.shape != (shard.length, *manifest["row"]) or array.dtype != manifest["dtype"]:
        raise UserError(
            f"{shard.file}: {array.dtype} {array.shape} but the manifest says {manifest['dtype']} "
            f"{(shard.length, *manifest['row'])}. {AGAIN}"
        )
    return array


class Column:
    """One text column of the index, read for the rows asked for and never held."""

    def __init__(self, files: Sequence[tuple[Path, int]], name: str):
        self.files, self.name = files, name

    def __getitem__(self, rows: np.ndarray) -> list[str]:
        rows = np.asarray(rows)
        out: list[str] = [""] * len(rows)
        order = np.argsort(rows, kind="stable")
        ranked = rows[order]
        first = 0
        for file, count in self.files:
            low, high = np.searchsorted(ranked, [first, first + count])
            if low < high:
                self._fill(file, ranked[low:high] - first, order[low:high].tolist(), out)
            first += count
        return out

    def _fill(self, file: Path, rows: np.ndarray, places: list[int], out: list[str]) -> None:
        """`rows` ascend; each row group that holds some of them is read once."""
        with open_table(file) as table:
            first = 0
            for group in range(table.metadata.num_row_groups):
                count = table.metadata.row_group(group).num_rows
                low, high = np.searchsorted(rows, [first, first + count])
                if low < high:
                    column = table.read_row_group(group, columns=[self.name]).column(0)
                    for i, text in zip(
                        range(low, high), column.take(pa.array(rows[low:high] - first)).to_pylist(), strict=True
                    ):
                        out[places[i]] = text
                first += count


@contextmanager
def open_table(file: Path) -> Iterator[pq.ParquetFile]:
    """An index, or one line if it is gone or damaged by now."""
    try:
        with pq.ParquetFile(file) as table:
            yield table
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{file}: this file is missing. {AGAIN}") from None
    except (pa.ArrowException, KeyError, OSError) as error:
        raise UserError(f"{file}: this file is damaged ({error}). {AGAIN}") from None


def original_sizes(path: Path, most: int = 5) -> list[tuple[str, int]]:
    """The commonest width×height before packing, and how many had another."""
    counts: Counter[tuple[int, int]] = Counter()
    for index, _ in indexes(path, read_manifest(path)):
        with open_table(index) as table:
            for batch in table.iter_batches(65536, columns=["width", "height"]):
                pairs, found = np.unique(np.stack([c.to_numpy() for c in batch.columns]), axis=1, return_counts=True)
                counts.update({(int(w), int(h)): int(n) for w, h, n in zip(*pairs, found, strict=True)})
    common = [(f"{width}×{height}", n) for (width, height), n in counts.most_common(most)]
    rest = counts.total() - sum(n for _, n in common)
    return common + ([(f"{len(counts) - most} other sizes", rest)] if rest else [])


def verify_pool(path: Path) -> None:
    """Read everything again and compare with the manifest's hashes; raise one line that names what differs."""
    path = Path(path)
    manifest = read_manifest(path)
    for member, _ in members(path, manifest):
        verify_pool(member)
    hashes = _hashes(manifest)
    checks = [(path / name, expected) for name, expected in hashes.items()]
    wrong = [f"{file.relative_to(path)} {what}" for file, what in compare_files(f"verify {path.name}", checks)]
    if wrong:
        raise UserError(f"{path}: {'; '.join(wrong)}. Restore these files or build the pool again.")
    if share() is None:
        note_checked(path, list(hashes))


def hash_heads(hashes: Sequence[str]) -> np.ndarray:
    """The first 64 of their 128 bits: among 10^8 images two different ones agree with a chance of 1 in 3,000."""
    return np.frombuffer(bytes.fromhex("".join(text[:16] for text in hashes)), ">u8").astype(np.uint64)
