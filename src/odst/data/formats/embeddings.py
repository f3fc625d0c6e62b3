"""Vectors that somebody has made already: a column of a parquet table, clip-retrieval's folders, a .npy beside a list.

The URI of a vector is that of its picture wherever a column says so: pages can then show what can be read.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from odst.data.formats.arrays import ArraySource, Rows, map_npy
from odst.data.formats.tables import (
    DAMAGED,
    LABELS,
    PATHS,
    PictureTable,
    choose,
    holds_pictures,
    plain_columns,
    read_schema,
    table_columns,
    table_rows,
)
from odst.data.items import file_uri, label_text
from odst.errors import UserError, refused

VECTORS = ("embedding", "embeddings", "features", "feature", "vector", "emb")
PICTURE_PATHS = (*PATHS, "image_path", "url")
LISTS = (".csv", ".tsv", ".parquet", ".txt")


def open_vector_table(path: Path, query: dict[str, str]) -> "VectorTable | None":
    """The table's vectors if they are asked for (`?features=embedding`) or all it has; None for other tables."""
    schema = read_schema(path)
    inside = [field.name for field in schema if _holds_vectors(field.type)]
    asked = query.get("features")
    if asked is not None and asked not in inside:
        there = f"Columns with vectors: {', '.join(inside) or 'none'}." if asked in schema.names else ""
        said = there or f"Its columns are {', '.join(schema.names)}."
        raise UserError(f"{path}: there is no features column {asked!r}. {said}")
    if asked is None:
        if len(inside) != 1 or inside[0] not in VECTORS or any(holds_pictures(field.type) for field in schema):
            return None
        asked = inside[0]
    return VectorTable(path, schema, asked, query)


def _holds_vectors(kind: pa.DataType) -> bool:
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return lists and pa.types.is_floating(kind.value_type)


class VectorTable(PictureTable):
    """Parquet with a column of lists of numbers, all of one length. Double precision becomes single."""

    def __init__(self, path: Path, schema: pa.Schema, column: str, query: dict[str, str]):
        query = {key: value for key, value in query.items() if key != "features"}
        self.picture = choose(str(path), "path", plain_columns(schema), PICTURE_PATHS, query.pop("path", None))
        super().__init__(path, schema, column, query)
        kind = schema.field(column).type
        self.features = np.dtype(np.float16 if pa.types.is_float16(kind.value_type) else np.float32)
        self.width = kind.list_size if pa.types.is_fixed_size_list(kind) else self._length()
        if self.width == 0:
            raise UserError(f"{path}: the lists of column {column!r} are empty.")

    def _length(self) -> int:
        """Of the first list."""
        with refused(str(self.path), *DAMAGED), pq.ParquetFile(self.path) as file:
            for batch in file.iter_batches(1024, columns=[self.pictures]):
                if len(lengths := pc.list_value_length(batch.column(0)).drop_null()):
                    return lengths[0].as_py()
        raise UserError(f"{self.path}: column {self.pictures!r} holds no list. Write the vectors again.")

    def _columns(self) -> list[str]:
        return super()._columns() + ([self.picture] if self.picture else [])

    def _part(self, batch: pa.RecordBatch, rows: np.ndarray) -> Rows:  # type: ignore[override]
        column = batch.column(self.pictures)
        assert self.width is not None and self.features is not None
        lengths = np.array(pc.fill_null(pc.list_value_length(column), self.width))
        if len(wrong := np.flatnonzero(lengths != self.width)):
            j = wrong[0]
            raise UserError(
                f"{self.path}: column {self.pictures!r} has {lengths[j]} numbers in row {rows[j]} and {self.width} in the "
                "first. Vectors of two lengths are of two encoders: split the table."
            )
        vectors = np.zeros((len(rows), self.width), self.features)
        there = np.array(pc.is_valid(column))
        with np.errstate(over="ignore"):
            vectors[there] = column.flatten().to_numpy(zero_copy_only=False).reshape(-1, self.width)
        names: Sequence[str] = [f"{file_uri(self.path)}#row={j}" for j in rows.tolist()]
        if self.picture:
            paths = batch.column(self.picture).to_pylist()
            names = [
                name if path is None else _uri(self.path.parent, path) for name, path in zip(names, paths, strict=True)
            ]
        labels = [self._name(value) for value in batch.column(self.label).to_pylist()] if self.label else None
        return Rows(vectors, rows, names, labels, ~there)


def _uri(root: Path, path: object) -> str:
    """Of a picture: a URI as it is, a path relative to the list."""
    return str(path) if "://" in str(path) else file_uri(root.absolute() / str(path))


def open_listed(path: Path, table: Path, query: dict[str, str], root: Path | None = None) -> ArraySource:
    """Rows of a .npy whose pictures and labels stand, one a row, in a table or (.txt) one path a line."""
    array = map_npy(path)
    if not table.is_file():
        raise UserError(f"{table}: there is no such file.")
    columns = table_columns(table)
    picture = choose(str(table), "path", columns, PICTURE_PATHS, query.get("path"))
    label = choose(str(table), "label", columns, LABELS, query.get("label"))
    wanted = [column for column in (picture, label) if column is not None]
    if not wanted:
        raise UserError(f"{table}: no column of paths or labels. Its columns are {', '.join(columns)}: name one.")
    first = _Column(table, wanted[0])
    if (count := first.count()) != len(array):
        raise UserError(f"{table}: {count:,} rows, but {path} has {len(array):,}. Give one line per vector.")
    sources = _Pictures(first, root or table.parent, file_uri(path)) if picture else None
    labels = _Labels(_Column(table, label)) if label else None
    return ArraySource(path, array, sources=sources, labels=labels, reopen=partial(map_npy, path))


class _Column:
    """One column of a list, read when it is asked for. Only a few are held: clip-retrieval's lists are many and long."""

    def __init__(self, table: Path, name: str):
        self.key = (table.absolute(), name, table.stat().st_mtime_ns)

    def count(self) -> int:
        table = self.key[0]
        if table.suffix.lower() == ".parquet":
            with refused(str(table), *DAMAGED):
                return pq.read_metadata(table).num_rows
        return len(_values(*self.key))

    def __getitem__(self, rows: np.ndarray) -> list[Any]:
        with refused(str(self.key[0]), *DAMAGED):
            return [_text(value) for value in _values(*self.key).take(pa.array(rows)).to_pylist()]


@lru_cache(maxsize=4)
def _values(table: Path, name: str, changed: int) -> pa.ChunkedArray | pa.Array:
    if table.suffix.lower() == ".parquet":
        return pq.read_table(table, columns=[name])[name]
    # as bytes: a file's name need not be text
    texts = (row[name] for row in table_rows(table, [name]))
    return pa.array([(text or "").encode("utf-8", "surrogateescape") for text in texts], pa.large_binary())


def _text(value: Any) -> Any:
    return value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value


@dataclass(frozen=True)
class _Pictures:
    """The URI of each row's picture, or of the row where the list says nothing."""

    paths: _Column
    root: Path
    uri: str

    def __getitem__(self, rows: np.ndarray) -> list[str]:
        named = zip(rows.tolist(), self.paths[rows], strict=True)
        return [_uri(self.root, path) if path else f"{self.uri}#row={j}" for j, path in named]


@dataclass(frozen=True)
class _Labels:
    column: _Column

    def __getitem__(self, rows: np.ndarray) -> list[Any]:
        return [None if value in (None, "") else label_text(value) for value in self.column[rows]]


def open_clip_retrieval(folder: Path, query: dict[str, str]) -> list[ArraySource]:
    """img_emb/img_emb_0.npy beside metadata/metadata_0.parquet, and so on; files are paired by the number in their names."""
    vectors, tables = (
        _numbered(folder / name, pattern) for name, pattern in (("img_emb", "*.npy"), ("metadata", "*.parquet"))
    )
    if alone := sorted(vectors.keys() ^ tables.keys()):
        lost = vectors.get(alone[0]) or tables[alone[0]]
        what = "table in metadata/" if alone[0] in vectors else "vectors in img_emb/"
        raise UserError(
            f"{folder}: {lost.name} has no {what} ({len(alone)} such). clip-retrieval writes one of each number: fetch what is "
            "missing, or move the file away."
        )
    if not vectors:
        raise UserError(f"{folder}: img_emb holds no NAME_0.npy. clip-retrieval writes one of each number.")
    return [open_listed(vectors[n], tables[n], query, folder) for n in sorted(vectors)]


def _numbered(folder: Path, pattern: str) -> dict[int, Path]:
    """Files by the last number in their names. One that has none, or another's, would be left out in silence."""
    found: dict[int, Path] = {}
    for file in sorted(folder.glob(pattern)):
        numbers = re.findall(r"\d+", file.stem)
        other = found.get(int(numbers[-1])) if numbers else None
        if not numbers or other is not None:
            what = "has no number" if other is None else f"and {other.name} have one number"
            raise UserError(f"{folder}: {file.name} {what}. clip-retrieval pairs files by it: rename or move it away.")
        found[int(numbers[-1])] = file
    return found


def is_clip_retrieval(path: Path) -> bool:
    return (path / "img_emb").is_dir() and (path / "metadata").is_dir()
