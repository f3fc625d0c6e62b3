"""One writer at a time: while a folder is written, a file in it says by whom.

A lock ends with its process, also with a killed one: on one machine that is seen at once, from another by a file time that
the holder renews every 10 s. Who only reads takes none. A process that the holder has started finds the lock's token in its
environment and is let through; so is the holder itself, a second time.
"""

import errno
import json
import logging
import os
import re
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path

from odst.errors import UserError
from odst.files import refuse_remote
from odst.holders import FILE, Holder, alive, born_of, machine, read_holder

log = logging.getLogger("odst")

TOKENS = "ODST_LOCKS"  # the environment's variable: those of the locks that this process, or who started it, holds
BEAT = 10.0  # seconds: how often a holder renews the time of its file
PATIENCE = 5.0  # seconds for another process to finish taking over, which takes a moment
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)  # of simple file systems


@contextmanager
def lock(folder: str | os.PathLike[str], doing: str, *, part: str | None = None) -> Iterator[None]:
    """Be the only process that writes `folder`, or raise at once one line that says who does.

    `doing` is the command, for that line. With a `part` ("label 3/8") only that part of the work is locked: several may be
    held side by side, none beside a lock of the whole. A folder that is not there is made, and goes again if nothing came
    into it. Where nobody may write there is nothing to lock.
    """
    refuse_remote(Path(folder))
    held = _acquire(Path(folder), doing, part)
    try:
        yield
    finally:
        if held is not None:
            held.release()


def held_parts(folder: str | os.PathLike[str]) -> list[Holder]:
    """Those who write parts of the work in `folder` at this moment, but for our own."""
    return _busy(sorted(Path(folder).glob(f"{FILE}-*")))


def is_lock(file: Path) -> bool:
    """Whether a file is a lock, or one in the making: what looks at a folder's content passes it by."""
    return file.name == FILE or file.name.startswith((f"{FILE}-", f"{FILE}."))


def tokens() -> list[str]:
    """Of the locks that let this process through; a worker on another machine is to get them in TOKENS, joined by colons."""
    return [token for token in os.environ.get(TOKENS, "").split(":") if token]


class _Held:
    """A lock of this process, with its heartbeat."""

    def __init__(self, file: Path, holder: Holder, made: list[Path]):
        self.file, self.holder, self.made = file, holder, made
        self.ended = threading.Event()
        os.environ[TOKENS] = ":".join([*tokens(), holder.token])
        threading.Thread(target=self._beat, name="lock", daemon=True).start()

    def _beat(self) -> None:
        missed = 0
        while not self.ended.wait(BEAT):
            if self._is_ours():
                missed = 0
                with suppress(OSError):
                    os.utime(self.file)
            elif (missed := missed + 1) == 2:  # once may be a folder that is just being moved
                other = read_holder(self.file)
                why = f"{other} is" if other else "it was deleted or moved"
                log.error("%s: this process is its writer no more, %s. It stops here.", self.file.parent, why)
                os.kill(os.getpid(), signal.SIGTERM)
                return

    def _is_ours(self) -> bool:
        there = read_holder(self.file)
        return there is not None and there.token in (self.holder.token, "")

    def release(self) -> None:
        if os.getpid() != self.holder.pid:  # a process that was forked off
            return
        self.ended.set()
        os.environ[TOKENS] = ":".join(token for token in tokens() if token != self.holder.token)
        if self._is_ours():
            with suppress(OSError):
                self.file.unlink()
        for folder in self.made:
            with suppress(OSError):
                folder.rmdir()


def _acquire(folder: Path, doing: str, part: str | None) -> _Held | None:
    """None where a lock lets us through already, or nobody may write."""
    if folder.exists() and not folder.is_dir():  # whoever is to write there has a line for that
        return None
    file = folder / (FILE if part is None else f"{FILE}-{re.sub(r'[^A-Za-z0-9.]+', '-', part)}")
    made = _make(folder)
    if not os.access(folder, os.W_OK):
        return None
    holder = Holder(
        os.getpid(), socket.gethostname(), machine(), born_of(os.getpid()) or "", time.time(), secrets.token_hex(8), doing, part
    )  # fmt: skip
    if not _create(file, holder):
        return None
    held = _Held(file, holder, made)
    if busy := held_parts(folder) if part is None else _busy([folder / FILE]):
        held.release()
        raise _refusal(folder, busy)
    return held


def _busy(files: list[Path]) -> list[Holder]:
    found = ((file, read_holder(file)) for file in files)
    return [one for file, one in found if one is not None and one.token not in tokens() and alive(one, file)]


def _make(folder: Path) -> list[Path]:
    """The folders that were not there, the innermost first."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _create(file: Path, holder: Holder) -> bool:
    """Make the lock file, whole from its first moment; False where a lock that is ours stands there already."""
    deadline = time.monotonic() + PATIENCE
    while not _place(file, holder):
        before = read_holder(file)
        if before is None:
            if time.monotonic() > deadline and file.parent.as_posix().startswith("/proc"):  # where no file can be
                raise UserError(f"{file.parent}: no file can be made there. Choose another place.")
            continue  # it was given back just now
        if before.token in tokens():
            return False
        if alive(before, file) or time.monotonic() > deadline:
            raise _refusal(file.parent, [before])
        if not _remove_dead(file):
            time.sleep(0.02)
    return True


def _place(file: Path, holder: Holder) -> bool:
    """Whether the file was not there and is ours now."""
    text = json.dumps(asdict(holder))
    temporary = file.with_name(f"{FILE}.{holder.token}.part")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)  # whoever has just left may have taken it away
        temporary.write_text(text)
        try:
            os.link(temporary, file)
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            with open(file, "x") as opened:
                opened.write(text)
        return True
    except FileExistsError:
        if not file.parent.is_dir():  # a file stands where the folder should
            raise
        return False
    except FileNotFoundError:  # the folder, or what was to be linked, was swept away
        return False
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def _remove_dead(file: Path) -> bool:
    """Remove the lock of a process that is gone. Of several who see it at once one does, and it can only be that very file:
    whoever wants to remove it must hold it first, and then finds it in its place or leaves it alone."""
    try:
        handle = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return True
    try:
        try:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except (ImportError, OSError):  # a system or a file system without: the file alone decides
            pass
        holder = read_holder(file)
        there = os.path.samestat(os.fstat(handle), file.stat())
        if holder is None or not there or alive(holder, file):
            return False
        file.unlink()
        return True
    except FileNotFoundError:
        return True
    finally:
        os.close(handle)


def _refusal(folder: Path, holders: list[Holder]) -> UserError:
    first = holders[0]
    if first.part is not None:
        what = ", ".join(f"{one.part} by {one}" for one in holders)
        return UserError(f"{folder}: parts of it are still being written: {what}. Wait until they are done.")
    away = "" if first.host == socket.gethostname() else " If it is gone, the folder is free a minute after it ended."
    return UserError(
        f"{folder}: it is being written by {first}. Wait until that has finished, or choose another folder.{away}"
    )
