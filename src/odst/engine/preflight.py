"""Before a stage begins: does a node have our versions, and does it see what we see? The question, and what is done there."""

import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from odst.errors import UserError

HEAD = 4096  # bytes of a file that are compared


class Question(NamedTuple):
    token: str
    tokens: list[Path]  # files that hold it, in the folders that are to be written
    heads: list[tuple[Path, Path, str]]  # what is to be read, a file of it, and the hash of how that begins


@contextmanager
def question(writes: Iterable[Path], reads: Iterable[Path]) -> Iterator[Question]:
    """While it is asked a file lies in every folder of `writes`; where things are only read, nothing is written."""
    token = secrets.token_hex(8)
    tokens = [folder / f".odst-preflight-{token}.part" for folder in writes]
    try:
        for file in tokens:
            try:
                file.write_text(token)
            except OSError as error:
                raise UserError(
                    f"{file.parent}: nothing can be written there ({error.strerror}). Free some space, or choose another folder."
                ) from None
        yield Question(token, tokens, [(path, one, _head(one)) for path in reads if (one := _some_file(path))])
    finally:
        for file in tokens:
            with suppress(OSError):
                file.unlink()


def look(asked: Question) -> dict[str, Any]:
    """On a node."""
    blind = ""
    for path, file, head in asked.heads:
        if _head(file) != head:
            blind = blind or f"it does not see {path}"
    for file in asked.tokens:
        try:
            seen = file.read_text() == asked.token
        except OSError:
            seen = False
        if not seen:
            blind = blind or f"it does not see {file.parent}"
            continue
        mine = file.with_name(f"{file.name}-{secrets.token_hex(4)}.part")
        try:
            mine.write_text(asked.token)
            mine.unlink()
        except OSError as error:
            blind = blind or f"it cannot write into {file.parent} ({error.strerror})"
    return {"versions": versions(), "blind": blind}


def versions() -> dict[str, str]:
    import torch

    return {**installed(), "cpu": torch.backends.cpu.get_cpu_capability()}


def installed() -> dict[str, str]:
    """Without importing torch, which a worker may not need."""
    return {name: version(name) for name in ("odst", "torch")}


def other_version(there: dict[str, str], here: dict[str, str]) -> str | None:
    """What is another there than here, and the way out."""
    for name in installed():
        if there[name] != here[name]:
            return f"{name} {there[name]} there, {here[name]} here. Install the same on every node"
    return None


def _head(file: Path) -> str:
    try:
        with open(file, "rb") as opened:
            return hashlib.sha256(opened.read(HEAD)).hexdigest()
    except OSError:
        return ""


def _some_file(path: Path) -> Path | None:
    """The path, or of a folder one file at any depth. None where nothing can be compared: whoever reads has a line for that."""
    if not path.is_dir():
        return path if path.is_file() and _head(path) else None
    below = []
    with suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                below.append(Path(entry.path))
            elif not entry.name.startswith(".") and entry.is_file() and _head(Path(entry.path)):
                return Path(entry.path)
    return next((file for folder in below if (file := _some_file(folder))), None)
