"""How a run on embeddings sees: the pictures of its sets, and later its users', become vectors as the pool's did."""

import hashlib
import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from odst.data.decoding import Fit, fit_array
from odst.data.features import has_features, open_features, shown_to
from odst.data.formats.arrays import ArraySource
from odst.data.images import Images, is_image
from odst.data.items import Source
from odst.data.pool import is_packed, open_pool
from odst.data.reading import ReadSet, read_set
from odst.data.sources import open_sources
from odst.data.vectors import Embedder
from odst.errors import UserError
from odst.progress import stage
from odst.vision.identity import Identity

log = logging.getLogger("odst")

BLOCK = 256  # pictures at a time


class CachedEmbedder(Embedder):
    """One that remembers: the same pixels are shown to a backbone once. Kept in `vectors/SLUG.sqlite` of the data folder, by
    a hash of what the backbone is shown. For sets of thousands; a pool keeps its vectors itself."""

    def __call__(self, pictures: np.ndarray, uris: Sequence[str]) -> np.ndarray:
        keys = [hashlib.blake2b(one.tobytes(), digest_size=16).digest() for one in pictures]
        known = self._known(keys)
        new = [i for i, key in enumerate(keys) if key not in known]
        if new:
            fresh = super().__call__(pictures[new], [uris[i] for i in new])
            found = {keys[i]: vector for i, vector in zip(new, fresh, strict=True)}
            self._remember(found)
            known |= found
        return np.array([known[key] for key in keys], np.float16).reshape(len(keys), self.identity.dimension)

    def release(self) -> None:
        """Give back the backbone's memory and threads while others train; it is opened again when asked."""
        self._backbone = None

    def _known(self, keys: list[bytes]) -> dict[bytes, np.ndarray]:
        asked = f"SELECT key, vector FROM vectors WHERE key IN ({','.join('?' * len(keys))})"
        try:
            with closing(self._file()) as file:
                rows = file.execute(asked, keys).fetchall()
        except (sqlite3.Error, OSError) as error:  # a cache that cannot be read is no reason to stop
            log.debug("no cache of vectors: %s", error)
            return {}
        width = 2 * self.identity.dimension
        return {key: np.frombuffer(vector, "<f2") for key, vector in rows if len(vector) == width}

    def _remember(self, found: dict[bytes, np.ndarray]) -> None:
        try:
            with closing(self._file()) as file, file:
                rows = ((key, vector.astype("<f2").tobytes()) for key, vector in found.items())
                file.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?)", rows)
        except (sqlite3.Error, OSError) as error:
            log.debug("no cache of vectors: %s", error)

    def _file(self) -> sqlite3.Connection:
        from odst.data.named.download import data_folder  # slow to import

        folder = data_folder() / "vectors"
        folder.mkdir(parents=True, exist_ok=True)
        file = sqlite3.connect(folder / f"{self.identity.slug}.sqlite", timeout=60)
        file.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
        return file


@dataclass(frozen=True)
class Encoding:
    """A backbone and what it is shown. With a `side`, the pool's vectors were made from stored pixels of so many a side, and
    every other picture goes through as many first."""

    embedder: Embedder
    side: int | None = None

    @property
    def identity(self) -> Identity:
        return self.embedder.identity

    def to_json(self) -> dict[str, Any]:
        return self.identity.to_json() | shown_to(self.side)

    def read(self, specs: str | Path | Sequence[str], size: int, fit: Fit, *, labelled: bool = False) -> ReadSet:
        """A set with vectors in place of its images. Rows of a packed pool have theirs in its column already: its pixels are
        too few to make them again."""
        every = [specs] if isinstance(specs, str | Path) else list(specs)
        if any(_is_pool(source) for source in open_sources(every)):
            return _concatenated([self._read_one(spec, size, fit, labelled) for spec in every])
        return self._read(every, size, fit, labelled)

    def stored(self, source: Source) -> Source:
        """The vectors of a packed pool in place of its pixels; any other source as it is, and a pool without a column where
        stored pixels are what the backbone is shown."""
        if not _is_pool(source) or (self.side is not None and not has_features(Path(source.name), self.identity)):
            return source
        assert isinstance(source, ArraySource)
        x = open_features(
            Path(source.name), self.identity, self.embedder.spec
        ).x  # or one line that says how to make it
        return ArraySource(Path(source.name), x, rows=source.rows, sources=source.sources, labels=source.labels)

    def _read_one(self, spec: str | Path, size: int, fit: Fit, labelled: bool) -> ReadSet:
        sources = [self.stored(source) for source in open_sources(spec)]
        if all(source.width is None for source in sources):
            return self._read([spec], size, fit, labelled)
        return _concatenated([_column(source, labelled) for source in sources])

    def _read(self, specs: Sequence[str | Path], size: int, fit: Fit, labelled: bool) -> ReadSet:
        if self.side is None:
            found = read_set(specs, size, fit, labelled=labelled, encoder=self.embedder)
            assert found.vectors is not None
            return found._replace(x=found.vectors)
        found = read_set(specs, self.side, fit, labelled=labelled)
        if not is_image(found.x):
            raise UserError(
                f"{specs[0]}: it holds vectors already; only pictures are embedded. Leave the backbone out."
            )
        return found._replace(x=self.embed(found.x, fit, found.uris))

    def embed(self, x: Images, fit: Fit = "crop", names: Sequence[str] | None = None) -> np.ndarray:
        """Vectors of images (n, H, W, 3) of any one size, float16 (n, D)."""
        parts = [np.empty((0, self.identity.dimension), np.float16)]
        shown = len(x) > 2 * BLOCK
        with stage("embed", len(x), "images") if shown else nullcontext(lambda n: None) as advance:
            for start in range(0, len(x), BLOCK):
                rows = x[start : start + BLOCK]
                uris = [names[start + i] if names else f"image {start + i}" for i in range(len(rows))]
                parts.append(self.embedder(np.stack([self._picture(row, fit) for row in rows]), uris))
                advance(len(rows))
        return np.concatenate(parts)

    def _picture(self, row: np.ndarray, fit: Fit) -> np.ndarray:
        if self.side is not None:
            row = fit_array(row, self.side, fit, 1)
        return fit_array(row, self.identity.size, fit, 1)


def _is_pool(source: Source) -> bool:
    return isinstance(source, ArraySource) and source.width is None and is_packed(Path(source.name))


def _column(source: Source, labelled: bool) -> ReadSet:
    if not isinstance(source, ArraySource) or source.width is None:
        raise UserError(
            f"{source.name}: it is no pool, as those beside it are. Name pools and other sources one by one."
        )
    pool, ids = open_pool(Path(source.name)), source.rows
    labels = [str(one) for one in source.labels[ids]] if labelled else None
    return ReadSet(source.array[ids], labels, list(pool.source(ids)), list(pool.content_hash(ids)), [])


def _concatenated(sets: list[ReadSet]) -> ReadSet:
    """Several sets as one, in order."""
    labels = None if sets[0].labels is None else [label for one in sets for label in one.labels or ()]
    return ReadSet(
        np.concatenate([one.x for one in sets]),
        labels,
        [uri for one in sets for uri in one.uris],
        [hash_ for one in sets for hash_ in one.hashes],
        [refusal for one in sets for refusal in one.rejected],
    )
