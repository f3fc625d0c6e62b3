"""The pictures that rows came from, read again from their addresses when somebody looks at them."""

from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

import numpy as np

from odst.data.decoding import Fit, Rejected, decode
from odst.data.images import Lookup
from odst.data.items import read_file

SIDE = 64  # pixels: what a page shows of a picture
GREY = 200
NO_PICTURES = (
    "its pool has vectors, and no picture that they came from can be read here, so there is nothing to look at. "
    "Vectors in parquet are shown by a column of paths (docs/sources.md)."
)


def read_picture(uri: str, size: int, fit: Fit) -> np.ndarray | None:
    """A picture file at this size; None for an address that is none, or cannot be read here."""
    place = urlsplit(uri)
    if place.scheme != "file" or place.fragment:
        return None
    try:
        return decode(read_file(unquote_to_bytes(place.path)), size, fit, 1)[0]
    except Rejected:
        return None


class ByAddress:
    """The pictures of a pool of vectors that came with the paths of their pictures; those that cannot be read are grey."""

    dtype = np.dtype(np.uint8)

    def __init__(self, addresses: Lookup, count: int):
        self.addresses, self.shape = addresses, (count, SIDE, SIDE, 3)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        rows = np.arange(len(self))[rows]
        found = [read_picture(uri, SIDE, "crop") for uri in self.addresses[np.atleast_1d(rows)]]
        grey = np.full(self.shape[1:], GREY, np.uint8)
        tiles = np.array([grey if one is None else one for one in found], np.uint8).reshape(-1, *self.shape[1:])
        return tiles if rows.ndim else tiles[0]


def pictures_of(addresses: Lookup, count: int, looked_at: int = 20) -> ByAddress | None:
    """None where none of the first few can be read."""
    first = addresses[np.arange(min(count, looked_at))]
    return ByAddress(addresses, count) if any(read_picture(uri, SIDE, "crop") is not None for uri in first) else None
