"""Exact copies of images that came before, by their content hash, as a pool is packed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from odst.data.pool import hash_heads
from odst.data.shards import index_file
from odst.data.workers import Batch, Refusal


class Seen:
    """The first 8 bytes of every hash so far, in a few sorted runs of doubling length: 8 bytes per image."""

    def __init__(self, building: Path, shards: int):
        self.runs: list[np.ndarray] = []
        for number in range(shards):
            self._add(
                np.sort(hash_heads(pq.read_table(index_file(building, number), columns=["hash"])["hash"].to_pylist()))
            )

    def fresh(self, heads: np.ndarray) -> np.ndarray:
        """Which of these were never seen, the first of equals only; they are seen from now on."""
        fresh = np.zeros(len(heads), bool)
        fresh[np.unique(heads, return_index=True)[1]] = True
        for run in self.runs:
            fresh &= run[np.minimum(np.searchsorted(run, heads), len(run) - 1)] != heads
        self._add(np.sort(heads[fresh]))
        return fresh

    def _add(self, run: np.ndarray) -> None:
        while self.runs and len(self.runs[-1]) <= 2 * len(run):
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
