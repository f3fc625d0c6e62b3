"""Per-shard work on Ray against as many plain processes, in one run; and what a driver bears with 10,000 shards.

python -m benchmarks.cluster [--quick]     two Ray nodes of one CPU each on this machine, loopback; needs odst[ray]
python -m benchmarks.cluster --growth      only what a driver bears at 8·10^7 images
"""

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.measuring import conclude, table
from odst.data.packing import concatenate
from odst.data.part_files import ITEMS, PartDecoder, Piece
from odst.data.repeats import Seen
from odst.data.shards import HELD, INDEX, table_writer
from odst.data.sources import open_sources
from odst.data.views import opener
from odst.data.workers import decoder_for
from odst.engine.interface import Engine, running_on
from odst.engine.local import Local
from odst.engine.parts import complete, note_file, read_notes
from odst.method.candidates import BLOCK, Candidates, Found, merge
from odst.method.stored import Labeller

WORKERS, K, SIDE = 2, 10, 32
BORNE = ("", "seconds", "driver, private MiB")


NODE: dict[str, Any] = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 100 << 20}


@contextmanager
def cluster() -> Iterator[Any]:
    """A node that sees nothing but this machine; `add_node(**NODE)` makes it two."""
    root = str(Path(__file__).parents[1])
    os.environ |= {
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",  # 15 by itself: whatever else runs would come first
        "RAY_health_check_initial_delay_ms": "1000",
        "RAY_health_check_period_ms": "500",
        "RAY_health_check_failure_threshold": "4",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")]),
    }
    import ray
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={**NODE, "include_dashboard": False})
    try:
        yield made
    finally:
        ray.shutdown()
        made.shutdown()


@dataclass(frozen=True)
class Together:
    """A worker's `make` that waits until all workers are there: how long they take to start is not what is compared."""

    make: Callable[[], Callable[[int], Any]]
    meeting: Path

    def __call__(self) -> Callable[[int], Any]:
        work = self.make()
        (self.meeting / str(os.getpid())).touch()
        while len(list(self.meeting.iterdir())) < WORKERS:
            time.sleep(0.01)
        return work


def pace(engine: Engine, make: Callable[[], Callable[[int], Any]], items: int, meeting: Path) -> float:
    """Items a second, from the first note on."""
    meeting.mkdir()
    notes = engine.map(Together(make, meeting), range(items))
    assert isinstance(next(notes), dict)
    begin = time.perf_counter()
    for note in notes:
        assert isinstance(note, dict), note
    return (items - WORKERS) / (time.perf_counter() - begin)


def labelling(x: np.ndarray, folder: Path, rows: int) -> Labeller:
    import torch

    from odst.vision.networks import make_network

    torch.manual_seed(0)
    folder.mkdir()
    return Labeller(make_network("tiny", K, shape=(SIDE, SIDE, 3)), opener(x), folder, rows, K, "cpu")


def packing(file: Path, folder: Path, rows: int, m: int) -> PartDecoder:
    folder.mkdir()
    decoder = decoder_for(open_sources([str(file)]), SIDE, "crop")
    some = [Piece(0, start, rows) for start in range(0, m, rows)]
    return PartDecoder(folder, partial(open_sources, [str(file)]), some, decoder)


def nothing() -> Callable[[int], dict[str, Any]]:
    return no_work


def no_work(number: int) -> dict[str, Any]:
    return {"rows": 0, "hash": "0" * 32}


def memory() -> float:
    """Private memory of this process alone, in MiB: Ray's own are its children here."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 2**10


def growth(folder: Path, images: int) -> list[list[str]]:
    """What a driver bears at the end of each stage, with notes, candidates and index parts of the number and size that so
    many images have: made, not computed."""
    rng = np.random.default_rng(0)
    rows = [read_made_notes(folder / "notes", -(-images // ITEMS))]
    rows.append(merge_made_candidates(images, rng))
    rows.append(concatenate_made_index(folder / "index", images))
    seen, begin = Seen(folder, 0, images), time.perf_counter()
    for _ in range(0, images, 8192):
        assert seen.fresh(rng.integers(1 << 64, size=8192, dtype=np.uint64)).sum() > 8000
    rows.append([f"content hashes of {images:,} images", f"{time.perf_counter() - begin:.0f} s", f"{memory():,.0f}"])
    return rows


def read_made_notes(folder: Path, count: int) -> list[str]:
    """Those of packing, as _Noting writes them."""
    folder.mkdir()
    text = json.dumps(
        {"items": ITEMS, "rows": ITEMS, "by": "node-17.cluster:123456", "seconds": 12.345, "ended": 1.8e9}
    )
    for number in range(count):
        note_file(folder, number).write_text(text)
    begin = time.perf_counter()
    assert len(read_notes(folder)) == count
    return [f"read {count:,} notes", f"{time.perf_counter() - begin:.1f} s", f"{memory():,.0f}"]


def merge_made_candidates(images: int, rng: np.random.Generator, k: int = 75_000) -> list[str]:
    """Of every block the rows that lie above what is merged so far, for the paper's largest k."""
    kept, spent, most = [Candidates(k) for _ in range(K)], 0.0, memory()
    blocks = -(-images // BLOCK)
    for block in range(blocks):
        classes, odds = rng.integers(K, size=BLOCK), rng.normal(size=BLOCK)
        rows = np.flatnonzero(odds >= np.array([one.floor for one in kept])[classes])
        ids, ties = block * BLOCK + rows, rng.integers(1 << 63, size=len(rows), dtype=np.uint64)
        found = Found(np.bincount(classes, minlength=K), ids, classes[rows], odds[rows], odds[rows], ties)
        begin = time.perf_counter()
        merge(kept, found)
        spent, most = spent + time.perf_counter() - begin, max(most, memory())
    assert sum(one.seen for one in kept) == blocks * BLOCK
    return [f"merge the candidates of {blocks:,} blocks", f"{spent:.1f} s", f"{most:,.0f}"]


def concatenate_made_index(folder: Path, images: int, rows: int = 1 << 18) -> list[str]:
    """The index of a shard at its true length, as often as there are shards."""
    folder.mkdir()
    names = [f"file:///shared/photos/part-{i:05d}/{i * 7919 % 10**9:09d}.jpg" for i in range(rows)]
    hashes = [f"{i * 0x9E3779B97F4A7C15 % (1 << 128):032x}" for i in range(rows)]
    columns = [names, hashes, [32] * rows, [32] * rows, [None] * rows]
    table = pa.table([pa.array(one, kind) for one, kind in zip(columns, INDEX.values(), strict=True)], list(INDEX))
    with table_writer(folder / "part.parquet", table.schema) as writer:
        writer.write_table(table, row_group_size=HELD)
    shards = -(-images // rows)
    del names, hashes, columns, table
    begin = time.perf_counter()
    concatenate([folder / "part.parquet"] * shards, folder / "index.parquet", numbered=True)
    spent = time.perf_counter() - begin
    size = (folder / "index.parquet").stat().st_size / 1e9
    (folder / "index.parquet").unlink()
    return [f"one index of {shards:,} shards ({size:.2g} GB)", f"{spent:.0f} s", f"{memory():,.0f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--growth", action="store_true")
    asked = parser.parse_args()
    quick = asked.quick
    count, images, turns = (500, 10**6, 2) if quick else (10_000, 8 * 10**7, 4)
    m = 1 << 16 if quick else 1 << 17
    if asked.growth:
        with tempfile.TemporaryDirectory() as place:
            print(table(BORNE, growth(Path(place), images)))
        return
    with cluster() as made, tempfile.TemporaryDirectory() as place:
        from odst.engine.ray import OnRay

        made.add_node(**NODE)
        ray, plain, folder = OnRay(made.address, WORKERS), Local(WORKERS), Path(place)
        x = np.lib.format.open_memmap(folder / "x.npy", mode="w+", dtype=np.uint8, shape=(m, SIDE, SIDE, 3))
        for start in range(0, m, 8192):
            x[start : start + 8192] = np.random.default_rng(start).integers(256, size=(8192, SIDE, SIDE, 3))
        x.flush()
        x = np.load(folder / "x.npy", mmap_mode="r")
        rows, shares = [], []
        for stage in ("label", "pack"):
            for size in (1024, 8192):
                here, there = [], []
                for turn in range(turns):
                    for engine, rates in ((plain, here), (ray, there))[:: -1 if turn % 2 else 1]:  # in turns
                        out = folder / f"{stage}-{size}-{turn}-{len(here)}-{len(there)}"
                        make: Any = (
                            labelling(x, out, size) if stage == "label" else packing(folder / "x.npy", out, size, m)
                        )
                        meeting = out.with_name(f"{out.name}-meeting")
                        rates.append(pace(engine, make, m // size, meeting) * size)
                shares.append(max(there) / max(here))
                rows.append([stage, f"{size:,}", f"{max(here):,.0f}", f"{max(there):,.0f}", f"{shares[-1]:.0%}"])
        print(table(["stage", "images a shard", "processes, images/s", "Ray, images/s", "share"], rows))
        begin = time.perf_counter()
        list(ray.map(nothing, range(count)))
        spent = time.perf_counter() - begin
        print(f"\noverhead per task {1000 * spent / count:.2f} ms ({count:,} empty tasks, {spent:.1f} s)\n")
        begin = time.perf_counter()
        with running_on(ray):
            complete(folder / "empty", {}, [1] * count, nothing, name=None)
        shown = [
            [f"{count:,} empty shards through the driver", f"{time.perf_counter() - begin:.1f} s", f"{memory():,.0f}"]
        ]
        shown += growth(folder, images)
        print(table(BORNE, shown))
    conclude("cluster", min(shares), "local")


if __name__ == "__main__":
    main()
