"""Sources -> a packed pool. Killed and started again it goes on at the last whole shard, and ends with the same bytes.

While a pool is built, POOL/building holds, for every shard that is whole, its part of the index and of the rejected, and
last of all a NNNNN.json: a shard without one does not count.
"""

import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from odst.data.decoding import WAYS, Fit
from odst.data.features import embed_command, feature_folder, feature_manifest
from odst.data.items import Source
from odst.data.part_files import decode_pieces, in_two_passes, pieces, read_pieces, reopening
from odst.data.pool import FORMAT, read_manifest, write_manifest
from odst.data.repeats import Seen, without_duplicates
from odst.data.shards import INDEX, REJECTED, Shard, index_file, read_note, rejected_file, shard_file, table_writer
from odst.data.sources import open_sources, split_spec
from odst.data.unchanged import note_checked
from odst.data.vectors import Embedder
from odst.data.visible import files_of_sources
from odst.data.workers import Batch, Decoder, Record, Refusal, decoder_for, from_item, processes_for
from odst.engine.interface import engine, share
from odst.engine.parts import writing
from odst.errors import UserError
from odst.files import sha256, whole, write_json
from odst.locks import held_parts, is_lock
from odst.progress import stage
from odst.vision.identity import Identity

SHARD_BYTES = 1 << 30  # at most; so few shards that 10^8 small images need some hundred open files
TOGETHER = 8  # groups of HELD rows that make one of the final index: what a look-up has to decode


def build_pool(
    specs: str | Path | Sequence[str | Path],
    out: Path,
    *,
    size: int = 32,
    fit: Fit = "crop",
    workers: int | None = None,
    keep_duplicates: bool = False,
    shard_rows: int | None = None,
    encoder: str | Embedder | None = None,
) -> dict[str, Any]:
    """Pack every image of `specs` into the folder `out` and return its manifest. A finished pool is left as it is.

    `encoder` is a backbone, its spec or opened before: its vectors become a column of the pool, and images are made from what it sees.
    """
    specs = [specs] if isinstance(specs, str | Path) else list(specs)
    for spec in specs:
        if Path(out).resolve().is_relative_to(split_spec(spec)[0].resolve()):
            raise UserError(f"{out}: the pool would lie inside its own source {spec}. Choose an --out outside of it.")
    sources = open_sources(specs)
    decoder = decoder_for(sources, size, fit, encoder)
    counts = [source.count() for source in sources]
    order: dict[str, Any] = {"sources": [str(spec) for spec in specs], "items": sum(counts), "size": size, "fit": fit}
    order |= {"keep_duplicates": keep_duplicates, "shard_rows": shard_rows or _shard_rows(decoder)}
    if decoder.embedder is not None:
        order["encoder"] = decoder.embedder.identity.to_json()
    asked = None if decoder.embedder is None else decoder.embedder.spec
    if (finished := _finished(Path(out), order, asked)) is not None and not (Path(out) / "building").exists():
        return finished
    with writing(Path(out), "odst pool build"):
        if (finished := _begin(Path(out), order, asked)) is not None:
            return finished
        with _or_nothing(Path(out)):
            return _build(Path(out), order, sources, counts, decoder, workers)


def _build(
    out: Path, order: dict[str, Any], sources: list[Source], counts: list[int], decoder: Decoder, workers: int | None
) -> dict[str, Any]:
    notes = None
    if in_two_passes(out / "building"):
        some = pieces(sources, counts, decoder)
        reopen = reopening(order["sources"])
        engine().check((), files_of_sources(order["sources"]))
        notes = decode_pieces(out / "building", reopen, some, decoder, f"decode for {out.name}")
    shards = _whole_shards(out)
    done = shards[-1]["items"] if shards else 0
    # The last item of the last whole shard is read once more, to see that the sources still stand in the same order.
    with stage(f"pack {out.name}", sum(counts), "images", done) as advance:
        if notes is None:
            processes = processes_for(sum(counts), decoder, workers)
            batches = from_item(sources, counts, max(0, done - 1), decoder, processes)
        else:
            batches = read_pieces(out / "building" / "parts", notes, max(0, done - 1), decoder)
        if shards:
            batches = _after(batches, shards[-1]["last"], out)
        if not order["keep_duplicates"]:
            batches = without_duplicates(batches, Seen(out / "building", len(shards), sum(counts)))
        _pack(batches, out, shards, decoder, order["shard_rows"], advance)
    return _finish(out, order, decoder, shards)


@contextmanager
def _or_nothing(out: Path) -> Iterator[None]:
    """A fault before the first shard is whole leaves nothing behind: the next attempt may be another. Unless others work here."""
    try:
        yield
    except UserError:
        shared = share() is not None or held_parts(out)
        if not shared and not any((out / "building").rglob("[0-9]*.json")):
            _remove(out)
        raise


def _remove(out: Path) -> None:
    """What there is of a pool without a row. Killed here it can be gone on with: notes of shards go first, the order last."""
    for note in (out / "building").glob("[0-9]*"):
        note.unlink()
    for name in ("shards", "features", "building"):
        shutil.rmtree(out / name, ignore_errors=True)


def _shard_rows(decoder: Decoder) -> int:
    row_bytes = int(np.prod(decoder.row)) * decoder.dtype.itemsize
    return 1 << (max(SHARD_BYTES // row_bytes, 1).bit_length() - 1)


def _begin(out: Path, order: dict[str, Any], spec: str | None) -> dict[str, Any] | None:
    """The manifest if this very pool is there already; otherwise a folder in which it may be built."""
    if (finished := _finished(out, order, spec)) is not None:
        shutil.rmtree(out / "building", ignore_errors=True)
        return finished
    begun = out / "building" / "order.json"
    if begun.is_file():
        _check_order(out, read_note(begun), order, spec)
        return None
    # a process that was killed while it wrote leaves temporary files
    if not all(file.suffix == ".part" or is_lock(file) for file in out.rglob("*") if not file.is_dir()):
        raise UserError(f"{out}: there are other files here already. Choose a new or empty folder for --out.")
    write_json(begun, order)
    return None


def _finished(out: Path, order: dict[str, Any], spec: str | None) -> dict[str, Any] | None:
    """The manifest of the pool that is there, if it is this very one; one line if it is another."""
    if not (out / "manifest.json").is_file():
        return None
    manifest = read_manifest(out)
    _check_order(out, manifest.get("order"), order, spec)
    return manifest


def _check_order(out: Path, before: dict[str, Any] | None, order: dict[str, Any], spec: str | None) -> None:
    """`spec` is what opens the encoder that is asked for."""
    if before == order:
        return
    differ = [key for key in {**order, **(before or {})} if (before or {}).get(key) != order.get(key)]
    if differ != ["encoder"]:
        raise UserError(
            f"{out}: a pool with other {', '.join(differ)} was begun here. Choose another --out or delete it."
        )
    there, asked = (_encoder(one) for one in (before or {}, order))
    if spec is not None and (out / "manifest.json").is_file():
        way = f"`{embed_command(out, spec)}` gives it these too, as a column of their own."
    else:
        way = "Choose another --out, delete it, or begin again with the same --embed."
    raise UserError(f"{out}: this pool was begun with {there}, and is asked for with {asked}. {way}")


def _encoder(order: dict[str, Any]) -> str:
    return f"vectors of {Identity.from_json(order['encoder'])}" if "encoder" in order else "no vectors"


def _whole_shards(out: Path) -> list[dict[str, Any]]:
    for folder in (out / "shards", out / "building", *out.glob("features/*")):
        for remnant in folder.glob(".*.part"):  # of a process that was killed
            remnant.unlink()
    return [read_note(file) for file in sorted((out / "building").glob("[0-9]*.json"))]


def _after(batches: Iterator[Batch], last: str, out: Path) -> Iterator[Batch]:
    """The batches without their first item, which must be the one that the last whole shard ended with."""
    first = next(batches)
    items: list[Record | Refusal] = [*first.records[:1], *first.rejected[:1]]
    if min(items, key=lambda one: one.place).uri != last:
        raise UserError(
            f"{out}: its sources have changed since this pool was begun. Delete it or choose another --out."
        )
    if first.items > 1:
        yield first.cut(1)[1]
    yield from batches


def _pack(
    batches: Iterator[Batch], out: Path, shards: list[dict[str, Any]], decoder: Decoder, shard_rows: int, advance: Any
) -> None:
    """Fill shard after shard; `shards` grows by a note for each that is whole."""
    items = shards[-1]["items"] if shards else 0
    batch = next(batches, None)
    while batch is not None:
        number = len(shards)
        with Shard(out, number, decoder) as shard:
            while batch is not None and shard.length < shard_rows:
                head, batch = batch.split(shard_rows - shard.length)
                shard.write(head)
                items += head.items
                advance(head.items)
                batch = batch if batch is not None else next(batches, None)
        note = {"length": shard.length, "sha256": "", "items": items, "last": shard.last}
        if shard.length:
            note["sha256"] = sha256(out / shard_file(number))
            if shard.vector_file is not None:
                note["vectors"] = sha256(shard.vector_file)
        write_json(out / "building" / f"{number:05d}.json", note)
        shards.append(note)


def _finish(out: Path, order: dict[str, Any], decoder: Decoder, shards: list[dict[str, Any]]) -> dict[str, Any]:
    """Put the parts of the index together, write the manifest, and only then let go of the parts."""
    building = out / "building"
    count = sum(note["length"] for note in shards)
    indexes = [index_file(building, number) for number in range(len(shards))]
    rejects = [rejected_file(building, number) for number in range(len(shards))]
    reasons = sum((_reasons(file) for file in rejects), Counter())
    if count == 0:
        _remove(out)
        if decoder.width is not None:
            raise UserError(f"{', '.join(order['sources'])}: none of its {order['items']} rows holds a vector.")
        raise UserError(
            f"{', '.join(order['sources'])}: no image in its {order['items']} files. Most were: {(most := reasons.most_common(1)[0][0])}. "
            + WAYS.get(most, "Give a folder of JPEG, PNG, WebP, BMP, GIF or TIFF files, or one of the other sources.")
        )
    concatenate(indexes, out / "index.parquet", numbered=True)
    concatenate(rejects, out / "rejected.parquet", numbered=False)
    manifest = {
        "format": FORMAT,
        "dtype": decoder.dtype.str if decoder.dtype != np.uint8 else "uint8",
        "row": list(decoder.row),
        "count": count,
        "rejected": dict(sorted(reasons.items())),
        "order": order,
        "shards": [
            {"file": shard_file(number), "length": note["length"], "sha256": note["sha256"]}
            for number, note in enumerate(shards)
            if note["length"]
        ],
        "files": {name: sha256(out / name) for name in ("index.parquet", "rejected.parquet")},
    }
    if decoder.embedder is not None:
        encoder = decoder.embedder.identity
        files = [
            {"file": f"{number:05d}.npy", "length": note["length"], "sha256": note["vectors"]}
            for number, note in enumerate(shards)
            if note["length"]
        ]
        write_json(feature_folder(out, encoder.slug) / "manifest.json", feature_manifest(manifest, encoder, files))
        note_checked(feature_folder(out, encoder.slug), [file["file"] for file in files])
    write_manifest(out, manifest)
    note_checked(out, [*(shard["file"] for shard in manifest["shards"]), *manifest["files"]])
    shutil.rmtree(building)
    return manifest


def _reasons(rejects: Path) -> Counter[str]:
    counts = pq.read_table(rejects, columns=["reason"])["reason"].value_counts().to_pylist()
    return Counter({one["values"]: one["counts"] for one in counts})


def concatenate(parts: list[Path], path: Path, numbered: bool) -> None:
    """One file of all parts, the index with the ids in front."""
    schema = pa.schema(list((INDEX if numbered else REJECTED).items()))
    if numbered:
        schema = schema.insert(0, pa.field("id", pa.int64()))
    first = 0
    with whole(path) as temporary, table_writer(temporary, schema) as writer:
        for part in parts:
            with pq.ParquetFile(part) as file:
                groups = range(file.metadata.num_row_groups)
                for start in groups[::TOGETHER]:
                    table = file.read_row_groups(groups[start : start + TOGETHER]).combine_chunks()
                    if numbered:
                        ids = pa.array(np.arange(first, first + len(table)))
                        table = table.add_column(0, schema.field(0), ids)
                        first += len(table)
                    writer.write_table(table.cast(schema))
