"""A folder tree of pictures. The class of a picture is the folder directly below the root that it lies in."""

# ruff: noqa: PTH116, PTH118  (file names are bytes here: not all of them are text)

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from odst.data.items import Files, file_uri, label_text, portions
from odst.errors import UserError

LITTER = {b".ds_store", b"thumbs.db", b"desktop.ini"}  # what desktops leave in any folder of pictures


class Folder:
    """Every file below `path` is an item: what is no picture is rejected with a reason, never passed over in silence, but for
    what desktops leave in folders.

    Order: the files of a folder by the bytes of their names, then its subfolders likewise.
    """

    features: np.dtype | None = None
    width: int | None = None

    def __init__(self, path: Path):
        self.name, self.root = str(path), os.fsencode(path)
        if next(self._entries(), None) is None:
            raise UserError(
                f"{path}: there is no image in this folder. Give a folder of image files, or of subfolders of them."
            )

    def count(self) -> int:
        return sum(1 for _ in self._entries())

    def parts(self, start: int, most: int) -> Iterator[Files]:
        uri = file_uri(self.root)
        for paths in portions(self._entries(), start, most):
            yield Files(self.root, uri, [(path, _label(path), fault) for path, fault in paths])

    def empty_class(self) -> str | None:
        """The name of a subfolder without any file: a class by its name that has no image."""
        with os.scandir(self.root) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if _is_folder(entry) and not any(True for _ in _walk(self.root, entry.name)):
                    return label_text(entry.name)
        return None

    def _entries(self) -> Iterator[tuple[bytes, str]]:
        return _walk(self.root, b"")


def _label(path: bytes) -> str | None:
    top, separator, _ = path.partition(os.sep.encode())
    return label_text(top) if separator else None


def _walk(root: bytes, below: bytes) -> Iterator[tuple[bytes, str]]:
    """(path below root, what is wrong with it). Linked folders are followed, but never into a folder they lie in."""
    waiting: list[tuple[bytes, frozenset[tuple[int, int]]]] = [(below, frozenset())]  # and the folders above it
    while waiting:
        below, above = waiting.pop()
        folder = os.path.join(root, below) if below else root
        try:
            found = os.stat(folder)
            place = (found.st_dev, found.st_ino)
            if place in above:
                yield below, "symlink loop"
                continue
            subfolders: list[bytes] = []
            names = _sorted(_files(folder, subfolders))
        except OSError:
            yield below, "unreadable"
            continue
        for name in names:
            yield os.path.join(below, name), ""
        for name in sorted(subfolders, reverse=True):
            waiting.append((os.path.join(below, name), above | {place}))


def _files(folder: bytes, subfolders: list[bytes]) -> Iterator[bytes]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_folder(entry):
                subfolders.append(entry.name)
            elif entry.name.lower() not in LITTER and not entry.name.startswith(b"._"):
                yield entry.name


def _is_folder(entry: os.DirEntry[bytes]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link to itself: reading it will say so
        return False


def _sorted(names: Iterator[bytes], block: int = 65536) -> Iterator[bytes]:
    """Sorted, kept as one array of bytes: a flat folder of 10^7 files takes its names and no Python objects."""
    blocks = []
    while some := list(islice(names, block)):
        blocks.append(np.array(some, dtype=bytes))
    if not blocks:
        return iter(())
    every = np.concatenate(blocks)
    every.sort()
    return (name for start in range(0, len(every), block) for name in every[start : start + block].tolist())
