"""Arrays, their labels, and archives of them that are wrong. Each function yields (what, spec)."""

import io
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.malformed.whole import (
    Cases,
    N,
    X,
    header,
    images_npy,
    npz,
    picture,
)


def arrays(folder: Path) -> Cases:
    whole = io.BytesIO()
    np.save(whole, X)
    headers = {
        "cut header": whole.getvalue()[:40],
        "magic alone": b"\x93NUMPY",
        "no header": b"\x93NUMPY\x01\x00",
        "negative shape": header("(-5, 16, 16, 3)") + bytes(999),
        "huge shape": header("(99999999999, 16, 16, 3)") + bytes(999),
        "overflowing shape": header(f"({2**62}, {2**62}, 16, 3)") + bytes(999),
        "shape of floats": header("(1.5, 16, 16, 3)") + bytes(999),
        "shape of booleans": header("(True, 16, 16, 3)") + bytes(999),
        "shape of text": header("'abc'") + bytes(999),
        "no rows of pictures": header("(0, 16, 16, 3)"),
        "n×0 features": header("(5, 0)", "'<f4'"),
        "0×n features": header("(0, 5)", "'<f4'"),
        "pictures without pixels": header("(5, 0, 16, 3)"),
        "pictures without width": header("(5, 16, 0, 3)"),
        "pictures without a channel": header("(5, 16, 16, 0)"),
        "objects": header("(5, 4)", "'|O'") + bytes(999),
        "records": header("(5, 4)", "[('a', '<f4'), ('b', '<f4')]") + bytes(999),
        "type of no size": header("(5, 4)", "'|S0'") + bytes(999),
        "unknown type": header("(5, 4)", "'<q99'") + bytes(999),
        "type that is a call": header("(5, 4)", "__import__('os')") + bytes(999),
        "nested header": header("(" * 3000 + ")" * 3000) + bytes(99),
        "version 9": b"\x93NUMPY\x09\x00" + whole.getvalue()[8:],
        "longest header": b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b" " * 99,
        "empty": b"",
        "a picture": picture(np.random.default_rng(0)),
        "an archive": b"PK\x03\x04" + bytes(99),
        "a pickle": pickle.dumps([1, 2]),
        "text": b"hello\n" * 99,
    }
    for what, data in headers.items():
        (folder / "x.npy").write_bytes(data)
        yield what, f"{folder}/x.npy"
    for what, x in {
        "a number": np.float32(3),
        "one row": np.zeros(4, np.uint8),
        "five dimensions": np.zeros((2, 3, 4, 5, 6), np.uint8),
        "five channels": np.zeros((2, 8, 8, 5), np.uint8),
        "integers": np.zeros((4, 4), np.int64),
        "complex": np.zeros((4, 4), np.complex64),
        "texts": np.full((4, 4), "a"),
        "dates": np.zeros((4, 4), "M8[s]"),
        "all NaN": np.full((4, 4), np.nan, np.float32),
        "one pixel": np.zeros((4, 1, 1, 3), np.uint8),
        "longdouble": np.zeros((4, 4), np.longdouble),
    }.items():
        np.save(folder / "x.npy", x)
        yield what, f"{folder}/x.npy"


def labels(folder: Path) -> Cases:
    rng = np.random.default_rng(0)
    spec, (_, y) = images_npy(folder, rng)
    for what, values in {
        "NaN among them": np.where(np.arange(N) == 3, np.nan, 1.0),
        "infinite": np.full(N, np.inf),
        "fractions": np.full(N, 0.5),
        "complex": np.full(N, 1j),
        "dates": np.zeros(N, "M8[s]"),
        "records": np.zeros(N, [("a", "i4")]),
        "not a time": np.full(N, np.datetime64("NaT")),
        "too few": np.arange(3),
        "a column": np.zeros((N, 1), int),
        "a number": np.int64(3),
        "none": np.empty(0),
        "empty texts": np.full(N, ""),
        "null bytes": np.full(N, b"\xff\xfe\x00\x01"),
    }.items():
        np.save(y, values)
        yield f"npy {what}", spec
        np.savez(folder / "z.npz", x=X, labels=values)
        yield f"npz {what}", f"{folder}/z.npz"
        np.savez(folder / "z.npz", x=X, labels=values, classes=np.array(["a", "b"]))
        yield f"npz with classes {what}", f"{folder}/z.npz"
        pq.write_table(
            pa.table({"path": ["a.png"] * min(N, values.size or 1), "n": [1] * min(N, values.size or 1)}),
            folder / "t.parquet",
        )
        yield f"listed by what lacks {what}", f"{folder}/x.npy?labels=t.parquet"
    y.unlink()
    yield "not there", spec
    y.mkdir()
    yield "a folder", spec
    for what, values in {
        "2-d classes": np.full((2, 2), "a"),
        "no classes": np.empty(0, "U1"),
        "a class": np.array("a"),
    }.items():
        np.savez(folder / "z.npz", x=X, labels=np.zeros(N, int), classes=values)
        yield what, f"{folder}/z.npz"


def archives(folder: Path) -> Cases:
    path = folder / "x.npz"
    spec, _ = npz(folder, np.random.default_rng(0))
    good = path.read_bytes()
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("readme.txt", "hello")
    yield "with a text in it", spec
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", "hello")
    yield "a text called .npy", spec
    for method in (99, 97, 1, 6, 14):
        data = bytearray(good)
        at = data.index(b"PK\x01\x02")
        while at >= 0:
            data[at + 10 : at + 12] = struct.pack("<H", method)
            local = struct.unpack_from("<I", data, at + 42)[0]
            data[local + 8 : local + 10] = struct.pack("<H", method)
            at = data.find(b"PK\x01\x02", at + 4)
        path.write_bytes(data)
        yield f"compressed by method {method}", spec
    data = bytearray(good)
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    data[6] |= 1
    path.write_bytes(data)
    yield "encrypted", spec
    path.write_bytes(b"PK\x05\x06" + bytes(18))
    yield "empty archive", spec
    for what, arrays in {
        "nothing two-dimensional": {"y": np.arange(3)},
        "two data sets": {"a": X, "b": X},
        "a number": {"a": np.int64(1)},
        "no rows": {"x": X[:0]},
        "features without width": {"x": np.zeros((4, 0), np.float32)},
    }.items():
        np.savez(path, **arrays)
        yield what, spec
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header("(99999999999, 16, 16, 3)") + bytes(999))
    yield "huge shape", spec
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header("(5, 4)", "'|O'") + pickle.dumps([1]))
    yield "objects", spec
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", header("(-1, 16, 16, 3)") + bytes(999))
    yield "negative shape", spec
