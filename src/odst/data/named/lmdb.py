"""LSUN comes as an LMDB database. This reads one that nobody is writing to, without the library: a tree of pages."""

import struct
from collections.abc import Iterator
from pathlib import Path

from odst.errors import UserError

_MAGIC = 0xBEEFC0DE
_BRANCH, _LEAF, _BIG = 0x01, 0x02, 0x01  # page flags, and the node flag of a value on pages of its own
_HEAD = 16  # bytes: page number, padding, flags, bounds of the free space
_NOBODY = 0xFFFFFFFFFFFFFFFF


def read_lmdb(data: bytes, path: Path) -> Iterator[bytes]:
    """The values of the main table in the order of their keys; `path` is for the message when it is none."""
    try:
        if len(data) < 2 * 4096 or struct.unpack_from("<I", data, _HEAD)[0] != _MAGIC:
            raise ValueError("its first page is not a database's")
        size = struct.unpack_from("<I", data, _HEAD + 24)[0]
        metas = [struct.unpack_from("<48x48x8xQ", data, _HEAD + 24 + page * size)[0] for page in (0, 1)]
        newest = int(metas[1] > metas[0])  # two copies of the root, the one with the later transaction counts
        root = struct.unpack_from("<Q", data, _HEAD + 24 + newest * size + 48 + 40)[0]
        if root != _NOBODY:
            yield from _values(data, root, size, depth=0)
    except (struct.error, ValueError, ZeroDivisionError) as error:
        raise UserError(f"{path}: not a whole LMDB database ({error}). Fetch it again.") from None


def _values(data: bytes, page: int, size: int, depth: int) -> Iterator[bytes]:
    start = page * size
    flags, lower = struct.unpack_from("<HH", data, start + 10)
    if depth > 32 or not flags & (_BRANCH | _LEAF):
        raise ValueError(f"page {page} is no node of the tree")
    for place in struct.unpack_from(f"<{(lower - _HEAD) // 2}H", data, start + _HEAD):
        low, high, node_flags, key = struct.unpack_from("<HHHH", data, start + place)
        if flags & _BRANCH:
            yield from _values(data, low | high << 16 | node_flags << 32, size, depth + 1)
            continue
        length, at = low | high << 16, start + place + 8 + key
        if node_flags & _BIG:
            at = struct.unpack_from("<Q", data, at)[0] * size + _HEAD
        if at + length > len(data):
            raise ValueError("a value lies beyond the end")
        yield data[at : at + length]
