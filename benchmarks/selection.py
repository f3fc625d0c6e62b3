"""Step C over many rows: time against just reading the same file, and the peak of private memory.

python -m benchmarks.selection [--quick]     10^7 rows × 10 classes (10^6 with --quick), a file of 400 MB
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.measuring import conclude, peak_memory, table
from odst.method.labelling import Predictions
from odst.method.selection import select

K, BLOCK = 10, 1 << 17


def write(file: Path, m: int) -> None:
    logits = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(m, K))
    for start in range(0, m, BLOCK):
        rng = np.random.default_rng(start)
        logits[start : start + BLOCK] = 2 * rng.standard_normal((min(BLOCK, m - start), K), dtype=np.float32)
    logits.flush()


def read(file: Path) -> None:
    logits = np.load(file, mmap_mode="r")
    for start in range(0, len(logits), BLOCK):
        logits[start : start + BLOCK].max()


def choose(file: Path) -> None:
    p = Predictions(np.load(file, mmap_mode="r"), 0.7)
    I = select(p, np.full(K, 1.0), 75_000, excluded=np.arange(0, 10**5, 7), max_copies=None, seed=0, t=0)
    assert (np.bincount(I.classes, minlength=K) > 0).all()


def seconds(work, file: Path, times: int = 3) -> float:
    spent = []
    for _ in range(times):
        begin = time.perf_counter()
        work(file)
        spent.append(time.perf_counter() - begin)
    return min(spent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        choose(Path(arguments.only))
        return
    m = 10**6 if arguments.quick else 10**7
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "logits.npy"
        write(file, m)
        reading, choosing = seconds(read, file), seconds(choose, file)
        peak, _ = peak_memory(["-m", "benchmarks.selection", "--only", str(file)])
    row = [
        f"{m:,} × {K}",
        f"{reading:.2f} s",
        f"{choosing:.2f} s",
        f"{choosing / reading:.1f}",
        f"{peak / 2**20:,.0f} MiB",
    ]
    print(table(["rows × classes", "reading the file", "selection", "ratio", "peak memory"], [row]))
    if peak >= 10**9:
        sys.exit(f"peak memory {peak / 1e9:.2f} GB is not below 1 GB")
    conclude("selection", choosing / reading, "reading-the-same-file")


if __name__ == "__main__":
    main()
