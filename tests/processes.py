"""The real command in a subprocess, and the hashes of what it leaves behind."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

CHANGING = {"log.txt", "timings.jsonl", ".checked.json"}  # what may differ between two equal runs


def odst(*arguments: str | Path, check: int | None = 0, **options) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command(*arguments), capture_output=True, text=True, env=environment(), **options)
    if check is not None:
        assert done.returncode == check, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", "from odst.cli import main; main()", *map(str, arguments)]


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "120"}


def artefacts(run: Path) -> dict[str, str]:
    files = (file for file in sorted(run.rglob("*")) if file.is_file() and file.name not in CHANGING)
    return {str(file.relative_to(run)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def fails(*arguments: str | Path, says: str) -> None:
    """Exit code 2 and one line on stderr that holds `says`."""
    done = odst(*arguments, check=2)
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("odst: ")
    assert says in lines[0], lines[0]
