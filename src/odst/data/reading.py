"""A set that fits in memory, read whole."""

import logging
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from odst.data.decoding import WAYS, Fit
from odst.data.items import Source
from odst.data.sources import open_sources
from odst.data.vectors import Embedder
from odst.data.workers import Batch, Record, Refusal, decode_parts, decoder_for, processes_for
from odst.errors import UserError
from odst.progress import stage

log = logging.getLogger("odst")


class ReadSet(NamedTuple):
    x: np.ndarray  # uint8 (n, size, size, 3), or features (n, D)
    labels: list[str] | None
    uris: list[str]
    hashes: list[str]
    rejected: list[Refusal]
    vectors: np.ndarray | None = None  # float16 (n, D) where an encoder was asked for


def read_set(
    specs: str | Path | Iterable[str | Path],
    size: int,
    fit: Fit = "crop",
    *,
    labelled: bool = False,
    encoder: str | Embedder | None = None,
) -> ReadSet:
    """A small set, whole in memory; items that cannot be used are warned of. `labelled` asks for a label on every image.

    `encoder` is a backbone, its spec or opened before: the vectors come beside the images, rounded as a pool's are.
    """
    sources = open_sources(specs)
    decoder = decoder_for(sources, size, fit, encoder)
    total = sum(source.count() for source in sources)
    parts = (part for source in sources for part in source.parts(0, decoder.part_length))
    batches: list[Batch] = []
    with stage(f"read {Path(sources[0].name).name}", total, "images") as advance:
        for batch in decode_parts(parts, decoder, processes_for(total, decoder)):
            batches.append(batch)
            advance(batch.items)
    x = np.concatenate([batch.rows for batch in batches])
    records = [record for batch in batches for record in batch.records]
    rejected = [refusal for batch in batches for refusal in batch.rejected]
    labels = check_read(sources, records, rejected, labelled)
    uris, hashes = [record.uri for record in records], [record.hash for record in records]
    vectors = np.concatenate([batch.vectors for batch in batches if batch.vectors is not None]) if encoder else None
    return ReadSet(x, labels, uris, hashes, rejected, vectors)


def check_read(
    sources: Sequence[Source], records: Sequence[Record], rejected: Sequence[Refusal], labelled: bool
) -> list[str] | None:
    """The label of every record, where they are asked for; one line if a set cannot be used, a warning of what was not."""
    names = ", ".join(source.name for source in sources)
    if not records:
        kind = "an image" if sources[0].width is None else "a vector"
        raise UserError(
            f"{names}: none of its {len(rejected)} items is {kind}. The first: {rejected[0].uri}: {rejected[0].reason}. "
            f"{WAYS.get(rejected[0].reason, '')}".strip()
        )
    labels = None
    if labelled:
        without = next((record for record in records if record.label is None), None)
        if without is not None:
            raise UserError(
                f"{names}: no label for {without.uri}. Give a folder with a subfolder per class, a table with a label "
                "column, or a tar with .cls files."
            )
        for source in sources:
            if (empty := getattr(source, "empty_class", lambda: None)()) is not None:
                raise UserError(f"{source.name}: the class folder {empty!r} has no image. Fill it or remove it.")
        labels = [record.label or "" for record in records]
        classes = {None, *labels}
        for refusal in rejected:
            if refusal.label not in classes:
                raise UserError(
                    f"{names}: class {refusal.label!r} has no image that can be used. The first: {refusal.uri}: "
                    f"{refusal.reason}. Mend it, or take the class out."
                )
    if rejected:
        first = rejected[0]
        why = f"{first.reason} ({first.detail})" if first.detail else first.reason
        log.warning("%s: %d images could not be used; the first: %s: %s", names, len(rejected), first.uri, why)
    return labels
