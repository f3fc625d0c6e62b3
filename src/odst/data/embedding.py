"""A column of vectors for a pool that is packed already: from the originals, read once more, or from its stored pixels.

Shard by shard. POOL/features/SLUG/building holds a note for every file that is whole; killed and started again it goes on
there, and ends with the bytes that `odst pool build --embed` would have written.
"""

import shutil
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from odst.data.features import (
    embed_command,
    feature_file,
    feature_folder,
    feature_manifest,
    has_features,
    list_features,
)
from odst.data.formats.arrays import ArraySource
from odst.data.images import Images
from odst.data.items import Source
from odst.data.part_files import decode_pieces, in_two_passes, pieces, read_pieces, reopening
from odst.data.pool import members, open_pool, read_manifest
from odst.data.remote import elsewhere, here
from odst.data.shards import read_note, vector_rows
from odst.data.sources import open_sources
from odst.data.unchanged import note_checked
from odst.data.vectors import Embedder
from odst.data.visible import files_of_sources
from odst.data.workers import Batch, Decoder, Record, Refusal, from_item, processes_for
from odst.engine.interface import engine, share
from odst.engine.parts import writing
from odst.errors import UserError
from odst.files import sha256, whole, write_json
from odst.progress import stage


def embed_pool(
    pool: Path, encoder: str | Embedder, *, from_pixels: bool = False, workers: int | None = None
) -> Embedder:
    """Give the pool, or every pool that it joins, the column of this backbone. One that is whole is left as it is."""
    embedder = Embedder(encoder) if isinstance(encoder, str) else encoder
    _embed(Path(pool), embedder, from_pixels, workers)
    return embedder


def _embed(pool: Path, embedder: Embedder, from_pixels: bool, workers: int | None) -> None:
    manifest = read_manifest(pool)
    if "pools" in manifest:
        for member, _ in members(pool, manifest):
            _embed(member, embedder, from_pixels, workers)
        return
    if len(manifest["row"]) == 1:
        raise UserError(f"{pool}: it holds vectors, not pictures: there is nothing to embed.")
    origin = "pixels" if from_pixels else "originals"
    folder = feature_folder(pool, embedder.identity.slug)
    if has_features(pool, embedder.identity):
        made = next(c["from"] for c in list_features(pool) if c["encoder"] == embedder.identity.to_json())
        if made != origin:
            raise UserError(f"{folder}: these vectors were made from the {made}. Delete the folder to make them anew.")
        if not (folder / "building").exists():  # else of a process that was killed at its last step
            return
    with writing(pool, "odst pool embed"):
        _make_column(pool, manifest, embedder, origin, workers)


def _make_column(pool: Path, manifest: dict[str, Any], embedder: Embedder, origin: str, workers: int | None) -> None:
    """What is whole of it stays; a process that was here before us may have made all of it."""
    folder = feature_folder(pool, embedder.identity.slug)
    if has_features(pool, embedder.identity):
        shutil.rmtree(folder / "building", ignore_errors=True)
        return
    for remnant in (
        [] if share() else [*folder.glob(".*.part"), *folder.glob("building/.*.part")]
    ):  # of a process that was killed
        remnant.unlink()
    notes = [read_note(file) for file in sorted(folder.glob("building/[0-9]*.json"))]
    if any(note["from"] != origin for note in notes):
        notes = []
    try:
        _write(pool, manifest, embedder, notes, origin, workers)
    except UserError:
        if not notes and not (folder / "building" / "parts").is_dir():  # nothing to go on from
            shutil.rmtree(folder, ignore_errors=True)
        raise
    files = [{key: note[key] for key in ("file", "length", "sha256")} for note in notes]
    side = manifest["row"][0] if origin == "pixels" else None
    write_json(folder / "manifest.json", feature_manifest(manifest, embedder.identity, files, side))
    note_checked(folder, [file["file"] for file in files])
    shutil.rmtree(folder / "building")


def _write(
    pool: Path,
    manifest: dict[str, Any],
    embedder: Embedder,
    notes: list[dict[str, Any]],
    origin: str,
    workers: int | None,
) -> None:
    """One file after the other; `notes` grows by one for each that is whole."""
    order = manifest["order"]
    # the rows of a pool that was built with an encoder were made from the pictures at that encoder's size
    before = order.get("encoder", {}).get("size", 0)
    decoder = Decoder(order["size"], order["fit"], embedder=embedder, via=before if before >= order["size"] else 0)
    sources: list[Source] = [_stored(pool)] if origin == "pixels" else _originals(pool, order, embedder.spec)
    counts = [source.count() for source in sources]
    done, items = sum(note["length"] for note in notes), notes[-1]["items"] if notes else 0
    building = feature_folder(pool, embedder.identity.slug) / "building"
    if in_two_passes(building):
        reopen = partial(_stored_alone, elsewhere(pool)) if origin == "pixels" else reopening(order["sources"])
        engine().check((), files_of_sources([pool] if origin == "pixels" else order["sources"]))
        some = pieces(sources, counts, decoder)
        parts = decode_pieces(building, reopen, some, decoder, f"embed parts of {pool.name}")
        batches = read_pieces(building / "parts", parts, items, decoder)
    else:
        batches = from_item(sources, counts, items, decoder, processes_for(sum(counts), decoder, workers))
    if origin == "originals":
        batches = _matched(batches, pool, done, items - done, embedder.spec)
    rest: Batch | None = None
    with stage(f"embed {pool.name}", manifest["count"], "images", done) as advance:
        for shard in manifest["shards"][len(notes) :]:
            file = feature_file(pool, embedder.identity.slug, int(Path(shard["file"]).stem))
            with whole(file) as temporary, vector_rows(temporary, decoder) as rows:
                while rows.length < shard["length"]:
                    head, rest = (rest or next(batches)).split(shard["length"] - rows.length)
                    assert head.vectors is not None
                    rows.write(head.vectors)
                    items += head.items
                    advance(len(head.vectors))
            note = {
                "file": file.name,
                "length": shard["length"],
                "sha256": sha256(file),
                "items": items,
                "from": origin,
            }
            write_json(file.parent / "building" / f"{file.stem}.json", note)
            notes.append(note)


def _stored(pool: Path) -> ArraySource:
    return ArraySource(pool, open_pool(pool, every=True).x, reopen=partial(_rows, pool))


def _stored_alone(pool: Path | str) -> list[Source]:
    return [_stored(here(pool))]


def _rows(pool: Path) -> Images:
    return open_pool(pool, every=True).x


def _originals(pool: Path, order: dict[str, Any], spec: str) -> list[Source]:
    """The sources that the pool was packed from, as long as they were."""
    try:
        sources = open_sources(order["sources"])
    except UserError as error:
        raise UserError(f"{error} {_way(pool, spec)}") from None
    if (count := sum(source.count() for source in sources)) != order["items"]:
        raise UserError(
            f"{', '.join(order['sources'])}: {count:,} items, but {order['items']:,} when {pool} was packed. {_way(pool, spec)}"
        )
    return sources


def _way(pool: Path, spec: str) -> str:
    return f"The originals of {pool} are needed as they were; `{embed_command(pool, spec)} --from-pixels` embeds the stored images."


def _matched(batches: Iterator[Batch], pool: Path, rows: int, rejected: int, spec: str) -> Iterator[Batch]:
    """Of each batch the rows that are in the pool. So many rows and rejected items came before.

    Every item must be the next of the index, by name and content, or the next of the rejected, by name.
    """
    kept = _lines(pool / "index.parquet", ("source", "hash"), rows)
    left = _lines(pool / "rejected.parquet", ("source",), rejected)
    row, no = next(kept, None), next(left, None)
    for batch in batches:
        keep = np.zeros(len(batch.records), bool)
        number = 0
        items: list[Record | Refusal] = [*batch.records, *batch.rejected]
        for one in sorted(items, key=lambda one: one.place):
            hash = one.hash if isinstance(one, Record) else ""
            if (one.uri, hash) == row:
                keep[number], row = True, next(kept, None)
            elif (one.uri,) == no:
                no = next(left, None)
            else:
                what = f"({one.reason})" if isinstance(one, Refusal) else "(another picture, or another place)"
                raise UserError(f"{one.uri}: it is not what was packed {what}. {_way(pool, spec)}")
            number += isinstance(one, Record)
        assert batch.vectors is not None
        records = [record for record, wanted in zip(batch.records, keep, strict=True) if wanted]
        yield Batch(batch.items, batch.rows[keep], records, [], batch.vectors[keep])


def _lines(file: Path, columns: tuple[str, ...], start: int) -> Iterator[tuple[str, ...]]:
    with pq.ParquetFile(file) as table:
        for batch in table.iter_batches(8192, columns=list(columns)):
            if start < len(batch):
                yield from zip(*(batch.column(name)[start:].to_pylist() for name in columns), strict=True)
            start = max(0, start - len(batch))
