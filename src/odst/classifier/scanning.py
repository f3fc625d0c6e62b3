"""A classifier over sources too large for one look: every item's logits, in order, made here or in parts on an engine.

    FOLDER/00000.rows.npy       float32 (rows of part 0, K): the logits
    FOLDER/00000.items.parquet  every item of it: source and label, or why it was rejected

One thread a batch, and batches are cut at fixed items: so the bits are the same wherever they are made. Fewer than LARGE
items are looked at in the calling process, whatever the engine is: it would gain nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from odst.classifier.model import Classifier
from odst.data.decoding import Fit
from odst.data.items import Source
from odst.data.part_files import Piece, pieces, read_pieces, reading, write_piece
from odst.data.visible import files_of_sources, state_of_sources
from odst.data.workers import Batch, Decoder, decode_parts, decoder_for, processes_for
from odst.engine.interface import engine, running_on, share
from odst.engine.parts import Note, complete, read_notes, writing
from odst.engine.processors import in_order, processors, threads
from odst.errors import UserError
from odst.files import digest
from odst.method.labelling import model_hash
from odst.progress import stage

LARGE = 1 << 16  # items
ITEMS, PARTS = 2048, 4096  # of a part, about; with more than so many parts they are longer


def is_large(sources: Sequence[Source]) -> bool:
    return sum(source.count() for source in sources) >= LARGE


def decoder_of(classifier: Classifier, sources: list[Source], fit: Fit) -> Decoder:
    """What reads these sources for this classifier; one line if they are not of its kind."""
    features = len(classifier.shape) == 1
    encoding = classifier.encoding if features and sources[0].width is None else None
    for source in sources:
        if encoding is not None and source.width is None:
            continue
        if (source.width is not None) != features or (features and source.width != classifier.shape[0]):
            takes = f"features of length {classifier.shape[0]}" if features else "images"
            gives = "images" if source.width is None else f"features of length {source.width}"
            raise UserError(f"{source.name}: this run's classifier takes {takes}, and this source holds {gives}.")
    if not features and classifier.shape[0] != classifier.shape[1]:
        raise UserError(
            f"{classifier.path}: sources are read as squares, and this run has {classifier.shape[:2]} images. Use odst.load()."
        )
    if encoding is None:
        return decoder_for(sources, classifier.shape[0], fit)
    if encoding.side is None:
        return decoder_for(sources, classifier.size, fit, encoding.embedder)
    return decoder_for(sources, encoding.side, fit)


def look(
    classifier: Classifier,
    sources: Sequence[Source],
    specs: Sequence[str],
    decoder: Decoder,
    reopen: Callable[[], list[Source]],
    folder: Path | None,
    name: str,
) -> Iterator[Batch]:
    """Every item of the sources, which these specs name, in order; the rows of each batch are its logits. Memory does not grow with their number.

    Where others help, their parts go into `folder`, which the caller removes when it has what it wants of them.
    """
    counts = [source.count() for source in sources]
    large = sum(counts) >= LARGE
    if share() is not None and not large:
        raise UserError(
            f"--shard {share()}: {sum(counts):,} images are too few to be shared out (from {LARGE:,} on). Leave it out."
        )
    if not large or (engine().alone and share() is None and not (folder and folder.is_dir())):
        return _look_here(classifier, sources, sum(counts), decoder, large, name)
    if folder is None:
        raise UserError(f"{name}: several machines leave their parts beside the file of results. Name one: see --help.")
    return _look_in_parts(classifier, sources, specs, counts, decoder, reopen, folder, name)


def _look_here(
    classifier: Classifier, sources: Sequence[Source], total: int, decoder: Decoder, large: bool, name: str
) -> Iterator[Batch]:
    parts = (part for source in sources for part in source.parts(0, decoder.part_length))
    batches = decode_parts(parts, decoder, processes_for(total, decoder))
    with stage(name, total, "images") as advance:
        if not large or classifier.device != "cpu":
            for batch in batches:
                yield seen(classifier, batch)
                advance(batch.items)
            return
        with threads(1), ThreadPoolExecutor(processors()) as several:  # a batch each, instead of one after the other
            for batch in in_order(several, partial(seen, classifier), batches, 2 * processors()):
                yield batch
                advance(batch.items)


def seen(classifier: Classifier, batch: Batch) -> Batch:
    """The batch with logits in place of its pictures or vectors."""
    rows = batch.rows if batch.vectors is None else batch.vectors
    return batch._replace(rows=classifier.logits(rows), vectors=None)


def _look_in_parts(
    classifier: Classifier,
    sources: Sequence[Source],
    specs: Sequence[str],
    counts: list[int],
    decoder: Decoder,
    reopen: Callable[[], list[Source]],
    folder: Path,
    name: str,
) -> Iterator[Batch]:
    classifier, folder = replace(classifier, device=engine().device or classifier.device), folder.absolute()
    some = pieces(sources, counts, decoder, max(ITEMS, -(-sum(counts) // PARTS)))
    make = PartScan(folder, reopen, some, decoder, classifier)
    about = {
        "model": model_hash(classifier.model),
        "device": classifier.device,
        "source": digest([list(specs), counts, decoder.row, decoder.fit, state_of_sources(specs)]),
    }
    mine = share()
    if mine is not None and len(read_notes(folder)) == len(some):
        mine = None  # a share of the next look, then
    with writing(folder, f"odst {name}"), running_on(engine(), mine):
        notes = complete(
            folder,
            about,
            [one.items for one in some],
            make,
            name=name,
            reads=files_of_sources(specs),
            stale=f"Delete {folder} to begin anew.",
        )
    return read_pieces(folder, notes, 0, make.logits)


@dataclass(frozen=True)
class PartScan:
    """Makes the function that looks at a part, by its number."""

    folder: Path
    reopen: Callable[[], list[Source]]
    pieces: list[Piece]
    decoder: Decoder
    classifier: Classifier

    @property
    def logits(self) -> Decoder:
        """How the rows of a part's file are read: as K numbers each."""
        return Decoder(0, "crop", np.dtype(np.float32), len(self.classifier.classes))

    def __call__(self) -> Callable[[int], Note]:
        parts = reading(self.reopen(), self.decoder.part_length)

        def part(number: int) -> Note:
            with threads(1):
                batches = decode_parts(parts(self.pieces[number]), self.decoder, 1)
                return write_piece(
                    self.folder, number, (seen(self.classifier, batch) for batch in batches), self.logits
                )

        return part
