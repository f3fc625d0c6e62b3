"""Step C over many rows: time against just reading the same files, and the peak of private memory.

python -m benchmarks.selection [--quick | --full]     10^7 rows × 10 classes (10^6, 8·10^7: 3.2 GB), a million rows a file
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.measuring import conclude, peak_memory, table
from odst.data.views import Concatenated
from odst.method.labelling import Predictions
from odst.method.selection import select

K, BLOCK, SHARD = 10, 1 << 17, 10**6


def write(folder: Path, m: int) -> None:
    for number in range(m // SHARD):
        logits = np.lib.format.open_memmap(folder / f"{number:05d}.npy", mode="w+", dtype=np.float32, shape=(SHARD, K))
        for start in range(0, SHARD, BLOCK):
            rng = np.random.default_rng([number, start])
            logits[start : start + BLOCK] = 2 * rng.standard_normal((min(BLOCK, SHARD - start), K), dtype=np.float32)
        logits.flush()


def files(folder: Path) -> list[np.ndarray]:
    return [np.load(file, mmap_mode="r") for file in sorted(folder.glob("*.npy"))]


def read(folder: Path) -> None:
    for logits in files(folder):
        for start in range(0, len(logits), BLOCK):
            logits[start : start + BLOCK].max()


def choose(folder: Path) -> None:
    p = Predictions(Concatenated(files(folder)), 0.7)
    I = select(p, np.full(K, 1.0), 75_000, excluded=np.arange(0, 10**5, 7), max_copies=None, seed=0, t=0)
    assert (np.bincount(I.classes, minlength=K) > 0).all()


def seconds(work, folder: Path, times: int = 3) -> float:
    spent = []
    for _ in range(times):
        begin = time.perf_counter()
        work(folder)
        spent.append(time.perf_counter() - begin)
    return min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true")
    size.add_argument("--full", action="store_true")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        choose(Path(arguments.only))
        return
    m = 10**6 if arguments.quick else 8 * 10**7 if arguments.full else 10**7
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write(folder, m)
        reading, choosing = seconds(read, folder), seconds(choose, folder)
        peak, _ = peak_memory(["-m", "benchmarks.selection", "--only", str(folder)])
    row = [
        f"{m:,} × {K}",
        f"{reading:.2f} s",
        f"{choosing:.2f} s",
        f"{choosing / reading:.1f}",
        f"{peak / 2**20:,.0f} MiB",
    ]
    print(table(["rows × classes", "reading the files", "selection", "ratio", "peak memory"], [row]))
    if peak >= 10**9:
        sys.exit(f"peak memory {peak / 1e9:.2f} GB is not below 1 GB")
    conclude("selection", choosing / reading, "reading-the-same-files")


if __name__ == "__main__":
    main()
