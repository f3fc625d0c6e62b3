"""Who holds a lock, as its file says, and whether that process is still at work."""

import json
import os
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

FILE = ".odst-lock"
STALE = 60.0  # seconds: so old a file time frees the lock of another machine


@dataclass(frozen=True)
class Holder:
    """Who writes a folder, or one part of the work in it."""

    pid: int
    host: str
    machine: str  # its boot and its processes' numbering: a pid means something there only
    born: str  # when the process began, as its system counts: a pid may be given anew
    since: float  # seconds since 1970
    token: str
    doing: str
    part: str | None = None

    def __str__(self) -> str:
        day = "" if time.localtime(self.since)[:3] == time.localtime()[:3] else "%Y-%m-%d "
        since = time.strftime(f"{day}%H:%M", time.localtime(self.since))
        return f"process {self.pid} on {self.host} since {since} ({self.doing})"


def read_holder(file: Path) -> Holder | None:
    """Who holds it; None where there is no such file. What cannot be read is somebody's who is just writing it."""
    try:
        values = json.loads(file.read_bytes())
        found = Holder(**{name: values[name] for name in Holder.__dataclass_fields__})
        texts = (found.host, found.machine, found.born, found.token, found.doing, found.part or "")
        if type(found.pid) is not int or not all(isinstance(text, str) for text in texts):
            raise ValueError("of no odst")
        str(found)  # a time that there is
        return found
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, OverflowError, OSError):
        return Holder(0, "an unknown machine", "?", "", time.time(), "", "unknown")


def alive(holder: Holder, file: Path) -> bool:
    """Whether it is at work: as its system says, or by the time of its file where that is another's or does not tell."""
    if (holder.host, holder.machine) == (socket.gethostname(), machine()):
        born = born_of(holder.pid)
        if born != holder.born:
            return False
        if born:
            return True
    try:
        return _now(file.parent) - file.stat().st_mtime < STALE
    except FileNotFoundError:
        return False


def _now(folder: Path) -> float:
    """By the clock that dates the files of `folder`: machines may differ by minutes."""
    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=f"{FILE}.", suffix=".part") as file:
            return os.fstat(file.fileno()).st_mtime
    except OSError:
        return time.time()


def machine() -> str:
    """What a pid is counted in: containers of one host may have one name and different processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def born_of(pid: int) -> str | None:
    """When this process began; None for one that is gone or waits to be buried. Empty where the system does not tell."""
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return None if state in "ZX" else rest[18]
    except OSError:
        if Path("/proc/self/stat").exists():
            return None
    if os.name == "posix":  # elsewhere this would end the process
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return None
        except OSError:
            pass
    return ""
