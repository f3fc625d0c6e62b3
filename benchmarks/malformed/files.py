"""Original files, names and folders that are wrong. Each function yields (what, spec)."""

import os
from pathlib import Path

import numpy as np

from benchmarks.malformed.whole import Cases, N, X, cifar10_1, cifar_c, picture, svhn, tree


def originals(folder: Path) -> Cases:
    from scipy.io import savemat

    rng = np.random.default_rng(0)
    spec, (file,) = svhn(folder, rng)
    x = np.zeros((32, 32, 3, N), np.uint8)
    for what, content in {
        "y of -3": {"X": x, "y": np.full((N, 1), -3)},
        "y of 99": {"X": x, "y": np.full((N, 1), 99)},
        "y of 0": {"X": x, "y": np.full((N, 1), 0)},
        "y of NaN": {"X": x, "y": np.full((N, 1), np.nan)},
        "y of halves": {"X": x, "y": np.full((N, 1), 1.5)},
        "y of text": {"X": x, "y": np.full((N, 1), "a")},
        "y of cells": {"X": x, "y": np.full((N, 1), "a", object)},
        "y a struct": {"X": x, "y": {"a": 1}},
        "y complex": {"X": x, "y": np.full((N, 1), 1j)},
        "no y": {"X": x},
        "X of floats": {"X": x.astype(float), "y": np.ones((N, 1))},
        "X a struct": {"X": {"a": 1}, "y": np.ones((N, 1))},
        "no pictures": {"X": x[..., :0], "y": np.ones((0, 1))},
    }.items():
        savemat(file, content)
        yield f"svhn {what}", spec
    (folder / "new.mat").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(999))
    yield "svhn as HDF5", f"{folder}/new.mat"
    file.unlink()
    (folder / "new.mat").unlink()
    for what, values in {
        "-1": np.full(N, -1),
        "10": np.full(N, 10),
        "NaN": np.full(N, np.nan),
        "half": np.full(N, 0.5),
        "text": np.full(N, "a"),
        "2-d": np.zeros((N, 2), int),
        "too few": np.zeros(3, int),
    }.items():
        spec, (_, y) = cifar10_1(folder, rng)
        np.save(y, values)
        yield f"CIFAR-10.1 labels {what}", spec
    for made in folder.iterdir():
        made.unlink()
    for what, values in {
        "-1": np.full(10, -1),
        "NaN": np.full(10, np.nan),
        "text": np.full(10, "a"),
        "10": np.full(10, 10),
        "2^62": np.full(10, 2**62),
    }.items():
        spec, (y, *_) = cifar_c(folder, rng)
        np.save(y, values)
        yield f"CIFAR-C labels {what}", spec
    for made in folder.iterdir():
        made.unlink()
    for name, size in {
        "data_batch_1.bin": 3072,
        "train.bin": 3073,
        "test_batch.bin": 0,
        "tiny_images.bin": 3071,
    }.items():
        (folder / name).write_bytes(bytes(size))
        yield f"{name} of {size} bytes", f"{folder}/{name}"
    (folder / "data_batch_1.bin").write_bytes(b"\xff" * 3073)
    yield "label 255", f"{folder}/data_batch_1.bin"
    (folder / "batches.meta.txt").write_bytes(b"\xff\xfe\n" * 10)
    yield "names that are no text", f"{folder}/data_batch_1.bin"
    (folder / "data_batch_99999999999999999999999").write_bytes(b"")
    yield "a batch of a huge number", str(folder)


def names(folder: Path) -> Cases:
    yield "NUL", f"{folder}/a\0b"
    yield "NUL in a query", f"{folder}/x.npy?labels=a\0b"
    yield "5,000 letters", f"{folder}/{'a' * 5000}"
    yield "5,000 letters of a .npy", f"{folder}/{'a' * 5000}.npy"
    yield "5,000 folders", f"{folder}/{'a/' * 5000}"
    yield "a long pattern", f"{folder}/{'*' * 300}"
    yield "an open bracket", f"{folder}/[a-"
    yield "empty", ""
    yield "blanks", "  "
    yield "a question mark", "?"
    yield "a lone surrogate", f"{folder}/\udcff.npy"
    yield "no user", "~nobody-of-this-name/x"
    np.save(folder / "x.npy", X)
    for query in (
        "labels=",
        "labels=..",
        "labels=x.npy",
        "paths=x.npy",
        f"labels={'a' * 5000}.npy",
        "labels=/dev/null",
        "rows=1",
        "paths=nowhere.csv",
        "labels=y.txt",
    ):
        yield f"x.npy?{query[:30]}", f"{folder}/x.npy?{query}"
    for device in ("/dev/null", "/dev/zero", "/proc/self/mem", "/proc/self/environ"):
        yield device, device


def folders(folder: Path) -> Cases:
    rng = np.random.default_rng(0)
    for ending in ("npy", "npz", "csv", "tsv", "parquet", "tar", "mat", "bin", "pkl", "png", "txt"):
        place = folder / f"x.{ending}"
        place.mkdir()
        yield f"empty, called x.{ending}", str(place)
        (place / "a.png").write_bytes(picture(rng))
        yield f"called x.{ending}", str(place)
        os.mkfifo(folder / f"pipe.{ending}")
        yield f"a pipe called pipe.{ending}", f"{folder}/pipe.{ending}"
    (folder / "batches").mkdir()
    for name in ("data_batch_1", "batches.meta"):
        (folder / "batches" / name).mkdir()
    yield "folders called like batches", f"{folder}/batches"
    os.mkfifo(folder / "batches" / "data_batch_2")
    yield "a pipe called like a batch", f"{folder}/batches"
    (folder / "c").mkdir()
    (folder / "c" / "labels.npy").symlink_to("labels.npy")
    (folder / "c" / "gaussian_noise.npy").symlink_to("nowhere")
    yield "links to nowhere", f"{folder}/c"
    (folder / "clip" / "img_emb").mkdir(parents=True)
    (folder / "clip" / "metadata").mkdir()
    yield "clip-retrieval without a file", f"{folder}/clip"
    (folder / "clip" / "img_emb" / "a_0.npy").mkdir()
    (folder / "clip" / "metadata" / "a_0.parquet").mkdir()
    yield "clip-retrieval of folders", f"{folder}/clip"
    (folder / "loop").mkdir()
    (folder / "loop" / "loop").symlink_to(".")
    yield "a loop", f"{folder}/loop"
    (folder / "odd").mkdir()
    (folder / "odd" / os.fsdecode(b"\xff\xfe.png")).write_bytes(picture(rng))
    os.mkfifo(folder / "odd" / "pipe.png")
    yield "a name that is no text, and a pipe", f"{folder}/odd"
    deep = folder / "deep"
    spot = deep
    for _ in range(1050):
        spot.mkdir()
        spot = spot / "d"
    spot.mkdir()
    (spot / "a.png").write_bytes(picture(rng))
    yield "1,050 folders deep", str(deep)
    (spot / "a.png").unlink()
    while spot != folder:  # rmtree would not get to its end
        spot.rmdir()
        spot = spot.parent
    (folder / "pool").mkdir()
    for what, text in {
        "empty": "",
        "a list": "[]",
        "no keys": "{}",
        "deep": "[" * 100_000,
        "odd": '{"format": 1, "dtype": "|O", "row": [-1], "count": 1, "shards": []}',
    }.items():
        (folder / "pool" / "manifest.json").write_text(text)
        yield f"a pool's manifest {what}", f"{folder}/pool"
    place = folder / "whole"
    place.mkdir()
    spec, files = tree(place, rng)
    for what, data in {"empty": b"", "heads alone": None, "zeros": bytes(9999)}.items():
        for file in files:
            file.write_bytes(file.read_bytes()[:20] if data is None else data)
        yield f"pictures {what}", spec
