"""A pool packed in two passes, where several machines decode: parts of the sources into files, then the files into shards.

    POOL/building/parts/00000.rows.npy        what was read of part 0
    POOL/building/parts/00000.vectors.npy     its vectors, where the pool is embedded
    POOL/building/parts/00000.items.parquet   every item of it: place, source, label, hash and size, or why it was rejected

A part is a fixed range of the items of one source, and a tar is one part. The second pass reads them in order, as if they
came from the decoders: so the pool has the bytes that one process would have written.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from odst.data.formats.folders import Folder
from odst.data.formats.tars import Tar
from odst.data.items import Part, Source
from odst.data.shards import RowFile, vector_rows
from odst.data.sources import absolute_spec, open_sources
from odst.data.workers import Batch, Decoder, Record, Refusal, decode_parts
from odst.engine.interface import engine, share
from odst.engine.parts import Note, complete
from odst.files import whole

ITEMS = 8192  # of a part, about

COLUMNS = pa.schema(
    [
        ("place", pa.int64()),
        ("source", pa.string()),
        ("label", pa.string()),
        ("hash", pa.string()),
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("reason", pa.string()),
        ("detail", pa.string()),
    ]
)


class Piece(NamedTuple):
    """A part: so many items of a source, from this one on."""

    source: int
    start: int
    items: int


def in_two_passes(building: Path) -> bool:
    """Whether others decode with us, or have begun to."""
    return not engine().alone or share() is not None or (building / "parts").is_dir()


def pieces(sources: Sequence[Source], counts: Sequence[int], decoder: Decoder, items: int = ITEMS) -> list[Piece]:
    found = []
    for number, (source, count) in enumerate(zip(sources, counts, strict=True)):
        # batches are cut at the same items as by one process: what a backbone takes together is part of the bits
        length = count if isinstance(source, Tar) else -(-items // decoder.part_length) * decoder.part_length
        found += [Piece(number, start, min(length, count - start)) for start in range(0, count, max(length, 1))]
    return found


def decode_pieces(
    building: Path, reopen: Callable[[], list[Source]], some: list[Piece], decoder: Decoder, name: str
) -> list[Note]:
    """The first pass: a file for every part that has none. `reopen` opens the sources elsewhere."""
    folder = (building / "parts").absolute()
    make = PartDecoder(folder, reopen, some, decoder)
    sizes = [one.items for one in some]
    way = f"Delete {building.parent} to begin anew."
    return complete(folder, {"items": sum(sizes)}, sizes, make, name=name, stale=way)


def reopening(specs: Sequence[str]) -> Callable[[], list[Source]]:
    """The sources that these name, for a process that stands in another folder."""
    return partial(open_sources, [absolute_spec(spec, Path.cwd()) for spec in specs])


@dataclass(frozen=True)
class PartDecoder:
    """Makes the function that decodes a part, by its number."""

    folder: Path
    reopen: Callable[[], list[Source]]
    pieces: list[Piece]
    decoder: Decoder

    def __call__(self) -> Callable[[int], Note]:
        parts = reading(self.reopen(), self.decoder.part_length)

        def part(number: int) -> Note:
            batches = decode_parts(parts(self.pieces[number]), self.decoder, 1)
            return write_piece(self.folder, number, batches, self.decoder)

        return part


def reading(sources: Sequence[Source], length: int) -> Callable[[Piece], Iterator[Part]]:
    return _Reader(sources, length).parts


class _Reader:
    """Parts of sources. A worker gets ascending pieces, so a folder, which can only be walked, is walked once."""

    def __init__(self, sources: Sequence[Source], length: int):
        self.sources, self.length = sources, length
        self.at: tuple[int, int] | None = None
        self.walk: Iterator[Part] = iter(())

    def parts(self, piece: Piece) -> Iterator[Part]:
        source, (before, place) = self.sources[piece.source], self.at or (-1, 0)
        follows = (
            before == piece.source and place <= piece.start and (place == piece.start or isinstance(source, Folder))
        )
        self.at = None  # until the piece is read whole: one that was broken off is begun anew
        if not follows:
            place = 0 if isinstance(source, Folder) else piece.start
            self.walk = source.parts(place, self.length)
        while place < piece.start:
            place += len(next(self.walk))
        while place < piece.start + piece.items:
            part = next(self.walk)
            place += len(part)
            yield part
        self.at = (piece.source, place)


def write_piece(folder: Path, number: int, batches: Iterator[Batch], decoder: Decoder) -> Note:
    items = 0
    table: list[tuple[Any, ...]] = []
    with whole(folder / f"{number:05d}.rows.npy") as temporary, RowFile(temporary, decoder.dtype, decoder.row) as rows:
        vectors = []
        for batch in batches:
            rows.write(batch.rows)
            if batch.vectors is not None:
                vectors.append(batch.vectors)
            for r in batch.records:
                table.append((items + r.place, r.uri, r.label, r.hash, r.width, r.height, None, None))
            for no in batch.rejected:
                detail = no.detail.encode("utf-8", "backslashreplace").decode()
                table.append((items + no.place, no.uri, no.label, None, None, None, no.reason, detail))
            items += batch.items
    if decoder.embedder is not None:
        with whole(folder / f"{number:05d}.vectors.npy") as temporary, vector_rows(temporary, decoder) as file:
            for some in vectors:
                file.write(some)
    table.sort(key=lambda row: row[0])
    columns = [pa.array(column, kind) for column, kind in zip(zip(*table, strict=True), COLUMNS.types, strict=True)]
    with whole(folder / f"{number:05d}.items.parquet") as temporary:
        pq.write_table(pa.table(columns, schema=COLUMNS), temporary, compression="zstd")
    return {"items": items, "rows": rows.length}


def read_pieces(folder: Path, notes: Sequence[Note], start: int, decoder: Decoder) -> Iterator[Batch]:
    """The second pass: everything from item number `start` on, a part at a time."""
    for number, note in enumerate(notes):
        if start >= note["items"]:
            start -= note["items"]
            continue
        batch = _read(folder, number, note["items"], decoder)
        yield batch.cut(start)[1] if start else batch
        start = 0


def _read(folder: Path, number: int, items: int, decoder: Decoder) -> Batch:
    rows = np.load(folder / f"{number:05d}.rows.npy", mmap_mode="r")
    vectors = None
    if decoder.embedder is not None:
        vectors = np.load(folder / f"{number:05d}.vectors.npy", mmap_mode="r")
    records, rejected = [], []
    for line in pq.read_table(folder / f"{number:05d}.items.parquet").to_pylist():
        if line["reason"] is None:
            records.append(
                Record(line["place"], line["source"], line["label"], line["hash"], line["width"], line["height"])
            )
        else:
            rejected.append(Refusal(line["place"], line["source"], line["reason"], line["detail"], line["label"]))
    return Batch(items, rows, records, rejected, vectors)
