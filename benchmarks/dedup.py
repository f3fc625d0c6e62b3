"""All pairs within 2000/255: odst's search against faiss.IndexFlatL2.range_search, same pairs, same threads, all set-up counted.

    python -m benchmarks.dedup [--quick]

With ODST_TEST_DATA the references are 5,000 CIFAR-10 test images and the pool is CIFAR-100 and CIFAR-10 training images;
without it both are random images with a natural spectrum. The million is made of jittered training images (flip, roll, gain,
offset), which keeps the statistics; faiss is measured on a part of it.
"""

import argparse
import io
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.measuring import conclude, peak_memory, table
from odst.duplicates.search import near_pairs

RADIUS = 2000 / 255
THREADS = 2
FAISS_PART = 5_000


def real(folder: Path, name: str, n: int) -> np.ndarray:
    import pyarrow.parquet as pq
    from PIL import Image

    rows = pq.read_table(folder / f"{name}.parquet", columns=["image"]).slice(0, n)["image"].to_pylist()
    return np.stack([np.asarray(Image.open(io.BytesIO(row["bytes"])).convert("RGB")) for row in rows])


def spectral(n: int, seed: int) -> np.ndarray:
    """Random images with a 1/f spectrum, the contrast and brightness of each drawn as wide as CIFAR's."""
    rng = np.random.default_rng(seed)
    f = np.hypot(np.fft.fftfreq(32)[:, None], np.fft.rfftfreq(32)[None, :])
    f[0, 0] = np.inf
    out = []
    for start in range(0, n, 1000):
        k = min(1000, n - start)
        noise = rng.normal(size=(k, 3, 32, 17)) + 1j * rng.normal(size=(k, 3, 32, 17))
        noise = 0.9 * noise[:, :1] + 0.45 * noise  # the channels of a photograph go together
        x = np.fft.irfft2(noise / f, s=(32, 32))
        x = x / x.std((1, 2, 3), keepdims=True) * rng.gamma(6, 9, (k, 1, 1, 1)) + rng.normal(120, 35, (k, 3, 1, 1))
        out.append(np.clip(x, 0, 255).astype(np.uint8).transpose(0, 2, 3, 1))
    return np.concatenate(out)


def jittered(x: np.ndarray, n: int, path: Path) -> None:
    """A .npy of n images made from `x`, written block by block."""
    rng = np.random.default_rng(7)
    out = np.lib.format.open_memmap(path, "w+", np.uint8, (n, *x.shape[1:]))
    for start in range(0, n, 256):
        k = min(256, n - start)
        block = np.roll(x[rng.integers(0, len(x), k)], rng.integers(-4, 5, 2), axis=(1, 2))
        block = block[:, :, ::-1] if rng.random() < 0.5 else block
        gain = rng.uniform(0.8, 1.2, (k, 1, 1, 1)).astype(np.float32)
        shift = rng.uniform(-20, 20, (k, 1, 1, 1)).astype(np.float32)
        out[start : start + k] = np.clip((block - np.float32(128)) * gain + 128 + shift, 0, 255)
    out.flush()


def ours(pool: np.ndarray, reference: np.ndarray) -> tuple[float, np.ndarray]:
    begin = time.perf_counter()
    blocks = [b.pool_id * len(reference) + b.reference_id for b in near_pairs(pool, reference, RADIUS)]
    return time.perf_counter() - begin, np.concatenate(blocks)


def theirs(pool: np.ndarray, reference: np.ndarray) -> tuple[float, np.ndarray]:
    """Searched a hair wider than float32 errs; the exact recheck that follows is not on its clock."""
    import faiss

    faiss.omp_set_num_threads(THREADS)
    begin = time.perf_counter()
    index = faiss.IndexFlatL2(int(np.prod(reference.shape[1:])))
    index.add(reference.reshape(len(reference), -1).astype(np.float32) / 255)
    starts, _, j = index.range_search(pool.reshape(len(pool), -1).astype(np.float32) / 255, RADIUS**2 * 1.0001)
    seconds = time.perf_counter() - begin
    i = np.repeat(np.arange(len(pool)), np.diff(starts.astype(np.int64)))
    keep = np.concatenate([
        ((pool[i[s : s + 4096]].astype(np.int64) - reference[j[s : s + 4096]]) ** 2).sum((1, 2, 3)) < 2000**2
        for s in range(0, len(i), 4096)
    ] or [np.empty(0, bool)])  # fmt: skip
    return seconds, i[keep] * len(reference) + j[keep]


def compare(name: str, pool: np.ndarray, reference: np.ndarray) -> float:
    mine, a = ours(pool, reference)
    other, b = theirs(pool, reference)
    missing, extra = len(np.setdiff1d(b, a)), len(np.setdiff1d(a, b))
    print(f"| {name} | {len(a):,} | {missing} | {extra} | {other:.1f} | {mine:.2f} | {other / mine:.1f} |", flush=True)
    assert missing == extra == 0
    return other / mine


def stream(pool: Path, reference: Path, m: int) -> None:
    """In a process of its own, so that its memory can be watched: the first m images of a file."""
    torch.set_num_threads(THREADS)
    begin = time.perf_counter()
    pairs = sum(len(b) for b in near_pairs(np.load(pool, mmap_mode="r")[:m], np.load(reference), RADIUS))
    pool.with_suffix(".txt").write_text(f"{pairs} {time.perf_counter() - begin}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a few seconds: 5,000 × 1,000, and memory at small sizes")
    parser.add_argument("--stream", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.stream:
        return stream(Path(args.stream[0]), Path(args.stream[1]), int(args.stream[2]))
    torch.set_num_threads(THREADS)
    sizes = (5_000,) if args.quick else (20_000, 50_000)
    n = 1_000 if args.quick else 5_000
    large = (10_000, 40_000) if args.quick else (100_000, 1_000_000)
    if folder := os.environ.get("ODST_TEST_DATA"):
        reference = real(Path(folder), "cifar10_test", n)
        pool = real(Path(folder), "cifar100_train", 30_000 if not args.quick else max(sizes))
        if not args.quick:
            pool = np.concatenate([pool, real(Path(folder), "cifar10_train", max(sizes) - len(pool))])
    else:
        reference, pool = spectral(n, 1), spectral(max(sizes), 2)
    print("| pool × references | pairs | missing | extra | faiss s | odst s | ratio |\n|---|---|---|---|---|---|---|")
    compare("warm-up", pool[:512], reference[:512])
    ratios = [compare(f"{m:,} × {n:,}", pool[:m], reference) for m in sizes]
    with tempfile.TemporaryDirectory() as scratch:
        file, refs = Path(scratch) / "pool.npy", Path(scratch) / "refs.npy"
        jittered(pool, max(large), file)
        np.save(refs, reference)
        part = np.load(file, mmap_mode="r")[: min(FAISS_PART, max(large))]
        seconds, _ = theirs(part, reference)
        memory = {}
        for m in large:
            memory[m], _ = peak_memory(["-m", "benchmarks.dedup", "--stream", str(file), str(refs), str(m)])
        pairs, mine = map(float, file.with_suffix(".txt").read_text().split())
    whole = seconds * max(large) / len(part)
    faiss = f"{whole:.0f} (from {len(part):,})"
    print(f"| {max(large):,} × {n:,} | {int(pairs):,} | | | {faiss} | {mine:.1f} | {whole / mine:.1f} |\n")
    print(
        table(
            ("pool images", "peak private memory"), [(f"{m:,}", f"{peak / 1e6:.0f} MB") for m, peak in memory.items()]
        )
    )
    conclude("dedup", ratios[-1], "faiss.IndexFlatL2.range_search")


if __name__ == "__main__":
    main()
