"""A folder tree of pictures. The class of a picture is the folder directly below the root that it lies in."""

# ruff: noqa: PTH114, PTH116, PTH118, PTH208  (file names are bytes here: not all of them are text)

import logging
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np

from odst.data.items import Files, file_uri, label_text, portions
from odst.errors import UserError

log = logging.getLogger("odst")

OUT = "link out of the source"
LITTER = {b".ds_store", b"thumbs.db", b"desktop.ini"}  # what desktops leave in any folder of pictures


class Folder:
    """Every file below `path` is an item: what is no picture is rejected with a reason, never passed over in silence, but for
    what desktops leave in folders.

    A link that leads out of the folder is rejected, too, unless `follow`: who made the folder could show any picture of this
    machine by it. Order: the files of a folder by the bytes of their names, then its subfolders likewise.
    """

    features: np.dtype | None = None
    width: int | None = None

    def __init__(self, path: Path, follow: bool = False):
        self.name, self.root, self.follow = str(path), os.fsencode(path), follow
        if next(self._entries(), None) is None:
            raise UserError(
                f"{path}: there is no image in this folder. Give a folder of image files, or of subfolders of them."
            )

    def count(self) -> int:
        total = out = 0
        for _, fault in self._entries():
            total, out = total + 1, out + (fault == OUT)
        say_left_out(self.name, out)
        return total

    def parts(self, start: int, most: int) -> Iterator[Files]:
        uri = file_uri(self.root)
        for paths in portions(self._entries(), start, most):
            yield Files(self.root, uri, [(path, _label(path), fault) for path, fault in paths])

    def empty_class(self) -> str | None:
        """The name of a subfolder without any file: a class by its name that has no image."""
        with os.scandir(self.root) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if _is_folder(entry) and not any(True for _ in _walk(self.root, entry.name, self.follow)):
                    return label_text(entry.name)
        return None

    def _entries(self) -> Iterator[tuple[bytes, str]]:
        return _walk(self.root, b"", self.follow)


def _label(path: bytes) -> str | None:
    top, separator, _ = path.partition(os.sep.encode())
    return label_text(top) if separator else None


def say_left_out(name: str, links: int) -> None:
    if links:
        log.warning(
            "%s: %d %s out of it, left out. --follow-links follows them; in a config, %s?links=follow.",
            name, links, "link leads" if links == 1 else "links lead", name,
        )  # fmt: skip


def leads_out(path: bytes, root: bytes) -> bool:
    """Whether a link below `root`, a real path, leads to what is not."""
    if not os.path.islink(path):
        return False
    there = os.path.realpath(path)
    return there != root and not there.startswith(root.rstrip(b"/") + b"/")


def links_out(folder: Path) -> int:
    """How many of the names directly in a folder lead out of it."""
    root, real = os.fsencode(folder), os.path.realpath(os.fsencode(folder))
    return sum(leads_out(os.path.join(root, name), real) for name in os.listdir(root))


def _walk(root: bytes, below: bytes, follow: bool) -> Iterator[tuple[bytes, str]]:
    """(path below root, what is wrong with it). Linked folders are followed, but never into a folder they lie in."""
    real = b"" if follow else os.path.realpath(root)
    waiting: list[tuple[bytes, frozenset[tuple[int, int]] | None]] = [(below, frozenset())]  # and the folders above it
    while waiting:
        below, above = waiting.pop()
        if above is None:
            yield below + b"/", OUT  # with a / its name is that of a class
            continue
        folder = os.path.join(root, below) if below else root
        try:
            found = os.stat(folder)
            place = (found.st_dev, found.st_ino)
            if place in above:
                yield below, "symlink loop"
                continue
            subfolders: list[bytes] = []
            out: set[bytes] = set()
            names = _sorted(_files(folder, subfolders, real, out))
        except OSError:
            yield below, "unreadable"
            continue
        for name in names:
            yield os.path.join(below, name), OUT if name in out else ""
        for name in sorted(subfolders, reverse=True):
            waiting.append((os.path.join(below, name), None if name in out else above | {place}))


def _files(folder: bytes, subfolders: list[bytes], real: bytes, out: set[bytes]) -> Iterator[bytes]:
    """The names of files; those of folders, and of what leads out of the folder `real`, into the others. Without a `real`
    nothing does."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if real and entry.is_symlink() and leads_out(entry.path, real):
                out.add(entry.name)
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
