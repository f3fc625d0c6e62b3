"""Embedding a folder of photographs into a pool, against the bare backbone on pictures that lie decoded in memory.

    python -m benchmarks.embedding [--quick] [--backbone NAME]

Both run in two processes of one thread each, and in the runtime that is the default. The pool finds, reads, decodes and
resizes JPEG files of 150×150, makes thumbnails of 64×64, embeds, hashes, drops duplicates and writes shards, vectors and
index. Both begin in the same way: the backbone is opened once and its graph handed to two new processes; the seconds hold
that. "further" is the rate of the pictures after the first fifth, which no start touches. Each is the best of three passes,
taken in turn.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image

from benchmarks.measuring import conclude, table

WORKERS = 2
SIDE, THUMBNAIL = 150, 64

POOL = """
import json, sys, time
from pathlib import Path
if __name__ == "__main__":  # as in the command, whose processes do not import what only it needs
    from odst.data import packing, workers
    workers.WORTH_EMBEDDING = 1  # two processes for the small folder too
    source, out, count, spec, size, processes = sys.argv[1:]
    start = time.perf_counter()
    manifest = packing.build_pool(source, Path(out), size=int(size), workers=int(processes), encoder=spec)
    print(json.dumps(time.perf_counter() - start))
    assert manifest["count"] == int(count), manifest["rejected"]
"""
BARE = """
import json, sys, time
from multiprocessing import get_context
import numpy as np

def embed(file, first, last, graph, dimension):
    from odst.vision.sessions import in_batches, open_graph
    return len(in_batches(open_graph(graph, 1), np.load(file, mmap_mode="r")[first:last], dimension))

if __name__ == "__main__":
    file, _, count, spec, _, processes = sys.argv[1:]
    np.load(file).sum()  # the pictures are in memory
    start = time.perf_counter()
    from odst.data.vectors import Embedder
    embedder = Embedder(spec)
    cuts = np.linspace(0, int(count), int(processes) + 1).astype(int).tolist()
    shares = [(file, *cut, embedder.graph(), embedder.identity.dimension) for cut in zip(cuts, cuts[1:])]
    with get_context("spawn").Pool(len(shares)) as pool:
        assert sum(pool.starmap(embed, shares, chunksize=1)) == int(count)
    print(json.dumps(time.perf_counter() - start))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1,000 photographs in place of 5,000")
    parser.add_argument("--backbone", default="efficientnet-lite1")
    arguments = parser.parse_args()
    n = 1_000 if arguments.quick else 5_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        decoded = write_photographs(folder, n, arguments.backbone)
        seconds: dict[tuple[str, int], float] = {}
        for turn in range(3):
            for count in (n // 5, n):
                for kind, script, source in (("bare", BARE, decoded), ("pool", POOL, folder / str(count))):
                    passed = run(script, source, folder / f"pool-{count}-{turn}", count, arguments.backbone)
                    seconds[kind, count] = min(passed, seconds.get((kind, count), passed))
    rows = []
    for kind, words in (("bare", "bare backbone"), ("pool", "odst pool build --embed")):
        further = (n - n // 5) / (seconds[kind, n] - seconds[kind, n // 5])
        rows.append([words, f"{seconds[kind, n]:.1f}", f"{n / seconds[kind, n]:.0f}", f"{further:.0f}"])
    print(table([f"{n:,} JPEG {SIDE}×{SIDE}, {arguments.backbone}", "seconds", "images/s", "further images/s"], rows))
    conclude("embedding", seconds["bare", n] / seconds["pool", n], "bare-backbone")


def run(script: str, source: Path, out: Path, count: int, spec: str) -> float:
    file = out.parent / "script.py"
    file.write_text(script)
    command = [sys.executable, file, source, out, str(count), spec, str(THUMBNAIL), str(WORKERS)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout)


def write_photographs(folder: Path, n: int, spec: str) -> Path:
    """Folders of n and of n/5 JPEG files, and the n pictures at the backbone's size as one array."""
    from odst.data.decoding import decode
    from odst.vision.backbones import open_backbone

    size = open_backbone(spec).identity.size
    decoded = np.empty((n, size, size, 3), np.uint8)
    photographs = photographs_of()
    for count in (n, n // 5):
        (folder / str(count)).mkdir()
    for i in range(n):
        data = shifted(photographs[i % len(photographs)], i // len(photographs))
        decoded[i] = decode(data, size)[0]
        for count in (n, n // 5):
            if i < count:
                (folder / str(count) / f"{i:05d}.jpg").write_bytes(data)
    np.save(folder / "decoded.npy", decoded)
    return folder / "decoded.npy"


def photographs_of() -> list[Image.Image]:
    """Real ones where ODST_TEST_DATA says they are, else the patches of the built-in world, enlarged."""
    if data := os.environ.get("ODST_TEST_DATA"):
        column = pq.read_table(Path(data) / "scene_photos.parquet", columns=["image"])["image"].to_pylist()
        images = [Image.open(io.BytesIO(row["bytes"])).convert("RGB") for row in column]
    else:
        from odst.data.worlds import load_world

        pool = load_world("photos", 0, 1000).pool
        assert pool is not None
        images = [Image.fromarray(patch) for patch in pool.x[:1000]]
    images = [image.resize((SIDE, SIDE), Image.Resampling.BICUBIC) for image in images]
    return list({image.tobytes(): image for image in images}.values())


def shifted(image: Image.Image, step: int) -> bytes:
    """Moved by a few pixels: no picture is a copy of another."""
    pixels = np.roll(np.asarray(image), 3 * step, axis=(0, 1))
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=90)
    return file.getvalue()


if __name__ == "__main__":
    main()
