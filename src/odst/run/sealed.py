"""JSON that a run writes and comes back to. Each object holds a hash of itself, so that a change by anybody else is noticed."""

import json
from pathlib import Path
from typing import Any

from odst.errors import UserError
from odst.files import digest, write_json

SEAL = "digest"
FORMAT = 2  # of run directories
UNSEALED = (
    1  # the one before: run.json and final.json hold no hash of themselves, and are read with the hashes there are
)


def write_sealed(file: Path, value: dict[str, Any]) -> None:
    write_json(file, value | {SEAL: digest(value)})


def read_sealed(file: Path, way: str = "Restore it, or start again with --fresh.") -> dict[str, Any]:
    """What was written, without its seal; one line if it is not what was written."""
    value = read_json(file)
    if value.pop(SEAL, None) != digest(value):
        raise UserError(f"{file}: this file has changed since it was written. {way}")
    return value


def read_info(file: Path) -> dict[str, Any]:
    """run.json, of a format that is known here."""
    info = read_json(file)
    if info.get("format") not in (UNSEALED, FORMAT):
        raise UserError(
            f"{file.parent}: this run has format {info.get('format')}, and this odst reads formats {UNSEALED} and {FORMAT}. "
            "Use the odst that wrote it, or run it again with --fresh."
        )
    if info["format"] == FORMAT:
        return read_sealed(file)
    if missing := [key for key in ("method", "seed", "classes", "shape", "sets", "base") if key not in info]:
        raise UserError(f"{file}: it has no {' and no '.join(missing)}. Restore it, or start again with --fresh.")
    return info


def read_json(file: Path) -> dict[str, Any]:
    """An object of a run's own, or one line."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("no object")
        return value
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{file}: this file is missing: {file.parent} is no run directory, or not a whole one."
        ) from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{file}: this file is damaged ({error}). Restore it, or start again with --fresh.") from None
