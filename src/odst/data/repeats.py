"""Exact copies of images that came before, by their content hash, as a pool is packed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from odst.data.pool import hash_heads
from odst.data.shards import index_file
from odst.data.workers import Batch, Refusal

BITS = 8  # of the table for an image: of ten new ones nine are known to be new by it alone
LONGEST = 1 << 24  # of a run: merging two takes room for both


class Seen:
    """The first 8 bytes of every hash so far, in a few sorted runs of doubling length, and a table with a bit for how they begin:
    where it is not set, there is no need to search. 8 bytes per image, and one or two for the table."""

    def __init__(self, building: Path, shards: int, items: int):
        """`items` are to be expected."""
        bits = max(10, (BITS * items - 1).bit_length())
        self.shift, self.table = np.uint64(64 - bits), np.zeros(1 << (bits - 3), np.uint8)
        self.runs: list[np.ndarray] = []
        for number in range(shards):
            self._add(
                np.sort(hash_heads(pq.read_table(index_file(building, number), columns=["hash"])["hash"].to_pylist()))
            )

    def fresh(self, heads: np.ndarray) -> np.ndarray:
        """Which of these were never seen, the first of equals only; they are seen from now on."""
        values, first = np.unique(heads, return_index=True)
        place, bit = self._places(values)
        doubtful = np.flatnonzero(self.table[place] & bit)
        asked, new = values[doubtful], np.ones(len(values), bool)
        for run in self.runs:
            new[doubtful] &= run[np.minimum(np.searchsorted(run, asked), len(run) - 1)] != asked
        self._add(values[new])
        fresh = np.zeros(len(heads), bool)
        fresh[first[new]] = True
        return fresh

    def _places(self, heads: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The byte of the table, and the bit in it."""
        number = heads >> self.shift
        return (number >> np.uint64(3)).astype(np.int64), np.uint8(1) << (number & np.uint64(7)).astype(np.uint8)

    def _add(self, run: np.ndarray) -> None:
        np.bitwise_or.at(self.table, *self._places(run))
        while self.runs and len(self.runs[-1]) <= min(2 * len(run), LONGEST - len(run)):
            run = np.sort(np.concatenate([self.runs.pop(), run]), kind="stable")
        if len(run):
            self.runs.append(run)


def without_duplicates(batches: Iterator[Batch], seen: Seen) -> Iterator[Batch]:
    """The batches, of equal images the first only; the others are rejected by name."""
    for batch in batches:
        fresh = seen.fresh(hash_heads([record.hash for record in batch.records]))
        if fresh.all():
            yield batch
            continue
        repeated = [record for record, new in zip(batch.records, fresh, strict=True) if not new]
        refusals = [Refusal(r.place, r.uri, "duplicate", f"hash {r.hash} is in the pool") for r in repeated]
        kept = [record for record, new in zip(batch.records, fresh, strict=True) if new]
        vectors = None if batch.vectors is None else batch.vectors[fresh]
        yield Batch(batch.items, batch.rows[fresh], kept, sorted(batch.rejected + refusals), vectors)
