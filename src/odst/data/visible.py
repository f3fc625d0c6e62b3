"""The local files behind images and sources: what every machine at work must see. What was fetched has an address instead."""

import glob
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from odst.data.images import Images
from odst.data.mapped import Mapped
from odst.data.remote import address_of, is_remote
from odst.data.sources import split_spec
from odst.data.views import ColumnMajor, Concatenated


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
