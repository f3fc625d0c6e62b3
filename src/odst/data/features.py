"""Vectors as a column of a packed pool: one encoder's, row by row beside the pool's images.

    POOL/features/SLUG/manifest.json   the encoder, what it was shown, and the length and SHA-256 of every file
    POOL/features/SLUG/00000.npy       float16 (rows of shard 0, D)

A joined pool has the columns that all of its members have. Vectors of two encoders never meet.
"""

import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from odst.data.images import Images
from odst.data.mapped import Mapped
from odst.data.pool import identity as pool_identity
from odst.data.pool import members, read_manifest
from odst.data.remote import elsewhere, here
from odst.data.unchanged import check_unchanged, compare_files
from odst.data.views import Concatenated
from odst.errors import UserError
from odst.vision.identity import Identity

FORMAT = 1


@dataclass(frozen=True)
class Features:
    x: Images  # float16 (m, D), mapped; row j is the vector of pool id j
    encoder: Identity
    manifests: tuple[dict[str, Any], ...]  # of the pool, or of each pool that it joins


def feature_folder(pool: Path, slug: str) -> Path:
    return pool / "features" / slug


def feature_file(pool: Path, slug: str, number: int) -> Path:
    return feature_folder(pool, slug) / f"{number:05d}.npy"


def feature_manifest(
    pool: dict[str, Any], encoder: Identity, files: list[dict[str, Any]], side: int | None = None
) -> dict[str, Any]:
    """What a column says of itself. `side` is that of the stored pixels if they were embedded, not the originals."""
    head = {"format": FORMAT, "encoder": encoder.to_json(), "fit": pool["order"]["fit"], **shown_to(side)}
    return head | {"pool": pool_identity(pool), "files": files}


def shown_to(side: int | None) -> dict[str, Any]:
    """What an encoder was shown: the originals, or stored pixels of so many a side."""
    return {"from": "originals"} if side is None else {"from": "pixels", "side": side}


def list_features(pool: Path) -> list[dict[str, Any]]:
    """The manifests of the columns that are whole; of a joined pool, the first member's of those that all have."""
    pool = Path(pool)
    below = [list_features(member) for member, _ in members(pool, read_manifest(pool))]
    if below:
        return [one for one in below[0] if all(any(o["encoder"] == one["encoder"] for o in rest) for rest in below[1:])]
    return [_read(file.parent) for file in sorted(pool.glob("features/*/manifest.json"))]


def has_features(pool: Path, encoder: Identity) -> bool:
    pool = Path(pool)
    if below := list(members(pool, read_manifest(pool))):
        return all(has_features(member, encoder) for member, _ in below)
    folder = feature_folder(pool, encoder.slug)
    return (folder / "manifest.json").is_file() and _read(folder)["encoder"] == encoder.to_json()


def open_features(pool: Path, encoder: Identity, spec: str | None = None) -> Features:
    """The column of this encoder and no other, mapped: a few bytes of memory per shard. `spec` is what opens the encoder, to be
    typed where the column is missing: an identity keeps no folder."""
    pool, spec = Path(pool), spec or f"{encoder.name}@{encoder.size}"
    columns = list(_columns(pool, read_manifest(pool), encoder, spec))
    parts = [array for pool, column in columns for array in _map(pool, column, encoder, spec)]
    x = Concatenated(parts, partial(_rows, elsewhere(pool), encoder))
    return Features(x, encoder, tuple(column for _, column in columns))


def _rows(place: Path | str, encoder: Identity) -> Images:
    return open_features(here(place), encoder).x


def _columns(
    pool: Path, manifest: dict[str, Any], encoder: Identity, spec: str
) -> Iterable[tuple[Path, dict[str, Any]]]:
    """Every pool that holds rows, with the encoder's column there."""
    if "pools" in manifest:
        for member, below in members(pool, manifest):
            yield from _columns(member, below, encoder, spec)
        return
    folder = feature_folder(pool, encoder.slug)
    if not has_features(pool, encoder):
        raise UserError(_missing(pool, encoder, list_features(pool), spec))
    column = _read(folder)
    lengths = [shard["length"] for shard in manifest["shards"]]
    if column["pool"] != pool_identity(manifest) or [file["length"] for file in column["files"]] != lengths:
        raise UserError(f"{folder}: these vectors were made for another pool. Delete it and {_way(pool, spec)}")
    yield pool, column


def _missing(pool: Path, encoder: Identity, found: list[dict[str, Any]], spec: str) -> str:
    if not found:
        return f"{pool}: it has no vectors of {encoder}. To have them, {_way(pool, spec)}"
    others = ", ".join(str(Identity.from_json(one["encoder"])) for one in found)
    return f"{pool}: it has vectors of {others}, not of {encoder}, and they never mix. To have them, {_way(pool, spec)}"


def embed_command(pool: Path, spec: str) -> str:
    return f"odst pool embed {shlex.quote(str(pool))} --embed {shlex.quote(spec)}"


def _way(pool: Path, spec: str) -> str:
    return f"type `{embed_command(pool, spec)}`."


def _map(pool: Path, column: dict[str, Any], encoder: Identity, spec: str) -> Iterable[Mapped]:
    folder = feature_folder(pool, encoder.slug)
    again = f"Delete {folder} and {_way(pool, spec)}"
    check_unchanged(folder, {note["file"]: note["sha256"] for note in column["files"]}, again)
    for note in column["files"]:
        array, shape = Mapped(folder / note["file"], again), (note["length"], encoder.dimension)
        if array.shape != shape or array.dtype != np.float16:
            raise UserError(f"{array.file}: {array.dtype} {array.shape}, the manifest says float16 {shape}. {again}")
        yield array


def _read(folder: Path) -> dict[str, Any]:
    file = folder / "manifest.json"
    try:
        column: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        known = column["format"] == FORMAT and {"encoder", "fit", "from", "pool", "files"} <= column.keys()
    except (ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise UserError(f"{file}: it is damaged, or of another version of odst. Delete {folder} and embed again.")
    return column


def verify_features(pool: Path) -> None:
    """Every file of every column against its hash; one line that names what differs."""
    pool = Path(pool)
    for member, _ in members(pool, read_manifest(pool)):
        verify_features(member)
    folders = [file.parent for file in sorted(pool.glob("features/*/manifest.json"))]
    checks = [(folder / note["file"], note["sha256"]) for folder in folders for note in _read(folder)["files"]]
    if not checks:
        return
    for file, what in compare_files(f"verify {pool.name}'s vectors", checks):
        raise UserError(f"{file}: it {what}. Restore it, or delete {file.parent} and embed again.")
