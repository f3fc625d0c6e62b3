"""Packing pictures into a pool, against bare Pillow decoding the same bytes in the same number of processes.

    python -m benchmarks.packing [--quick]

The anchor does what any packer must: open, convert to RGB, resize, into a numpy array; its bytes lie ready in memory and
its processes are already started. Packing also starts its processes, finds and reads the pictures, hashes them, drops
duplicates and writes shards and index. It lets the JPEG decoder shrink where three times the wanted size remains; the
second anchor does the same, so that the column beside it shows what the packing itself costs.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

WORKERS = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the pictures")
    quick = parser.parse_args().quick
    large, small, few = (2_000, 5_000, 500) if quick else (20_000, 50_000, 5_000)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        worst = 0.0
        head = ("bare s", "shrinking s", "packed s", "images/s", "ratio", "to shrinking", "peak MB")
        print(f"{'pictures':<24}{'from':<9}" + "".join(f"{text:>13}" for text in head))
        for n, side in ((large, 256), (small, 32)):
            encoded = pictures(n, side)
            seconds, shrinking = bare(encoded, shrink=False), bare(encoded, shrink=True)
            write_all(folder / f"{side}", encoded)
            for kind in ("folder", "tar", "parquet"):
                packed, peak = pack(folder / f"{side}" / kind, folder / f"{side}-{kind}")
                if side == 256:
                    worst = max(worst, packed / seconds)
                figures = (seconds, shrinking, packed, n / packed, packed / seconds, packed / shrinking, peak)
                print(f"{f'{n:,} JPEG {side}×{side}':<24}{kind:<9}" + "".join(f"{x:>13,.2f}" for x in figures))
        write_all(folder / "few", encoded[:few])
        for kind in ("folder", "tar", "parquet"):
            _, peak = pack(folder / "few" / kind, folder / f"few-{kind}")
            print(f"{f'{few:,} JPEG 32×32':<24}{kind:<9}{peak:>91,.2f}")
    print(f"packing ratio={worst:.2f} anchor=Pillow-decode+resize")


def pictures(n: int, side: int) -> list[bytes]:
    """Real ones blown up, where ODST_TEST_DATA says they are; else smooth noise."""
    data = os.environ.get("ODST_TEST_DATA")
    small: list[bytes | int] = list(range(n))
    if data:
        files = [Path(data) / f"{name}.parquet" for name in ("cifar100_train", "cifar10_train")]
        real = [row["bytes"] for file in files for row in pq.read_table(file, columns=["image"])["image"].to_pylist()]
        small = real[:n]
        assert len(small) == n
    with Pool(WORKERS) as processes:
        return processes.starmap(blow_up, [(item, side) for item in small], chunksize=500)


def blow_up(item: bytes | int, side: int) -> bytes:
    if isinstance(item, bytes):
        image = Image.open(io.BytesIO(item)).convert("RGB")
    else:
        image = Image.fromarray(np.random.default_rng(item).integers(0, 256, (8, 8, 3), dtype=np.uint8))
    file = io.BytesIO()
    image.resize((side, side), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


def bare(encoded: list[bytes], shrink: bool) -> float:
    """Seconds of the slowest process, each with its share in memory before the clock starts."""
    with Pool(WORKERS) as processes:
        return max(processes.starmap(decode_all, [(encoded[i::WORKERS], shrink) for i in range(WORKERS)], chunksize=1))


def decode_all(encoded: list[bytes], shrink: bool) -> float:
    time.sleep(0.5)  # until the other process has its share
    start = time.perf_counter()
    for data in encoded:
        image = Image.open(io.BytesIO(data))
        if shrink:
            image.draft("RGB", (96, 96))
        np.asarray(image.convert("RGB").resize((32, 32), Image.Resampling.BICUBIC))
    return time.perf_counter() - start


def write_all(folder: Path, encoded: list[bytes]) -> None:
    """The same pictures as a folder tree, as a tar and as parquet."""
    for name in ("folder", "tar", "parquet"):
        (folder / name).mkdir(parents=True)
    with tarfile.open(folder / "tar" / "0.tar", "w") as tar:
        for i, data in enumerate(encoded):
            file = folder / "folder" / f"{i % 100:02d}" / f"{i:06d}.jpg"
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(data)
            info = tarfile.TarInfo(f"{i:06d}.jpg")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    image = [{"bytes": data, "path": None} for data in encoded]
    pq.write_table(pa.table({"image": pa.array(image)}), folder / "parquet" / "0.parquet", row_group_size=1000)


PACK = """
import json, sys, time
from pathlib import Path
from odst.data.packing import build_pool
if __name__ == "__main__":
    start = time.perf_counter()
    build_pool(sys.argv[1], Path(sys.argv[2]), workers=int(sys.argv[3]), keep_duplicates=True)
    print(json.dumps(time.perf_counter() - start))
"""


def pack(source: Path, out: Path) -> tuple[float, float]:
    """Seconds, and the peak of private memory in MB, its processes included."""
    script = out.with_suffix(".py")
    script.write_text(PACK)
    command = [sys.executable, str(script), str(source), str(out), str(WORKERS)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak = [0.0]
        watch = threading.Thread(target=watch_memory, args=(process, peak))
        watch.start()
        output, _ = process.communicate()
        watch.join()
    assert process.returncode == 0
    return json.loads(output), peak[0]


def watch_memory(process: "subprocess.Popen[str]", peak: list[float]) -> None:
    while process.poll() is None:
        peak[0] = max(peak[0], sum(map(private_memory, family(process.pid))) / 1024)
        time.sleep(0.02)


def family(pid: int) -> list[int]:
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [pid, *(member for child in children for member in family(int(child)))]


def private_memory(pid: int) -> int:
    """RssAnon in kB."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("RssAnon")), 0)


if __name__ == "__main__":
    main()
