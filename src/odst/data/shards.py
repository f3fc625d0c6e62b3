"""The files of one shard: its rows, its part of the index, its part of the rejected. Whole together or not at all."""

from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from odst.data.workers import Batch, Decoder, Record, Refusal
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


class Shard:
    """The three files of one shard, written as rows come and whole only when all of them are."""

    def __init__(self, out: Path, number: int, decoder: Decoder, shard_rows: int):
        self.out, self.number, self.decoder, self.shard_rows = out, number, decoder, shard_rows
        self.length, self.last = 0, ""  # rows, and the URI of the last item, be it a row or rejected

    def __enter__(self) -> "Shard":
        self.stack = ExitStack()
        building = self.out / "building"
        rejected = self.stack.enter_context(whole(rejected_file(building, self.number)))
        index = self.stack.enter_context(whole(index_file(building, self.number)))
        rows = self.stack.enter_context(whole(self.out / shard_file(self.number)))
        self.rejected = self.stack.enter_context(_Table(rejected, REJECTED))
        self.index = self.stack.enter_context(_Table(index, INDEX))
        self.rows = self.stack.enter_context(open(rows, "wb"))
        self._header()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.rows.seek(0)
            self._header()
        self.stack.__exit__(kind, error, trace)
        if kind is None and self.length == 0:
            (self.out / shard_file(self.number)).unlink()

    def _header(self) -> None:
        """numpy pads it so that the number of rows can grow in place."""
        shape = (self.length, *self.decoder.row)
        fields = {"descr": self.decoder.dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self.rows, fields)

    def write(self, batch: Batch) -> None:
        self.rows.write(np.ascontiguousarray(batch.rows).data)
        for record in batch.records:
            self.index.add(record.uri, record.hash, record.width, record.height, record.label)
        for refusal in batch.rejected:
            self.rejected.add(refusal.uri, refusal.reason, refusal.detail.encode("utf-8", "backslashreplace").decode())
        self.length += len(batch.records)
        ends: list[Record | Refusal] = [*batch.records[-1:], *batch.rejected[-1:]]
        self.last = max(ends, key=lambda one: one.place).uri


class _Table:
    """Rows of a parquet file, handed on in groups so that few are held."""

    def __init__(self, path: Path, columns: dict[str, pa.DataType]):
        self.schema = pa.schema(list(columns.items()))
        self.writer = pq.ParquetWriter(path, self.schema, compression="zstd")
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
