"""One round of odst with `mlp` over pools of 10^5 and of 10^6 vectors of 1,280 float16, mapped from disk (2.6 GB).

    python -m benchmarks.vectors [--quick]

All but the pool is the same for both: 400 labelled vectors of 4 classes, 100 a class selected, 200 steps a model. Seconds and
private memory are of the whole process: checks, base, labelling, selection, student.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np

from benchmarks.measuring import conclude, peak_memory, table

D, K = 1280, 4
BLOCK = 10_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="10^4 and 10^5")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child is not None:
        run(arguments.child)
        return
    rows, spent = [], []
    with tempfile.TemporaryDirectory() as folder:
        for m in (10_000, 100_000) if arguments.quick else (100_000, 1_000_000):
            file = Path(folder) / f"pool-{m}.npy"
            write_pool(file, m)
            peak, seconds = peak_memory(["-m", "benchmarks.vectors", "--child", str(file)])
            file.unlink()
            spent.append(seconds)
            rows.append([f"{m:,}", f"{seconds:.1f}", f"{peak / 2**20:,.0f}"])
    print(table(["vectors", "seconds", "private MiB"], rows))
    conclude("vectors", spent[1] / spent[0], "a-tenth-of-the-vectors")


def vectors(n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Noise with a bright part of the vector, the class; class K has none."""
    x, y = rng.normal(size=(n, D)).astype(np.float16), rng.integers(K + 1, size=n)
    for c in range(K):
        x[y == c, 20 * c : 20 * (c + 1)] += 1
    return x, y


def write_pool(file: Path, m: int) -> None:
    """Different blocks of the same few random ones: a million rows of noise take longer to draw than to learn from."""
    rng = np.random.default_rng(0)
    some = vectors(BLOCK, rng)[0]
    pool = np.lib.format.open_memmap(file, mode="w+", dtype=np.float16, shape=(m, D))
    for start in range(0, m, BLOCK):
        pool[start : start + BLOCK] = some[rng.permutation(BLOCK)]
    pool.flush()


def run(file: Path) -> None:
    from odst import Data, Labelled, Phase, Pool, Recipe, Schedule, make_network, self_train

    x, y = vectors(2_000, np.random.default_rng(1))
    own = np.flatnonzero(y < K)
    T, val_in = own[:400], own[400:800]
    data = Data(
        labelled=Labelled(x[T], y[T]),
        pool=Pool(np.load(file, mmap_mode="r"), identity=file.name),
        val_in=Labelled(x[val_in], y[val_in]),
        val_out=x[y == K],
    )
    schedule = Schedule(phases=(Phase(steps=200, lr=0.01, shape="cosine"),), batch=64)
    with tempfile.TemporaryDirectory() as scratch:
        make = lambda: make_network("mlp", K, data.labelled.x)  # noqa: E731
        rounds = list(self_train(Recipe(alpha=0.9, ratio=(1,)), data, make, [schedule], scratch=Path(scratch)))
    assert len(rounds) == 2 and rounds[1].selection is not None
    print(f"{len(data.pool or ()):,} in the pool, {len(rounds[1].selection):,} selected", flush=True)


if __name__ == "__main__":
    main()
