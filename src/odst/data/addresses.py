"""Addresses -> the pictures behind them, read again as they are: files, members of tars, rows of tables and arrays."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from urllib.parse import unquote, unquote_to_bytes, urlsplit

import numpy as np

from odst.data.decoding import Rejected
from odst.data.items import read_file
from odst.data.sources import open_source
from odst.errors import UserError

AT_ONCE = 64  # items of a tar, table or array that are looked at together


def file_of(uri: str) -> bytes | None:
    """The path of a picture that is a file by itself; None for what lies inside another, or nowhere here."""
    place = urlsplit(uri)
    return unquote_to_bytes(place.path) if place.scheme == "file" and not place.fragment else None


def read_originals(uris: Sequence[str]) -> Iterator[tuple[int, bytes | np.ndarray | None]]:
    """(position in `uris`, what stands there): encoded bytes, an array's row, or None for what cannot be read any more.

    In the order of the addresses, so that every tar or table is gone through once.
    """
    order = sorted(range(len(uris)), key=lambda i: uris[i])
    for container, group in groupby(order, key=lambda i: uris[i].partition("#")[0]):
        places = list(group)
        alone = [i for i in places if file_of(uris[i]) is not None]
        yield from ((i, _file(uris[i])) for i in alone)
        inside = [i for i in places if i not in set(alone)]
        if inside:
            yield from _members(container, inside, uris)


def _file(uri: str) -> bytes | None:
    path = file_of(uri)
    assert path is not None
    try:
        return read_file(path)
    except Rejected:
        return None


def _members(container: str, places: list[int], uris: Sequence[str]) -> Iterator[tuple[int, bytes | np.ndarray | None]]:
    wanted: dict[str, list[int]] = {}
    for i in places:
        wanted.setdefault(uris[i], []).append(i)
    place = urlsplit(container)
    if place.scheme == "file":
        try:
            source = open_source(Path(unquote(place.path)))
            for part in source.parts(0, AT_ONCE):
                for item in part:
                    for i in wanted.pop(item.uri, ()):
                        try:
                            yield i, item.read()
                        except Rejected:
                            yield i, None
                if not wanted:
                    return
        except (UserError, OSError):  # it has moved, or is none any more
            pass
    yield from ((i, None) for lost in wanted.values() for i in lost)
