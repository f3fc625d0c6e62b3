"""Sources that nobody could use: every format odst reads, damaged by hand in the known ways and by a seed in all others.

`sources(folder, seed, n)` writes them one after another and yields (what it is, the spec to give to odst). Each must be
refused in one line, or read with the bad pictures rejected: never a traceback, never a signal. tests/test_malformed.py
tries those by hand and a few by chance.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

from benchmarks.malformed.chance import by_chance
from benchmarks.malformed.columns import tables, texts
from benchmarks.malformed.files import folders, names, originals
from benchmarks.malformed.numbers import archives, arrays, labels
from benchmarks.malformed.strangers import pickles, tars

FAMILIES = (arrays, labels, archives, tables, texts, tars, pickles, originals, names, folders)


def sources(folder: Path, seed: int, n: int) -> Iterator[tuple[str, str]]:
    """Those by hand, then `n` by chance. Each is gone when the next one comes."""
    for family in FAMILIES:
        place = folder / family.__name__
        place.mkdir()
        for what, spec in family(place):
            yield f"{family.__name__}: {what}", spec
        shutil.rmtree(place)
    yield from by_chance(folder, seed, n)
