"""The local files behind images and sources: what every machine at work must see, and whether they are those of an earlier call.
What was fetched has an address instead, and a tag."""

import glob
import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from odst.data.images import Images
from odst.data.mapped import Mapped
from odst.data.pool import is_packed, open_pool
from odst.data.remote import address_of, is_remote, tags_of
from odst.data.sources import split_spec
from odst.data.unchanged import size_and_time
from odst.data.views import ColumnMajor, Concatenated
from odst.files import digest


def files_of_images(x: Images) -> list[Path]:
    """Those that `opener` sends by their names: rows that travel themselves need not be seen."""
    if isinstance(x, Concatenated):
        parts = [part for part in x.parts if x.reopen is not None or isinstance(part, Concatenated | Mapped)]
        return [file for part in parts for file in files_of_images(part)]
    if isinstance(x, ColumnMajor):
        return files_of_images(x.raw)
    file = x.file if isinstance(x, Mapped) else x.filename if isinstance(x, np.memmap) else None
    return [] if file is None or address_of(Path(file)) else [Path(file)]


def files_of_sources(specs: Iterable[str | Path]) -> list[Path]:
    """Files and folders; of a pattern one that it matches, of the name of a set nothing."""
    found: list[Path] = []
    for spec in specs:
        if not is_remote(spec):
            path = split_spec(spec)[0]
            found += [path] if path.exists() else map(Path, sorted(glob.glob(str(path), recursive=True))[:1])
    return [path for path in found if address_of(path.absolute()) is None]


def state_of_sources(specs: Iterable[str | Path]) -> list[Any]:
    """What changes when a file that these name does, or another comes to stand in its place. Of the name of a set nothing."""
    found = []
    for spec in specs:
        path, query = split_spec(spec)
        beside = [path.parent / value for value in query.values()]  # labels, say
        paths = [path] if path.exists() else map(Path, sorted(glob.glob(str(path), recursive=True)))
        found += [_state(one) for one in [*paths, *(one for one in beside if one.is_file())]]
    return found


def _state(path: Path) -> Any:
    if (tags := tags_of(path)) is not None:
        return tags
    if not path.is_dir():
        return size_and_time(path)
    if is_packed(path):
        pool = open_pool(path)
        return [pool.identity, digest(pool.excluded.tolist())]
    all_below = hashlib.blake2b(digest_size=16)
    for folder, below, names in os.walk(os.fsencode(path)):
        below.sort()
        for name in sorted(names):
            all_below.update(repr((folder, name, _look(os.path.join(folder, name)))).encode())  # noqa: PTH118
    return all_below.hexdigest()


def _look(file: bytes) -> list[int] | None:
    try:
        return size_and_time(file)
    except OSError:  # a link that leads nowhere: whoever reads it says so
        return None
