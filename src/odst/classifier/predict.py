"""What `odst predict` runs: every item of any sources -> a row of a table, in the order given."""

import csv as csv_module
import io
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote_to_bytes, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from odst.classifier.model import Classifier
from odst.classifier.scanning import decoder_of, look
from odst.data.cells import cells
from odst.data.decoding import ENDINGS, Fit
from odst.data.items import Files, Source, portions
from odst.data.sources import absolute_spec, open_sources
from odst.data.workers import Batch
from odst.engine.parts import close_later
from odst.files import whole

COLUMNS = ("source", "path", "class", "confidence", "nearest", "reason")
SCHEMA = pa.schema([(name, pa.float64() if name == "confidence" else pa.string()) for name in COLUMNS])


class Answer(NamedTuple):
    """One row per item of a source, whatever became of it."""

    source: str  # URI
    path: str  # the same as a person would write it
    label: str  # a class, unknown, or empty where it could not be read
    confidence: float | None
    nearest: str
    reason: str  # why it could not be read


class Pictures:
    """A source: picture files by name."""

    features: np.dtype | None = None
    width: int | None = None

    def __init__(self, specs: list[str]):
        self.name, self.files = ", ".join(specs), [os.fsencode(Path(spec).absolute()) for spec in specs]

    def count(self) -> int:
        return len(self.files)

    def parts(self, start: int, most: int) -> Iterator[Files]:
        for files in portions(self.files, start, most):
            yield Files(b"", "", [(file, None, "") for file in files])


def answer(classifier: Classifier, specs: list[str], fit: Fit, folder: Path | None = None) -> Iterator[list[Answer]]:
    """Every item of every source, in order, a few hundred at a time; memory does not grow with their number.

    Sources that cannot be read are refused at once, before the first answer is asked for. Into `folder` go the parts of
    other machines (scanning.py).
    """
    sources = opened(classifier, specs)
    # pictures, and pools with their vectors: neighbours of one kind are read together
    kinds = [list(some) for _, some in groupby(range(len(sources)), lambda i: sources[i].width)]
    neighbours = [slice(some[0], some[-1] + 1) for some in kinds]
    decoders = [decoder_of(classifier, sources[some], fit) for some in neighbours]
    from_anywhere = [absolute_spec(spec, Path.cwd()) for spec in specs]
    looks = []
    for some, decoder in zip(neighbours, decoders, strict=True):
        place = folder if folder is None or len(neighbours) == 1 else folder / f"from-{some.start}"
        reopen = partial(opened, classifier, from_anywhere, some)
        looks.append(look(classifier, sources[some], specs, decoder, reopen, place, "predict"))
    close_later("predict")
    return (_answers(classifier, batch) for batches in looks for batch in batches)


def opened(classifier: Classifier, specs: list[str], some: slice = slice(None)) -> list[Source]:
    """The sources that the specs name, or some of them; for a run on embeddings the vectors of a pool, not its thumbnails."""
    sources = _open(specs)[some]
    pictures = len(classifier.shape) == 1 and any(source.width is None for source in sources)
    encoding = classifier.encoding if pictures else None
    return sources if encoding is None else [encoding.stored(source) for source in sources]


def _open(specs: list[str]) -> list[Source]:
    sources: list[Source] = []
    for pictures, some in groupby(specs, _is_picture):
        names = list(some)
        sources += [Pictures(names)] if pictures else open_sources(names)
    return sources


def _is_picture(spec: str) -> bool:
    return Path(spec).is_file() and Path(spec).suffix.lower().removeprefix(".") in ENDINGS


def _answers(classifier: Classifier, batch: Batch) -> list[Answer]:
    """Of a batch whose rows are logits."""
    rows: dict[int, Answer] = {}
    for record, one in zip(batch.records, classifier.judge_logits(batch.rows), strict=True):
        rows[record.place] = Answer(record.uri, readable(record.uri), one.label, one.confidence, one.nearest, "")
    for refusal in batch.rejected:
        reason = f"{refusal.reason}: {refusal.detail}" if refusal.detail else refusal.reason
        rows[refusal.place] = Answer(refusal.uri, readable(refusal.uri), "", None, "", reason)
    return [rows[place] for place in sorted(rows)]


def readable(uri: str) -> str:
    """A file's path, and what is meant inside it: `photos/a b.jpg`, `shard.tar: cat/1.jpg`, `list.parquet: row 3`. Bytes
    that are not text are written by their number, as \\xff."""
    if not uri.startswith("file:"):
        return uri
    parts = urlsplit(uri)
    inside = parts.fragment.removeprefix("member=").replace("row=", "row ")
    text = f"{parts.path}: {inside}" if inside else parts.path
    return unquote_to_bytes(text).decode("utf-8", "backslashreplace")


def write_answers(
    blocks: Iterable[list[Answer]], csv: Path | None, parquet: Path | None, *, tell: bool = True
) -> Iterator[list[Answer]]:
    """Pass the blocks on as they are written, to the terminal where no file is named, if that is to `tell` them. The files
    appear when all are."""
    with ExitStack() as stack:
        table = lines = None
        if parquet is not None:
            table = stack.enter_context(pq.ParquetWriter(stack.enter_context(whole(parquet)), SCHEMA))
        if csv is not None:
            file = stack.enter_context(whole(csv))
            lines = csv_module.writer(stack.enter_context(open(file, "w", newline="", encoding="utf-8")))
        elif parquet is None and tell:
            if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal may lack letters that a path has
                sys.stdout.reconfigure(errors="backslashreplace")
            lines = csv_module.writer(sys.stdout, lineterminator="\n")
        if lines:
            lines.writerow(COLUMNS)
        for rows in blocks:
            if table:
                table.write_table(pa.Table.from_pylist([dict(zip(COLUMNS, row, strict=True)) for row in rows], SCHEMA))
            if lines:
                lines.writerows(cells([*row[:3], "" if row[3] is None else f"{row[3]:.6f}", *row[4:]]) for row in rows)
            yield rows
