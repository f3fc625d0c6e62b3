"""The files of one shard: its rows, their vectors, its part of the index, its part of the rejected. Whole together or not at all."""

import json
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from odst.data.features import feature_file
from odst.data.workers import Batch, Decoder, Record, Refusal
from odst.errors import refused
from odst.files import whole

HELD = 1024  # rows of the index that are in memory while a shard is written

INDEX = {"source": pa.string(), "hash": pa.string(), "width": pa.int32(), "height": pa.int32(), "label": pa.string()}
REJECTED = {"source": pa.string(), "reason": pa.string(), "detail": pa.string()}


def shard_file(number: int) -> str:
    return f"shards/{number:05d}.npy"


def index_file(building: Path, number: int) -> Path:
    return building / f"{number:05d}.index.parquet"


def rejected_file(building: Path, number: int) -> Path:
    return building / f"{number:05d}.rejected.parquet"


def read_note(file: Path) -> dict[str, Any]:
    with refused(str(file), "the note that it was", f"Delete {file.parents[1]} and begin anew."):
        return dict(json.loads(file.read_text(encoding="utf-8")))


class RowFile:
    """A .npy file that grows by rows."""

    def __init__(self, path: Path, dtype: np.dtype, row: tuple[int, ...]):
        self.path, self.dtype, self.row, self.length = path, dtype, row, 0

    def __enter__(self) -> "RowFile":
        self.file = open(self.path, "wb")
        self._header()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.file.seek(0)
            self._header()
        self.file.close()

    def _header(self) -> None:
        """numpy pads it so that the number of rows can grow in place."""
        fields = {"descr": self.dtype.str, "fortran_order": False, "shape": (self.length, *self.row)}
        np.lib.format.write_array_header_1_0(self.file, fields)

    def write(self, rows: np.ndarray) -> None:
        self.file.write(np.ascontiguousarray(rows).data)
        self.length += len(rows)


class Shard:
    """The files of one shard, written as rows come and whole only when all of them are."""

    def __init__(self, out: Path, number: int, decoder: Decoder):
        self.out, self.number, self.decoder = out, number, decoder
        self.length, self.last = 0, ""  # rows, and the URI of the last item, be it a row or rejected
        self.vectors: RowFile | None = None

    def __enter__(self) -> "Shard":
        self.stack = ExitStack()
        building = self.out / "building"
        rejected = self.stack.enter_context(whole(rejected_file(building, self.number)))
        index = self.stack.enter_context(whole(index_file(building, self.number)))
        rows = self.stack.enter_context(whole(self.out / shard_file(self.number)))
        self.rejected = self.stack.enter_context(_Table(rejected, REJECTED))
        self.index = self.stack.enter_context(_Table(index, INDEX))
        self.rows = self.stack.enter_context(RowFile(rows, self.decoder.dtype, self.decoder.row))
        if self.vector_file is not None:
            vectors = self.stack.enter_context(whole(self.vector_file))
            self.vectors = self.stack.enter_context(vector_rows(vectors, self.decoder))
        return self

    @property
    def vector_file(self) -> Path | None:
        embedder = self.decoder.embedder
        return None if embedder is None else feature_file(self.out, embedder.identity.slug, self.number)

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stack.__exit__(kind, error, trace)
        if kind is None and self.length == 0:
            (self.out / shard_file(self.number)).unlink()
            if self.vector_file is not None:
                self.vector_file.unlink()

    def write(self, batch: Batch) -> None:
        self.rows.write(batch.rows)
        if self.vectors is not None and batch.vectors is not None:
            self.vectors.write(batch.vectors)
        for record in batch.records:
            self.index.add(record.uri, record.hash, record.width, record.height, record.label)
        for refusal in batch.rejected:
            self.rejected.add(refusal.uri, refusal.reason, refusal.detail.encode("utf-8", "backslashreplace").decode())
        self.length += len(batch.records)
        ends: list[Record | Refusal] = [*batch.records[-1:], *batch.rejected[-1:]]
        self.last = max(ends, key=lambda one: one.place).uri


def vector_rows(path: Path, decoder: Decoder) -> RowFile:
    assert decoder.embedder is not None
    return RowFile(path, np.dtype(np.float16), (decoder.embedder.identity.dimension,))


def table_writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """To look for repeats in sources and hashes, which have none, would take as long again as to write them."""
    ids = {"id": "DELTA_BINARY_PACKED"} if "id" in schema.names else None
    repeated = [name for name in schema.names if name not in ("id", "source", "hash")]
    return pq.ParquetWriter(
        path,
        schema,
        compression="zstd",
        use_dictionary=repeated,
        column_encoding=ids,
        write_statistics=[*repeated, *(ids or ())],
    )


class _Table:
    """Rows of a parquet file, handed on in groups so that few are held."""

    def __init__(self, path: Path, columns: dict[str, pa.DataType]):
        self.schema = pa.schema(list(columns.items()))
        self.writer = table_writer(path, self.schema)
        self.rows: list[tuple[Any, ...]] = []

    def __enter__(self) -> "_Table":
        return self

    def add(self, *row: Any) -> None:
        self.rows.append(row)
        if len(self.rows) == HELD:
            self._flush()

    def _flush(self) -> None:
        if self.rows:
            arrays = [
                pa.array(c, kind) for c, kind in zip(zip(*self.rows, strict=True), self.schema.types, strict=True)
            ]
            self.writer.write_table(pa.table(arrays, schema=self.schema))
            self.rows.clear()

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self._flush()
        self.writer.close()
