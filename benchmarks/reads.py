"""Random batches of 256 from a packed pool of 1,000,000 images, against the same reads from an array in memory.

    python -m benchmarks.reads [--quick]

Both are read once before the clock starts, so that all pages are warm. Reads of the two take turns.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np

from odst.data.pool import FORMAT, open_pool

BATCH = 256
ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100,000 images")
    n = 100_000 if parser.parse_args().quick else 1_000_000
    with tempfile.TemporaryDirectory() as name:
        write_pool(Path(name) / "pool", n, shard_rows=262_144)
        pool = open_pool(Path(name) / "pool").x
        memory = pool[:]
        batches = np.random.default_rng(1).integers(0, n, (400, BATCH))
        best = {"in memory": np.inf, "packed pool": np.inf}
        for _ in range(ROUNDS + 1):
            for kind, x in {"in memory": memory, "packed pool": pool}.items():
                start = time.perf_counter()
                for rows in batches:
                    x[rows]
                best[kind] = min(best[kind], (time.perf_counter() - start) / len(batches))
        for rows in batches[:20]:
            assert (memory[rows] == pool[rows]).all()
    print(f"{'from':<14}{'ms per batch':>14}{'images/s':>14}")
    for kind, seconds in best.items():
        print(f"{kind:<14}{seconds * 1e3:>14.3f}{BATCH / seconds:>14,.0f}")
    print(f"reads ratio={best['packed pool'] / best['in memory']:.2f} anchor=numpy-array-in-memory")


def write_pool(path: Path, n: int, shard_rows: int) -> None:
    """A packed pool of random pixels in the layout of odst.data.pool; only its rows are read here."""
    (path / "shards").mkdir(parents=True)
    rng = np.random.default_rng(0)
    shards = []
    for first in range(0, n, shard_rows):
        length = min(shard_rows, n - first)
        file = path / "shards" / f"{len(shards):05d}.npy"
        np.save(file, rng.integers(0, 256, (length, 32, 32, 3), dtype=np.uint8))
        shards.append({"file": f"shards/{file.name}", "length": length, "sha256": ""})
    manifest = {"format": FORMAT, "dtype": "uint8", "row": [32, 32, 3], "count": n, "shards": shards}
    (path / "manifest.json").write_text(json.dumps(manifest))


if __name__ == "__main__":
    main()
