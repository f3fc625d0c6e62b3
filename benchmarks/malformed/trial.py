"""What odst does with a source."""

import shutil
import traceback
from pathlib import Path

from benchmarks.malformed.whole import SIDE
from odst.cli.ending import advice


def faults(spec: str, out: Path) -> list[str]:
    """What odst did with it that it must not: each a traceback in short. Reads it as a set, as a labelled set and into a pool."""
    from odst.data.packing import build_pool
    from odst.data.reading import read_set

    found = []
    for what, act in {
        "read": lambda: read_set(spec, SIDE),
        "labelled": lambda: read_set(spec, SIDE, labelled=True),
        "pack": lambda: build_pool(spec, out, size=SIDE),
    }.items():
        try:
            act()
        except Exception as error:
            if advice(error) is not None and getattr(error, "errno", 0) is not None:  # the command has one line for it
                continue
            place = traceback.extract_tb(error.__traceback__)
            inner = next(
                (f for f in reversed(place) if "odst" in f.filename and "benchmarks" not in f.filename), place[-1]
            )
            where = f"{Path(inner.filename).name}:{inner.lineno}"
            found.append(f"{what}: {type(error).__name__}: {str(error)[:100]} ({where})")
    shutil.rmtree(out, ignore_errors=True)
    return found
