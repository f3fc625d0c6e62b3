"""Damage by chance: a few faults in the bytes of a whole source, drawn from a seed."""

import shutil
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.malformed.whole import FORMATS


def damaged(data: bytes, rng: np.random.Generator) -> tuple[str, bytes]:
    """Bytes with one to four faults of chance, and their name."""
    said = []
    for _ in range(int(rng.integers(1, 5))):
        raw = bytearray(data)
        kind = rng.choice(["cut", "flip", "head", "zeros", "noise", "number", "insert", "remove", "double"])
        # half of the faults fall into what readers look at first: the head, and parquet's and zip's foot
        reach = int(rng.choice([min(len(raw), 256), len(raw)])) or 1
        at = int(rng.integers(0, reach))
        at = len(raw) - 1 - at if raw and rng.random() < 0.3 else at
        long = int(rng.integers(1, 65))
        if kind == "cut":
            raw = raw[:at]
        elif kind == "flip" and raw:
            raw[at] ^= 1 << int(rng.integers(0, 8))
        elif kind == "head":
            raw = raw[at:]
        elif kind == "zeros":
            raw[at : at + long] = bytes(len(raw[at : at + long]))
        elif kind == "noise":
            raw[at : at + long] = rng.bytes(len(raw[at : at + long]))
        elif kind == "number":
            value = int(rng.choice([-1, 0, 1, 2**31 - 1, -(2**31), 2**30]))
            raw[at : at + 4] = struct.pack("<i", value)
        elif kind == "insert":
            raw[at:at] = rng.bytes(long)
        elif kind == "remove":
            del raw[at : at + long]
        else:
            raw = raw + raw
        data, said = bytes(raw), [*said, str(kind)]
    return "+".join(said), data


def by_chance(folder: Path, seed: int, n: int) -> Iterator[tuple[str, str]]:
    """`n` sources, format after format, each with a file or two damaged."""
    for i in range(n):
        rng = np.random.default_rng([seed, i])
        make = FORMATS[i % len(FORMATS)]
        place = folder / f"chance-{i}"
        place.mkdir()
        spec, files = make(place, rng)
        said = []
        for file in rng.permutation(np.array(files, object))[: int(rng.integers(1, 3))]:
            what, data = damaged(file.read_bytes(), rng)
            file.write_bytes(data)
            said.append(f"{file.name} {what}")
        yield f"chance {seed}/{i} {make.__name__}: {', '.join(said)}", spec
        shutil.rmtree(place)
