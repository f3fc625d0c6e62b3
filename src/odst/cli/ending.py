"""How a command ends before it is done: one line on stderr, whatever has stopped it, and an exit code that says so."""

import codecs
import errno
import io
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from odst.errors import UserError, is_out_of_memory

ADVICE = {
    errno.ENOSPC: "the disk is full. Free some space and give the same command again: it goes on where it stopped.",
    errno.EDQUOT: "your share of the disk is used up. Free some space and give the same command again: it goes on.",
    errno.EFBIG: "no file may be that large here (`ulimit -f`, or the disk's format). Raise the limit, or choose another disk.",
    errno.EMFILE: "this process may not open more files. Raise the limit with `ulimit -n 1024`, or take fewer --workers.",
    errno.ENFILE: "this machine cannot open more files. Close other programs and give the same command again: it goes on.",
    errno.EACCES: "permission denied. Give yourself the right to read or write there, or choose another place.",
    errno.EPERM: "the system does not allow it. Choose another place.",
    errno.ENOTDIR: "a file stands where a folder is needed. Choose another place.",
    errno.EEXIST: "a file stands where a folder is needed. Choose another place.",
    errno.EISDIR: "a folder stands where a file is needed. Name a file.",
    errno.EROFS: "the file system is read-only. Choose a folder you may write to.",
    errno.ENOENT: "there is no such file or folder, or it has just gone. Check the path, or choose another place.",
    errno.ENAMETOOLONG: "the name is too long for this file system. Take a shorter one.",
    errno.ELOOP: "a link leads back to itself. Mend it, or name what it should lead to.",
    errno.EINVAL: "the file system does not take this name or this kind of file. Choose another place.",
    errno.EIO: "the disk cannot read or write it. Look after the disk, then give the same command again.",
}
# What a terminal that knows ASCII only is shown instead
PLAIN = {
    "×": "x",
    "…": "...",
    "–": "-",
    "—": "-",
    "·": "*",
    "≥": ">=",
    "≤": "<=",
    "±": "+-",
    "µ": "u",
    "→": "->",
    "✓": "ok",
    "∪": "+",
}
SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


def advice(error: BaseException) -> str | None:
    """The line for a fault that a user can mend; None for one of ours."""
    if isinstance(error, UserError):
        return str(error)
    if is_out_of_memory(error):
        reason = (str(error).splitlines() or ["no memory left"])[0]
        return (
            f"out of memory ({reason}). Bring the images to a smaller data.size, take a smaller network in model.name, fewer "
            "--workers, or use --device cpu."
        )
    if isinstance(error, OSError):
        what = ADVICE.get(error.errno or 0, f"{error.strerror or error}. Look after it, or choose another place.")
        return f"{error.filename or 'reading or writing'}: {what}"
    return None


@contextmanager
def stoppable() -> Iterator[list[int]]:
    """SIGTERM and SIGHUP end the command from inside, so that it lets go of its locks and temporary files. The list has the
    signal that came. One that is ignored, as nohup has it, stays so."""
    came: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise SystemExit(128 + number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        for one in SIGNALS:
            if signal.getsignal(one) is signal.SIG_DFL:
                before[one] = signal.signal(one, stop)
    try:
        yield came
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def say(line: str) -> None:
    print(f"odst: {' '.join(line.split())}", file=sys.stderr)


def fall_back_to_plain_signs() -> None:
    """Where a terminal or a pipe cannot show a sign, another is shown in its place."""
    codecs.register_error("odst", lambda error: (_plain(error), error.end))  # type: ignore[attr-defined]
    codecs.register(lambda name: PLAIN_ASCII if name == PLAIN_ASCII.name else None)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors in ("strict", "backslashreplace"):
            if codecs.lookup(stream.encoding).name == "ascii":  # under this name click writes UTF-8 all the same
                stream.reconfigure(encoding=PLAIN_ASCII.name)
            stream.reconfigure(errors="odst")


def _plain(error: UnicodeError) -> str:
    assert isinstance(error, UnicodeEncodeError)
    signs = error.object[error.start : error.end]
    return "".join(PLAIN.get(sign, sign.encode("ascii", "backslashreplace").decode()) for sign in signs)


ASCII = codecs.lookup("ascii")
PLAIN_ASCII = codecs.CodecInfo(
    lambda text, errors="odst": ASCII.encode(text, "odst"), ASCII.decode, incrementalencoder=ASCII.incrementalencoder,
    incrementaldecoder=ASCII.incrementaldecoder, name="odst_ascii",
)  # fmt: skip
