"""What every source is made of: items, handed out in parts that a decoding process can read by itself."""

# ruff: noqa: PTH116, PTH117, PTH118  (file names are bytes here: not all of them are text)

import errno
import os
import stat
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import quote_from_bytes

import numpy as np

from odst.data.decoding import HEAD, Rejected, check_head
from odst.data.remote import address_of

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Item:
    """One picture (or feature vector) not yet read. `read` gives its encoded bytes, or its array, or raises Rejected."""

    uri: str  # percent-encoded
    label: str | None
    read: Callable[[], bytes | np.ndarray]


class Part(Protocol):
    """Some consecutive items of a source. It pickles small or carries its bytes, so any process can read it."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Item]: ...


class Source(Protocol):
    """Items in an order that is the same every time, on every machine and file system."""

    name: str  # as the user gave it, for messages
    features: np.dtype | None  # of feature vectors; None for pictures
    width: int | None  # of feature vectors; None for pictures

    def count(self) -> int: ...

    def parts(self, start: int, most: int) -> Iterator[Part]:
        """All items from number `start` on, at most `most` at a time."""
        ...


def file_uri(path: str | bytes | os.PathLike[str]) -> str:
    """Of what was fetched, where it came from."""
    absolute = Path(os.fsdecode(path)).absolute()
    return address_of(absolute) or absolute.as_uri()


def quoted(name: bytes) -> str:
    """A part of a path or fragment, percent-encoded byte by byte: no name of any file system is left out."""
    return quote_from_bytes(name.replace(os.sep.encode(), b"/"))


@lru_cache(maxsize=100_000, typed=True)
def label_text(label: bytes | str | int | float) -> str:
    """A class name as it is compared: text in Unicode's composed form, so that 'café' from any file system is one class."""
    if isinstance(label, float) and label.is_integer():  # pandas makes 3 a 3.0 where the column has gaps
        label = int(label)
    text = label.decode("utf-8", "backslashreplace") if isinstance(label, bytes) else str(label)
    return unicodedata.normalize("NFC", text.encode("utf-8", "backslashreplace").decode()).strip()


def read_file(path: bytes) -> bytes:
    """The bytes of one picture file. Anything that is not one is rejected before it is read whole."""
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):  # opening a pipe would wait for ever
            raise Rejected("not a file", "a folder, pipe, socket or device")
        with open(path, "rb") as file:
            head = file.read(HEAD)
            check_head(head, found.st_size)
            return head + file.read()
    except OSError as error:
        reason = {errno.ENOENT: "missing", errno.ENOTDIR: "missing", errno.ELOOP: "symlink loop"}
        raise Rejected(reason.get(error.errno or 0, "unreadable"), error.strerror or str(error)) from None
    except ValueError as error:  # a null byte in a listed name
        raise Rejected("missing", str(error)) from None


@dataclass(frozen=True)
class Files:
    """A part: picture files, or names already known to be unusable."""

    root: bytes
    root_uri: str
    entries: list[tuple[bytes, str | None, str]]  # path below root, label, "" or what is wrong with it

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Item]:
        for path, label, fault in self.entries:
            uri = file_uri(path) if os.path.isabs(path) else f"{self.root_uri}/{quoted(path)}"
            yield Item(uri, label, partial(self._read, path, fault))

    def _read(self, path: bytes, fault: str) -> bytes:
        if fault:
            raise Rejected(fault)
        return read_file(os.path.join(self.root, path))


@dataclass(frozen=True)
class Encoded:
    """A part: encoded pictures of a table, carried along, or paths beside it."""

    table: Path
    rows: np.ndarray
    pictures: list[bytes | None]
    paths: list[str | None]
    labels: list[str | None] | None

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Item]:
        uri = file_uri(self.table)
        for i, j in enumerate(self.rows.tolist()):
            yield Item(f"{uri}#row={j}", self.labels[i] if self.labels else None, partial(self._read, i))

    def _read(self, i: int) -> bytes:
        data, path = self.pictures[i], self.paths[i]
        if data is not None:
            check_head(data[:HEAD], len(data))
            return data
        if path is None:
            raise Rejected("missing", "neither bytes nor path in this row")
        return read_file(os.path.join(os.fsencode(self.table.parent), os.fsencode(path)))


def portions(entries: Iterable[T], start: int, most: int) -> Iterator[list[T]]:
    """Lists of at most `most` entries, from number `start` on."""
    rest = islice(entries, start, None)
    while portion := list(islice(rest, most)):
        yield portion
