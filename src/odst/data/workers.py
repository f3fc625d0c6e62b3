"""Items -> arrays, in order, decoded on any number of processes. The result does not depend on how many."""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np
from PIL import Image

from odst.data.decoding import Fit, Rejected, decode, fit_array
from odst.data.images import content_hash
from odst.data.items import Part, Source
from odst.data.vectors import Embedder
from odst.engine.processors import processors
from odst.engine.spawned import on_processes
from odst.errors import UserError

PART_BYTES = 4 << 20  # of decoded rows in one part: what a process holds at a time
WORTH_A_PROCESS = 2000  # pictures: to start a process takes about as long as to decode half of them
WORTH_EMBEDDING = 500  # pictures that are embedded too: slower, and each process must open the backbone
TOGETHER = 16  # pictures: parts are multiples of what a backbone takes at a time


class Record(NamedTuple):
    """One row that was read."""

    place: int  # the item's number inside its part
    uri: str
    label: str | None
    hash: str
    width: int
    height: int


class Refusal(NamedTuple):
    """One item that was not."""

    place: int
    uri: str
    reason: str
    detail: str
    label: str | None = None


class Batch(NamedTuple):
    items: int  # how many items of the source this accounts for
    rows: np.ndarray  # (len(records), ...)
    records: list[Record]
    rejected: list[Refusal]
    vectors: np.ndarray | None = None  # float16 (len(records), D), of a decoder with an embedder

    def cut(self, at: int) -> tuple["Batch", "Batch"]:
        """Its first `at` items, and the others, whose places count from there."""
        row = bisect_left(self.records, at, key=lambda record: record.place)
        no = bisect_left(self.rejected, at, key=lambda refusal: refusal.place)
        records = [record._replace(place=record.place - at) for record in self.records[row:]]
        rejected = [refusal._replace(place=refusal.place - at) for refusal in self.rejected[no:]]
        first, others = (None, None) if self.vectors is None else (self.vectors[:row], self.vectors[row:])
        head = Batch(at, self.rows[:row], self.records[:row], self.rejected[:no], first)
        return head, Batch(self.items - at, self.rows[row:], records, rejected, others)

    def split(self, most: int) -> tuple["Batch", "Batch | None"]:
        """The first `most` rows with all that was rejected before the last of them, and what is left.

        Where a shard ends must not depend on where a batch does, so it ends right after its last row.
        """
        if len(self.records) < most:
            return self, None
        head, rest = self.cut(self.records[most - 1].place + 1)
        return head, rest if rest.items else None


@dataclass(frozen=True)
class Decoder:
    """What turns one part into a batch: pictures to uint8 (size, size, 3), features to rows of one type and width.

    With an embedder each picture is decoded once, at the backbone's size, and its row is made from that; a larger row is made
    from the original, and the vector is what it would be without. `via` says from what size rows are made if that is
    another, 0 for the original: those of a pool that was packed before.
    """

    size: int
    fit: Fit
    features: np.dtype | None = None
    width: int | None = None
    embedder: Embedder | None = None
    via: int | None = None

    @property
    def row(self) -> tuple[int, ...]:
        return (self.size, self.size, 3) if self.width is None else (self.width,)

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.uint8) if self.features is None else self.features

    @property
    def part_length(self) -> int:
        row_bytes = int(np.prod(self.row)) * self.dtype.itemsize
        if self.embedder is not None:
            few = PART_BYTES // max(row_bytes, 3 * self.embedder.identity.size**2)
            return int(np.clip(few // TOGETHER * TOGETHER, TOGETHER, 256))
        return int(np.clip(PART_BYTES // row_bytes, 8, 256))

    def __call__(self, part: Part) -> Batch:
        rows = np.empty((len(part), *self.row), self.dtype)
        side = self.embedder.identity.size if self.embedder else 0
        pictures = np.empty((len(part) if self.embedder else 0, side, side, 3), np.uint8)
        records: list[Record] = []
        rejected: list[Refusal] = []
        for place, item in enumerate(part):
            try:
                row, width, height, picture = self._read(item.read(), side)
            except Rejected as error:
                rejected.append(Refusal(place, item.uri, error.reason, error.detail, item.label))
                continue
            rows[len(records)] = row
            if picture is not None:
                pictures[len(records)] = picture
            hash = content_hash(rows[len(records)])
            records.append(Record(place, item.uri, item.label, hash, width, height))
        vectors = None
        if self.embedder is not None:
            vectors = self.embedder(pictures[: len(records)], [record.uri for record in records])
        return Batch(len(part), rows[: len(records)], records, rejected, vectors)

    def _read(self, data: bytes | np.ndarray, side: int) -> tuple[np.ndarray, int, int, np.ndarray | None]:
        """The row, width and height as they were, and the picture at `side` pixels for the embedder if there is one."""
        if self.width is not None and isinstance(data, np.ndarray):
            return data.astype(self.dtype, copy=False), self.width, 1, None
        if self.embedder is None:
            return *self._square(data, self.size), None
        picture, width, height = self._square(data, side)
        via = (side if side >= self.size else 0) if self.via is None else self.via
        middle = picture if via == side else self._square(data, via or self.size)[0]
        return thumbnail(middle, self.size), width, height, picture

    def _square(self, data: bytes | np.ndarray, side: int) -> tuple[np.ndarray, int, int]:
        """At `side` pixels. What is too small for a row is rejected, be the backbone's pictures as large as they may."""
        if isinstance(data, bytes):
            return decode(data, side, self.fit, self.size)
        return fit_array(data, side, self.fit, self.size), data.shape[1], data.shape[0]


def thumbnail(picture: np.ndarray, size: int) -> np.ndarray:
    """A square picture for people. Where a whole number of its pixels make one, their mean does, which costs a fifth."""
    factor, rest = divmod(len(picture), size)
    if factor > 1 and not rest:
        return np.asarray(Image.fromarray(picture).reduce(factor))
    return fit_array(picture, size, "stretch", 1)


def decoder_for(sources: list[Source], size: int, fit: Fit, encoder: str | Embedder | None = None) -> Decoder:
    """`encoder` is a backbone that embeds each picture as well: its spec, or opened before."""
    kinds = [source.features for source in sources if source.features is not None]
    if encoder is not None and kinds:
        raise UserError(
            f"{sources[0].name}: it holds vectors already; only pictures are embedded. Leave the backbone out."
        )
    embedder = Embedder(encoder) if isinstance(encoder, str) else encoder
    return Decoder(size, fit, np.result_type(*kinds) if kinds else None, sources[0].width, embedder)


def processes_for(items: int, decoder: Decoder, asked: int | None = None) -> int:
    """How many processes decode so many items: as many as asked for, or as there are processors, while each is worth its start.

    Features are only copied, which a process would not make faster.
    """
    worth = WORTH_A_PROCESS if decoder.embedder is None else WORTH_EMBEDDING
    return 1 if decoder.width is not None else min(asked or processors(), 1 + items // worth)


def decode_parts(parts: Iterable[Part], decoder: Decoder, workers: int) -> Iterator[Batch]:
    """One batch per part, in the order of the parts, holding only a few at a time."""
    if workers <= 1:
        yield from map(decoder, parts)
        return
    graph = (lambda: None) if decoder.embedder is None else decoder.embedder.graph
    make, less = _Ready(decoder), "take fewer processes (--workers) or smaller images"
    yield from on_processes(make, parts, workers, who="a decoding process", less=less, brought=graph)


@dataclass(frozen=True)
class _Ready:
    """In a process: the decoder, with the graph of its embedder if it has one."""

    decoder: Decoder

    def __call__(self, graph: bytes | None) -> Decoder:
        if graph is not None and self.decoder.embedder is not None:
            self.decoder.embedder.take(graph)
        return self.decoder


def from_item(sources: list[Source], counts: list[int], start: int, decoder: Decoder, workers: int) -> Iterator[Batch]:
    """The batches of all items from number `start` on, cut at the same items wherever that is."""
    parts: list[Iterable[Part]] = []
    before = 0
    for source, count in zip(sources, counts, strict=True):
        if start < count:
            before += start % decoder.part_length  # only of the first of these sources
            parts.append(source.parts(start - start % decoder.part_length, decoder.part_length))
        start = max(0, start - count)
    for batch in decode_parts(chain.from_iterable(parts), decoder, workers):
        dropped = min(before, batch.items)
        before -= dropped
        if dropped < batch.items:
            yield batch.cut(dropped)[1] if dropped else batch
