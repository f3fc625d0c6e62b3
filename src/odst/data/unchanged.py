"""Whether the files of a pool are what they were when it was packed: by size and time, and by their hash where these differ.

FOLDER/.checked.json holds size and time of every file whose hash was last found right. A pool that was copied has other
times: its files are read once, and that is noted.
"""

import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from odst.data.remote import address_of
from odst.engine.interface import Failed, engine, share
from odst.engine.local import Local
from odst.errors import UserError
from odst.files import sha256, write_json
from odst.progress import stage

log = logging.getLogger("odst")

FILE = ".checked.json"
_found: dict[Path, list[int]] = {}  # by this process, for folders that nothing can be noted in


def check_unchanged(folder: Path, hashes: Mapping[str, str], way: str) -> None:
    """Raise one line if a file of `folder` is gone or has changed; `way` is what it advises."""
    seen = _read(folder)
    now = {name: _look(folder / name, way) for name in hashes}
    doubtful = [name for name in hashes if now[name] not in (seen.get(name), _found.get((folder / name).absolute()))]
    if not doubtful:
        return
    with stage(f"check {folder.name}", len(doubtful), "files") as advance:
        for name in doubtful:
            if sha256(folder / name) != hashes[name]:
                raise UserError(f"{folder / name}: this file has changed since it was written. {way}")
            advance(1)
    note_checked(folder, list(hashes))


def note_checked(folder: Path, names: list[str]) -> None:
    """From now on these files, of which the hash was just made or found right, are known by size and time."""
    now = {name: _look(folder / name, "") for name in names}
    try:
        write_json(folder / FILE, _read(folder) | now)
    except OSError as error:
        _found.update({(folder / name).absolute(): look for name, look in now.items()})
        log.debug("%s: it cannot be noted that its files were checked (%s)", folder, error)


def size_and_time(file: Path | bytes) -> list[int]:
    found = os.stat(file)  # noqa: PTH116  (a name may be bytes)
    return [found.st_size, found.st_mtime_ns]


def _look(file: Path, way: str) -> list[int]:
    try:
        return size_and_time(file)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{file}: this file is missing. {way}") from None


def _read(folder: Path) -> dict[str, list[int]]:
    try:
        value = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return value if isinstance(value, dict) else {}
    except (OSError, ValueError, RecursionError):
        return {}


def compare_files(name: str, checks: Sequence[tuple[Path, str]]) -> Iterable[tuple[Path, str]]:
    """The files of these (file, SHA-256) that are missing or differ, on the engine of the day; of a share only its own. What was
    fetched lies on this machine alone, and is looked at here."""
    mine = share()
    own = [one for i, one in enumerate(checks) if mine is None or i % mine.count == mine.index]
    where = Local() if own and address_of(own[0][0]) else engine()
    if own:
        where.check((), [file for file, _ in own if file.is_file()])
    with stage(name, len(own), "files") as advance:
        for (file, _), what in zip(own, where.map(_comparing, own), strict=True):
            if what:
                yield file, what.reason if isinstance(what, Failed) else what
            advance(1)


def _comparing() -> Callable[[tuple[Path, str]], str]:
    return _compare


def _compare(check: tuple[Path, str]) -> str:
    file, expected = check
    return "is missing" if not file.is_file() else "" if sha256(file) == expected else "differs"
