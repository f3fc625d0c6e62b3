"""Tar shards in WebDataset convention: files of one key are one sample. Nothing is ever extracted to disk."""

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from odst.data.decoding import ENDINGS, HEAD, Rejected, check_head
from odst.data.items import Item, file_uri, label_text, portions, quoted
from odst.errors import UserError, refused

LABEL_KEYS = ("label", "cls", "class")


class Member(NamedTuple):
    name: bytes
    offset: int
    size: int
    fault: str  # "" or what is wrong with it

    @property
    def ending(self) -> str:
        return self.name.rpartition(b".")[2].decode("ascii", "replace").lower()


class Sample(NamedTuple):
    picture: Member
    label: Member | None  # its .cls or .json


class Tar:
    """One tar file. Only headers are read here; a part holds offsets, and its bytes are read where it is decoded."""

    features: np.dtype | None = None
    width: int | None = None

    def __init__(self, path: Path):
        self.name, self.path = str(path), path
        advice = "Only uncompressed tars can be read at random: unpack it with gunzip, or make it again."
        with refused(str(path), "a readable tar", advice):
            tarfile.open(path, "r:").close()
        if next(self._samples(), None) is None:
            raise UserError(f"{path}: there is no file in this tar. Give a tar of image files.")

    def count(self) -> int:
        return sum(1 for _ in self._samples())

    def parts(self, start: int, most: int) -> Iterator["TarPart"]:
        for samples in portions(self._samples(), start, most):
            yield TarPart(self.path, samples)

    def _samples(self) -> Iterator[Sample]:
        for _, group in groupby(self._members(), key=lambda member: _key(member.name)):
            members = list(group)
            pictures = [member for member in members if member.fault or member.ending in ENDINGS]
            labels = sorted((m for m in members if m.ending in ("cls", "json") and not m.fault), key=lambda m: m.ending)
            if not pictures:
                pictures = [members[0]._replace(fault="no image of this key")]
            for picture in pictures:
                yield Sample(picture, labels[0] if labels else None)

    def _members(self) -> Iterator[Member]:
        length, lost = self.path.stat().st_size, False
        with (
            open(self.path, "rb") as file,
            tarfile.open(self.path, "r:", errors="surrogateescape", encoding="utf-8") as tar,
        ):
            while True:
                member = _next(tar)
                if member is None:  # the end, or a header that is none: look for the next one, block by block
                    file.seek(tar.offset)
                    block = file.read(tarfile.BLOCKSIZE)
                    if not block or not (lost or any(block)):
                        return
                    if not lost:
                        yield Member(b"at byte %d" % tar.offset, tar.offset, 0, "broken tar header")
                    lost = True
                    tar.offset += tarfile.BLOCKSIZE
                    continue
                lost = False
                tar.members.clear()  # type: ignore[attr-defined]  # or it keeps every header of 10^7
                if member.isdir():
                    continue
                fault = "" if member.isreg() and not member.issparse() else "not a file"
                if member.offset_data + member.size > length:
                    fault = "truncated"
                yield Member(member.name.encode("utf-8", "surrogateescape"), member.offset_data, member.size, fault)


def _next(tar: tarfile.TarFile) -> tarfile.TarInfo | None:
    """The member whose header stands at `tar.offset`, or None and the offset as it was."""
    at = tar.offset
    try:
        member = tar.next()
    except (tarfile.TarError, ValueError, OverflowError, RecursionError, MemoryError):  # of a header that is none
        tar.offset = at
        return None
    if member is not None and not 0 <= member.size < 1 << 62:  # it would lead back, round and round, or nowhere
        tar.offset = member.offset
        return None
    return member


def _key(name: bytes) -> bytes:
    """WebDataset's: the path up to the first dot of the file name."""
    folder, slash, file = name.rpartition(b"/")
    return folder + slash + file.partition(b".")[0]


@dataclass(frozen=True)
class TarPart:
    path: Path
    samples: list[Sample]

    def __len__(self) -> int:
        return len(self.samples)

    def __iter__(self) -> Iterator[Item]:
        uri = file_uri(self.path)
        with open(self.path, "rb") as file:
            for picture, label in self.samples:
                text = None if label is None else _label(file, label)
                yield Item(f"{uri}#member={quoted(picture.name)}", text, partial(_read, file, picture))


def _read(file: BinaryIO, member: Member) -> bytes:
    if member.fault:
        raise Rejected(member.fault)
    file.seek(member.offset)
    head = file.read(min(HEAD, member.size))
    check_head(head, member.size)
    return head + file.read(member.size - len(head))


def _label(file: BinaryIO, member: Member) -> str | None:
    """The text of a .cls, or what a .json calls label, cls or class. A broken label is no label."""
    file.seek(member.offset)
    data = file.read(min(member.size, 1 << 20))
    if member.ending == "cls":
        return label_text(data.strip())
    try:
        record = json.loads(data)
    except (ValueError, RecursionError):
        return None
    value = next((record[key] for key in LABEL_KEYS if key in record), None) if isinstance(record, dict) else None
    return label_text(value) if isinstance(value, str | int) else None
