"""Peak private memory of a run (base, labelling, selection, one student) over pools of 10^4 and of 10^6 images.

    python -m benchmarks.memory [--quick]

The pool is mapped from disk; images are 16×16, so that a million of them are labelled in a minute. All else is the same for
both: 400 labelled images, 100 images a class selected, 200 steps for the base and for the student.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measuring import conclude, peak_memory, table

SIDE, K = 16, 4
BLOCK = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10^5 instead of 10^6")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        run(arguments.child)
        return
    rows, peaks = [], []
    with tempfile.TemporaryDirectory() as folder:
        for m in (10_000, 100_000 if arguments.quick else 1_000_000):
            file = Path(folder) / f"pool-{m}.npy"
            write_pool(file, m)
            peak, seconds = peak_memory(["-m", "benchmarks.memory", "--child", str(file)])
            peaks.append(peak)
            rows.append([f"{m:,}", f"{peak / 2**20:,.0f}", f"{seconds:.0f}"])
    print(table(["pool", "peak, MiB", "seconds"], rows))
    conclude("memory", peaks[1] / peaks[0], "pool-of-10,000")


def images(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Noise with one bright quarter, the class; class K has none."""
    x, y = rng.integers(128, size=(n, SIDE, SIDE, 3), dtype=np.uint8), rng.integers(K + 1, size=n)
    half = SIDE // 2
    for c in range(K):
        x[y == c, half * (c // 2) : half * (c // 2 + 1), half * (c % 2) : half * (c % 2 + 1)] += 64
    return x, y


def write_pool(file: Path, m: int) -> None:
    rng = np.random.default_rng(0)
    pool = np.lib.format.open_memmap(file, mode="w+", dtype=np.uint8, shape=(m, SIDE, SIDE, 3))
    for start in range(0, m, BLOCK):
        pool[start : start + BLOCK] = images(BLOCK, rng)[0]
    pool.flush()


def run(file: Path) -> None:
    import torch

    from odst import Data, Labelled, Phase, Pool, Recipe, Schedule, self_train
    from odst.vision.networks import make_network

    torch.set_num_threads(2)
    rng = np.random.default_rng(1)
    x, y = images(2_000, rng)
    own = np.flatnonzero(y < K)
    T, val_in = own[:400], own[400:800]
    data = Data(
        labelled=Labelled(x[T], y[T]),
        pool=Pool(np.load(file, mmap_mode="r")),
        val_in=Labelled(x[val_in], y[val_in]),
        val_out=x[y == K],
    )
    schedule = Schedule(phases=(Phase(steps=200, lr=0.05, shape="cosine", augment=("crop:2", "flip")),), batch=64)
    make = lambda: make_network("tiny", K, shape=(SIDE, SIDE, 3), mean=0.3, std=0.2)  # noqa: E731
    with tempfile.TemporaryDirectory() as scratch:
        rounds = list(self_train(Recipe(alpha=0.9, ratio=(1,)), data, make, [schedule], scratch=Path(scratch)))
    assert len(rounds) == 2 and rounds[1].selection is not None
    print(f"{len(data.pool or ()):,} in the pool, {len(rounds[1].selection):,} selected", flush=True)


if __name__ == "__main__":
    main()
