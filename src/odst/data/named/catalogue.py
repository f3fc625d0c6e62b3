"""The paper's sets by name, as catalogue.toml has them: what they are, where they come from, under which terms, and how a
copy is checked."""

import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from odst.data.named import conversion

UNTRIED = "untried: the address could not be reached from where this was written"


@dataclass(frozen=True)
class Remote:
    """One file to fetch. `instead` is a folder that makes it unnecessary: the same thing, already unpacked."""

    url: str
    checksum: str
    bytes: int
    instead: str = ""
    keep: bool = True  # False: an archive that is worthless once it is unpacked

    @property
    def name(self) -> str:
        return self.url.partition("?")[0].rpartition("/")[2]


@dataclass(frozen=True, kw_only=True)
class Entry:
    what: str
    images: str  # counts
    licence: str
    source: str  # the publisher's page
    here: tuple[tuple[str, ...], ...]  # any of these groups of paths in the data folder is the set
    files: tuple[Remote, ...] = ()
    make: Callable[[Path], None] | None = None  # turns the files into what `here` names: a function of conversion.py
    bring: str = ""  # how to come by a set that is not fetched
    size: str = ""  # where no file states it
    checked: str = UNTRIED


def _read() -> dict[str, Entry]:
    text = (files("odst") / "data" / "named" / "catalogue.toml").read_text(encoding="utf-8")
    return {name: _entry(**values) for name, values in tomllib.loads(text).items()}


def _entry(*, here: list[list[str]], files: Sequence[dict[str, Any]] = (), make: str = "", **plain: str) -> Entry:
    groups, remotes = tuple(map(tuple, here)), tuple(Remote(**one) for one in files)
    made = getattr(conversion, make) if make else None
    if make == "unpack":
        made = partial(_unpack, remotes[0].name, groups[0][0])
    return Entry(here=groups, files=remotes, make=made, **plain)


def _unpack(archive: str, top: str, folder: Path) -> None:
    conversion.unpack(folder / archive, top)


CATALOGUE = _read()
