"""Predictions as they are written: CSV to the terminal or a file, parquet to a file, row by row."""

import csv as csv_module
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from odst.classifier.load import Answer
from odst.files import whole

COLUMNS = ("source", "class", "confidence", "nearest", "reason")
SCHEMA = pa.schema([(name, pa.float64() if name == "confidence" else pa.string()) for name in COLUMNS])


def write_answers(blocks: Iterable[list[Answer]], csv: Path | None, parquet: Path | None) -> Iterator[list[Answer]]:
    """Pass the blocks on as they are written. The files appear when all are."""
    with ExitStack() as stack:
        tables: list[Any] = []
        if parquet is not None:
            tables.append(stack.enter_context(pq.ParquetWriter(stack.enter_context(whole(parquet)), SCHEMA)))
        lines = None
        if csv is not None:
            file = stack.enter_context(whole(csv))
            lines = csv_module.writer(stack.enter_context(open(file, "w", newline="", encoding="utf-8")))
        elif parquet is None:
            lines = csv_module.writer(sys.stdout, lineterminator="\n")
        if lines:
            lines.writerow(COLUMNS)
        for rows in blocks:
            for table in tables:
                table.write_table(pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows], SCHEMA))
            if lines:
                lines.writerows([*row[:2], "" if row[2] is None else f"{row[2]:.6f}", *row[3:]] for row in rows)
            yield rows
