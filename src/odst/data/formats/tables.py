"""Tables as sources: parquet that holds the pictures (Hugging Face's convention), and CSV, TSV or parquet lists of paths.

A question mark picks from a table: `set.parquet?split=val_in` keeps the rows whose `split` is val_in, and
`list.csv?path=file_name&label=species` names the columns to take.
"""

import csv
import io
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from odst.data.cells import plain
from odst.data.items import Encoded, Files, file_uri, label_text, portions
from odst.errors import UserError, refused

PATHS = ("path", "file", "file_name", "filename", "image", "uri", "source")
PICTURES = ("image", "img", "picture")
PART_BYTES = 4 << 20  # of encoded pictures that are sent to a decoding process at a time
DAMAGED = ("a readable parquet file", "Fetch or write it again.")
LABELS = ("label", "class", "fine_label", "category", "target")


def choose(name: str, what: str, columns: list[str], likely: tuple[str, ...], asked: str | None) -> str | None:
    """The column to take: the one asked for, or the first that has a likely name."""
    if asked is None:
        return next((column for column in likely if column in columns), None)
    if asked not in columns:
        raise UserError(f"{name}: there is no {what} column {asked!r}. Its columns are {', '.join(columns)}.")
    return asked


class PictureTable:
    """Parquet with a column of pictures: a struct of `bytes` and `path`, or plain binary."""

    features: np.dtype | None = None
    width: int | None = None

    def __init__(self, path: Path, schema: pa.Schema, pictures: str, query: dict[str, str]):
        self.name, self.path, self.pictures = str(path), path, pictures
        query = {key: value for key, value in query.items() if key != "image"}
        self.label = choose(str(path), "label", plain_columns(schema), LABELS, query.pop("label", None))
        self.where = query
        for column in query:
            choose(str(path), "filter", schema.names, (), column)
        self.names = class_names(schema, self.label) if self.label else None
        if self.count() == 0:
            wanted = " and ".join(f"{column}={value}" for column, value in query.items())
            raise UserError(
                f"{path}: no row has {wanted}. {self._values(query)}" if query else f"{path}: it has no rows."
            )

    def _values(self, query: dict[str, str]) -> str:
        with refused(str(self.path), *DAMAGED):
            found = pq.read_table(self.path, columns=list(query))
        values = {column: sorted(map(str, found[column].unique().to_pylist()))[:20] for column in query}
        return "; ".join(f"{column} is one of {', '.join(some)}" for column, some in values.items()) + "."

    def count(self) -> int:
        with refused(str(self.path), *DAMAGED), pq.ParquetFile(self.path) as file:
            return sum(len(self._rows(file, group)) for group in range(file.metadata.num_row_groups))

    def _rows(self, file: pq.ParquetFile, group: int) -> np.ndarray:
        """The numbers inside this row group of the rows wanted."""
        keep = np.ones(file.metadata.row_group(group).num_rows, bool)
        if self.where and len(keep):
            table = file.read_row_group(group, columns=list(self.where))
            for column, value in self.where.items():
                keep &= np.array([str(found) == value for found in table[column].to_pylist()])
        return np.flatnonzero(keep)

    def parts(self, start: int, most: int) -> Iterator[Encoded]:
        columns = list(dict.fromkeys(self._columns()))
        first = 0
        with refused(str(self.path), *DAMAGED), pq.ParquetFile(self.path, buffer_size=1 << 20) as file:
            for group in range(file.metadata.num_row_groups):
                rows = self._rows(file, group)
                skipped = min(start, len(rows))
                start -= skipped
                if skipped < len(rows):
                    wanted = np.zeros(file.metadata.row_group(group).num_rows, bool)
                    wanted[rows[skipped:]] = True
                    low = 0
                    few = self._few(file, group, most)
                    for batch in file.iter_batches(few, row_groups=[group], columns=columns):
                        inside = np.flatnonzero(wanted[low : low + len(batch)])
                        if len(inside):
                            yield self._part(batch.take(pa.array(inside)), first + low + inside)
                        low += len(batch)
                first += file.metadata.row_group(group).num_rows

    def _columns(self) -> list[str]:
        return [self.pictures] + ([self.label] if self.label else [])

    def _few(self, file: pq.ParquetFile, group: int, most: int) -> int:
        """Rows that are PART_BYTES on average: photographs of several megabytes come one or two at a time."""
        found = file.metadata.row_group(group)
        columns = [found.column(i) for i in range(found.num_columns)]
        heavy = sum(c.total_uncompressed_size for c in columns if c.path_in_schema.partition(".")[0] == self.pictures)
        return max(1, min(most, PART_BYTES * found.num_rows // max(heavy, 1)))

    def _part(self, batch: pa.RecordBatch, rows: np.ndarray) -> Encoded:
        pictures = batch.column(0)
        paths: list[str | None] = [None] * len(pictures)
        if pa.types.is_struct(pictures.type):
            if "path" in [field.name for field in pictures.type]:
                paths = [None if path is None else str(path) for path in pictures.field("path").to_pylist()]
            pictures = pictures.field("bytes")
        labels = None
        if self.label:
            labels = [self._name(value) for value in batch.column(1).to_pylist()]
        return Encoded(self.path, rows, pictures.to_pylist(), paths, labels)

    def _name(self, value: Any) -> str | None:
        if (
            value is None or value != value or (self.names is not None and value == -1)
        ):  # Hugging Face's mark for "no label"
            return None
        if self.names is None:
            return label_text(value)
        if not isinstance(value, int) or not 0 <= value < len(self.names):
            raise UserError(
                f"{self.path}: label {value!r} is none of the {len(self.names)} names in its metadata. Mend the file."
            )
        return self.names[value]


class PathList:
    """Paths in a CSV, TSV or parquet table, relative to the table's own folder, or file:// URIs."""

    features: np.dtype | None = None
    width: int | None = None

    def __init__(self, path: Path, query: dict[str, str]):
        self.name, self.path, query = str(path), path, dict(query)
        columns = table_columns(path)
        column = choose(str(path), "path", columns, PATHS, query.pop("path", None))
        if column is None:
            raise UserError(no_path_column(path, columns))
        self.column = column
        self.label = choose(str(path), "label", columns, LABELS, query.pop("label", None))
        self.where = query
        for key in query:
            choose(str(path), "filter", columns, (), key)
        if next(self._rows(), None) is None:
            raise UserError(f"{path}: no row in this list" + (f" has {query}." if query else "."))

    def count(self) -> int:
        return sum(1 for _ in self._rows())

    def parts(self, start: int, most: int) -> Iterator[Files]:
        root = self.path.parent.absolute()
        for rows in portions(self._rows(), start, most):
            yield Files(os.fsencode(root), file_uri(root), [(_path(path), label, "") for path, label in rows])

    def _rows(self) -> Iterator[tuple[str, str | None]]:
        for row in table_rows(self.path, self._columns()):
            if all(str(row[key]) == value for key, value in self.where.items()):
                label = row[self.label] if self.label else None
                yield str(row[self.column] or ""), None if label in (None, "") else label_text(label)

    def _columns(self) -> list[str]:
        return list(dict.fromkeys([self.column, *([self.label] if self.label else []), *self.where]))


def no_path_column(path: Path, columns: list[str]) -> str:
    likely = ", ".join(PATHS)
    if not columns:
        return f"{path}: neither pictures nor paths in this table: its columns are lists or records. Give a column of either."
    return f"{path}: no column of paths ({likely}). Its columns are {', '.join(columns)}: name one, as in {path.name}?path={columns[0]}"


def _path(text: str) -> bytes:
    if text.startswith("file://"):
        return unquote_to_bytes(text.removeprefix("file://").partition("#")[0])
    return text.encode("utf-8", "surrogateescape")


def table_columns(path: Path) -> list[str]:
    """Columns with one value a row; a .txt has one, its lines."""
    if path.suffix.lower() == ".txt":
        return ["path"]
    return plain_columns(read_schema(path)) if _is_parquet(path) else _header(path)


def table_rows(path: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    if path.suffix.lower() == ".txt":
        return _text_lines(path)
    return _parquet_rows(path, columns) if _is_parquet(path) else _text_rows(path)


def _text_lines(path: Path) -> Iterator[dict[str, str]]:
    with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
        for line in file:
            yield {"path": line.rstrip("\n")}


def _is_parquet(path: Path) -> bool:
    return path.suffix.lower() == ".parquet"


def _delimiter(path: Path) -> str:
    return "\t" if path.suffix.lower() == ".tsv" else ","


def _text_rows(path: Path) -> Iterator[dict[str, str]]:
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.DictReader(file, delimiter=_delimiter(path), restval="")
        try:
            yield from map(plain, reader)
        except csv.Error as error:
            raise UserError(f"{path}, line {reader.line_num}: {error}. Mend the line.") from None


def _header(path: Path) -> list[str]:
    with open(path, encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        columns = next(csv.reader(io.StringIO(file.readline()), delimiter=_delimiter(path)), None)
    if not columns:
        raise UserError(f"{path}: the list is empty. Its first line names the columns, e.g. path,label.")
    return columns


def _parquet_rows(path: Path, columns: list[str]) -> Iterator[dict[str, Any]]:
    with refused(str(path), *DAMAGED), pq.ParquetFile(path) as file:
        for batch in file.iter_batches(4096, columns=columns):
            yield from batch.to_pylist()


def read_schema(path: Path) -> pa.Schema:
    with refused(str(path), *DAMAGED):
        schema = pq.read_schema(path)
    if not schema.names:
        raise UserError(f"{path}: this table has no columns. Give one with a column `image` or `path`.")
    if twice := {name for name in schema.names if schema.names.count(name) > 1}:
        raise UserError(f"{path}: two of its columns are called {min(twice)!r}. Rename one.")
    return schema


def open_parquet(path: Path, query: dict[str, str]) -> PictureTable | PathList:
    """Decide by the columns: pictures inside, or paths."""
    schema = read_schema(path)
    inside = [field.name for field in schema if holds_pictures(field.type)]
    asked = query.get("image")
    if asked is not None and asked not in inside:
        raise UserError(
            f"{path}: there is no image column {asked!r}. Columns with images: {', '.join(inside) or 'none'}."
        )
    likely = [name for name in PICTURES if name in inside] or inside
    if not likely:
        return PathList(path, query)
    return PictureTable(path, schema, asked or likely[0], query)


def plain_columns(schema: pa.Schema) -> list[str]:
    """Columns with one value a row: boxes and tags, which come as lists, are no labels."""
    return [field.name for field in schema if not pa.types.is_nested(field.type)]


def holds_pictures(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(field.name == "bytes" and holds_pictures(field.type) for field in kind)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def class_names(schema: pa.Schema, column: str) -> list[str] | None:
    """The names of a ClassLabel column, from the schema metadata that Hugging Face's datasets write."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
        names = features[column]["names"]
    except (KeyError, TypeError, ValueError, RecursionError):
        return None
    texts = isinstance(names, list) and all(isinstance(name, str | int) for name in names)
    return [label_text(name) for name in names] if texts else None
