"""Files appear whole: a temporary name, fsync, rename. If a file exists, it is complete."""

import glob
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from odst.errors import UserError


@contextmanager
def whole(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the same folder; on success it becomes `path`, on failure it is gone."""
    path = Path(path)
    refuse_remote(path)
    if path.is_dir():
        raise UserError(f"{path}: this is a folder, and a file is to be written. Name a file in it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def whole_folder(out: Path) -> Iterator[Path]:
    """A temporary folder beside `out` that takes its name on success, and is gone on failure."""
    out.parent.mkdir(parents=True, exist_ok=True)
    own = f".{out.name}.{socket.gethostname()}-"
    for remnant in out.parent.glob(f"{glob.escape(own)}*.part"):  # of a process that was killed
        pid = remnant.name.removeprefix(own).partition("-")[0]
        if pid.isdecimal() and not _is_running(int(pid)):
            shutil.rmtree(remnant, ignore_errors=True)
    temporary = out.with_name(f"{own}{os.getpid()}-{secrets.token_hex(4)}.part")
    temporary.mkdir()
    try:
        yield temporary
        temporary.rename(out)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def name_of_whole(temporary: Path) -> str:
    """The name that a folder of `whole_folder` will have."""
    return temporary.name.removeprefix(".").rpartition(f".{socket.gethostname()}-")[0]


def _is_running(pid: int) -> bool:
    if os.name != "posix":  # elsewhere this would end the process
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        pass
    return True


def refuse_remote(path: Path) -> None:
    """What would make a folder called `s3:` here."""
    if re.match(r"[a-z][a-z0-9+]+:$", path.parts[0] if path.parts else ""):
        raise UserError(
            f"{path}: only packed pools are written to an object store (`odst pool build --out s3://bucket/pool`). Name a "
            "folder, and copy what comes out."
        )


def write_text(path: str | os.PathLike[str], text: str) -> None:
    with whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def write_json(path: str | os.PathLike[str], value: Any) -> None:
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def sha256(path: str | os.PathLike[str]) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def digest(value: Any) -> str:
    """A hash of any JSON-able value, the same on every machine."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
