"""This machine's copies of what lies on object stores: where they are, who holds them, and how much room they may take."""

import logging
import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from odst.errors import UserError

log = logging.getLogger("odst")

ENTRY, LOCK = ".entry.json", ".lock"
GIGABYTES = 100.0
PATIENCE = 5.0  # seconds that readers who are just opening an entry may keep it from being fetched
_used: dict[Path, int] = {}  # entries that this process holds, each by an open file


def cache() -> Path:
    given = os.environ.get("ODST_CACHE") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/odst/remote"
    return Path(given).expanduser().absolute()


def limit() -> float:
    """Bytes."""
    text = os.environ.get("ODST_CACHE_GB") or str(GIGABYTES)
    try:
        size = float(text)
    except ValueError:
        size = math.nan
    if not size > 0:
        raise UserError(f"ODST_CACHE_GB is a number of gigabytes above 0, got {text!r}.")
    return size * 1e9


def hold(place: Path, address: str, is_there: Callable[[], bool], bring: Callable[[], None]) -> None:
    """Let this process hold an entry until it ends, so that nobody takes it away, and have what it needs brought there by one
    process alone. Who only reads does not wait for other readers."""
    import fcntl

    lock, waited, said = _lock(place), 0.0, False
    while True:
        shared = _try(lock, fcntl.LOCK_SH)
        if shared and is_there():
            os.utime(lock)
            return
        fcntl.flock(lock, fcntl.LOCK_UN)
        if _try(lock, fcntl.LOCK_EX):
            try:
                bring()
                os.utime(lock)
            finally:
                fcntl.flock(lock, fcntl.LOCK_SH)
            return
        if shared and (waited := waited + 0.2) > PATIENCE:
            raise UserError(_busy(place, address))
        if not shared and not said:
            log.warning("%s: another process on this machine is fetching it; waiting", address)
            said = True
        time.sleep(0.2)


@contextmanager
def alone(place: Path, address: str) -> Iterator[None]:
    """For one who writes: nobody else on this machine has the entry; afterwards this process holds it as readers do."""
    import fcntl

    lock = _lock(place)
    if not _try(lock, fcntl.LOCK_EX):
        raise UserError(_busy(place, address))
    try:
        os.utime(lock)
        yield
    finally:
        fcntl.flock(lock, fcntl.LOCK_SH)


def _busy(place: Path, address: str) -> str:
    return (
        f"{address}: another process on this machine works with its copy in {place}, and that must change now. Wait until it "
        "has ended, or set ODST_CACHE to another folder."
    )


def _lock(place: Path) -> int:
    if place not in _used:
        place.mkdir(parents=True, exist_ok=True)
        _used[place] = os.open(place / LOCK, os.O_RDWR | os.O_CREAT, 0o666)  # until this process ends
    return _used[place]


def _try(lock: int, kind: int) -> bool:
    import fcntl

    try:
        fcntl.flock(lock, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def make_room(size: int, address: str) -> None:
    """Take away what was not used for the longest time, and is not in use, until so many bytes more are within the limit."""
    entries = [place for place in cache().glob("*/*") if (place / LOCK).is_file()]
    sizes = {place: sum(file.stat().st_size for file in place.rglob("*") if file.is_file()) for place in entries}
    free = limit() - sum(sizes.values())
    for place in sorted(entries, key=lambda place: (place / LOCK).stat().st_mtime):
        if free >= size:
            break
        if place not in _used and _take_away(place):
            free += sizes[place]
    if free < size:
        raise UserError(
            f"{address}: {size / 1e9:.3g} GB more are beyond the cache's {limit() / 1e9:.3g} GB in {cache()}. Set ODST_CACHE_GB "
            "higher, or ODST_CACHE to a larger disk."
        )


def _take_away(place: Path) -> bool:
    import fcntl

    with open(place / LOCK) as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        (place / ENTRY).unlink(missing_ok=True)
        shutil.rmtree(place, ignore_errors=True)
    return True
