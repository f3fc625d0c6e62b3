"""Tars and pickles that are wrong. Each function yields (what, spec)."""

import pickle
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.malformed.whole import Cases, N, cifar_pickle, picture


def _raw(name: bytes = b"a.png", size: bytes = b"00000000010\0", kind: bytes = b"0", data: bytes = b"") -> bytes:
    head = bytearray(512)
    head[: len(name)] = name
    head[100:108], head[124:136], head[136:148], head[156:157] = b"0000644\0", size, b"00000000000\0", kind
    head[257:265] = b"ustar\x0000"
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + data + bytes(-len(data) % 512)


def tars(folder: Path) -> Cases:
    path, spec, good = folder / "x.tar", f"{folder}/x.tar", picture(np.random.default_rng(0))

    def octal(n: int) -> bytes:
        return b"%011o\0" % n

    end = bytes(1024)
    deep = b"[" * 100_000
    for what, data in {
        "empty": b"",
        "zeros": end,
        "noise": np.random.default_rng(1).bytes(5000),
        "deep JSON": _raw(size=octal(len(good)), data=good) + _raw(b"a.json", octal(len(deep)), data=deep) + end,
        "deep JSON of a label": _raw(size=octal(len(good)), data=good) + _raw(b"a.json", octal(200_009), data=b'{"label":' + b"[" * 100_000 + b"]" * 100_000) + end,
        "JSON of a huge number": _raw(size=octal(len(good)), data=good) + _raw(b"a.json", octal(10_010), data=b'{"label":' + b"9" * 10_000 + b"}") + end,
        "JSON that is no text": _raw(size=octal(len(good)), data=good) + _raw(b"a.json", octal(4), data=b"\xff\xfe{}") + end,
        "a huge size": _raw(size=b"77777777777\0") + end,
        "a size beyond 2^63": _raw(size=b"\x80" + b"\x7f" + b"\xff" * 10) + end,
        "a negative size": _raw(size=b"\xff" * 12) + end,
        "a size that is no number": _raw(size=b"hello world!") + end,
        "a label of a huge size": _raw(size=octal(len(good)), data=good) + _raw(b"a.cls", b"77777777777\0") + end,
        "a label beyond 2^63": _raw(size=octal(len(good)), data=good) + _raw(b"a.cls", b"\x80\x7f" + b"\xff" * 10) + end,
        "a long name without one": _raw(b"././@LongLink", octal(100), b"L") + end,
        "a long name of a huge size": _raw(b"././@LongLink", b"77777777777\0", b"L") + end,
        "a pax header of a huge size": _raw(b"pax", b"77777777777\0", b"x") + end,
        "a broken pax header": _raw(b"pax", octal(30), b"x", b"99 size=1\n5 path=\xff\n-1 =\n") + _raw(size=octal(len(good)), data=good) + end,
        "a pax size of text": _raw(b"pax", octal(12), b"x", b"12 size=abc\n") + _raw(size=octal(len(good)), data=good) + end,
        "a pax size below 0": _raw(b"pax", octal(11), b"x", b"11 size=-9\n") + _raw(size=octal(len(good)), data=good) + end,
        "a pax header without an end": _raw(b"pax", octal(12), b"x", b"999999 size=") + end,
        "a global pax header": _raw(b"pax", octal(12), b"g", b"12 size=abc\n") + _raw(size=octal(len(good)), data=good) + end,
        "many pax headers": _raw(b"pax", octal(11), b"x", b"11 mtime=9\n") * 3000 + _raw(size=octal(len(good)), data=good) + end,
        "many long names": _raw(b"././@LongLink", octal(10), b"L", b"aaaaaaaaa\0") * 3000 + _raw(size=octal(len(good)), data=good) + end,
        "a link": _raw(kind=b"2") + end,
        "a device": _raw(kind=b"3") + end,
        "a sparse file": _raw(kind=b"S") + end,
        "an unknown kind": _raw(kind=b"Z") + end,
        "no name": _raw(b"") + end,
        "a name of slashes": _raw(b"////") + end,
        "a name that leads out": _raw(b"../../../etc/a.png", octal(len(good)), data=good) + end,
        "pictures alone and cut": _raw(size=octal(len(good)), data=good)[:600],
        "compressed": b"\x1f\x8b\x08" + bytes(99),
    }.items():  # fmt: skip
        path.write_bytes(data)
        yield what, spec
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        member = tarfile.TarInfo("a.png")
        member.pax_headers = {
            "GNU.sparse.major": "1",
            "GNU.sparse.minor": "0",
            "GNU.sparse.size": "-1",
            "size": "9" * 30,
        }
        archive.addfile(member)
    yield "pax sparse with a size of 30 digits", spec


def pickles(folder: Path) -> Cases:
    x = np.zeros((N, 3072), np.uint8)
    cifar_pickle(folder, np.random.default_rng(0))
    file, meta, spec = folder / "data_batch_1", folder / "batches.meta", f"{folder}/data_batch_1"
    good_meta = meta.read_bytes()
    y: list[Any] = [0] * N
    for what, batch in {
        "label -5": {"data": x, "labels": [-5, *y[1:]]},
        "label 2^70": {"data": x, "labels": [2**70, *y[1:]]},
        "label NaN": {"data": x, "labels": [float("nan"), *y[1:]]},
        "label half": {"data": x, "labels": [0.5, *y[1:]]},
        "label of text": {"data": x, "labels": ["a", *y[1:]]},
        "label of nothing": {"data": x, "labels": [None, *y[1:]]},
        "label a list": {"data": x, "labels": [[1, 2], *y[1:]]},
        "label a dict": {"data": x, "labels": {"a": 1}},
        "labels a number": {"data": x, "labels": 3},
        "labels booleans": {"data": x, "labels": [True] * N},
        "labels of records": {"data": x, "labels": np.zeros(N, [("a", "i4")])},
        "labels dates": {"data": x, "labels": np.zeros(N, "M8[s]")},
        "labels objects": {"data": x, "labels": np.array([0, 1, None] * 4, object)},
        "label 99": {"data": x, "labels": [99, *y[1:]]},
        "too many labels": {"data": x, "labels": [*y, 1]},
        "no rows": {"data": x[:0], "labels": []},
        "one row of bytes": {"data": x[0], "labels": y},
        "no width": {"data": x[:, :0], "labels": y},
        "a width that is no square": {"data": x[:, :3071], "labels": y},
        "five dimensions": {"data": np.zeros((N, 1, 1, 1, 3), np.uint8), "labels": y},
        "three dimensions": {"data": np.zeros((N, 32, 32), np.uint8), "labels": y},
        "a number": {"data": np.array(np.uint8(3)), "labels": y},
        "floats": {"data": x.astype(float), "labels": y},
        "a list": [1, 2],
        "None": None,
        "keys of bytes": {b"data": x, b"labels": y},
        "keys of numbers": {1: 2},
        "ImageNet-32 with label 0": {"data": x, "labels": y, "mean": 0},
    }.items():
        file.write_bytes(pickle.dumps(batch, 2))
        yield what, spec
        yield f"{what}, as a folder", str(folder)
    nested: Any = []
    for what, data in {
        "empty": b"",
        "protocol alone": b"\x80\x02",
        "protocol 99": b"\x80\x63.",
        "a call": b"\x80\x02cos\nsystem\nX\x04\x00\x00\x00true\x85R.",
        "deep": b"\x80\x02" + b"]" * 100_000 + b"a" * 99_999 + b".",
        "deep tuples": b"\x80\x02N" + b"\x85" * 200_000 + b".",
        "a memo of 2^31": b"\x80\x02Nr\xff\xff\xff\x7f.",
        "a text of 2^62": b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"abc.",
        "bytes of 2^40": b"\x80\x05\x8e" + struct.pack("<Q", 2**40) + b"abc.",
        "a long of 2^31 bytes": b"\x80\x02\x8b" + struct.pack("<i", 2**31 - 1) + b"abc.",
        "a huge ndarray": b"\x80\x02cnumpy\nndarray\n(J\xff\xff\xff\x7fJ\xff\xff\xff\x7f\x86tR.",
        "an ndarray never filled": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R.",
        "a dtype of texts": b"\x80\x02cnumpy\ndtype\nX\x08\x00\x00\x00O,O,O,O,\x85R.",
        "a dtype with a state": b"\x80\x02cnumpy\ndtype\nU\x02V8K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK?tb.",
        "a text array built by hand": pickle.dumps({"data": np.array(["a", "b"]), "labels": [0, 1]}, 2),
        "another's class": b"\x80\x02codst.errors\nUserError\n)R.",
        "itself": b"\x80\x02]q\x00h\x00a.",
        "itself as a dict": b"\x80\x02}q\x00U\x04datah\x00s.",
        "stack underflow": b"\x80\x02....",
        "persistent id": b"\x80\x02Pabc\n.",
        "extension": b"\x80\x02\x82\x01.",
    }.items():
        file.write_bytes(data)
        yield what, spec
        meta.write_bytes(data)
        yield f"{what}, the names too", str(folder)
        meta.write_bytes(good_meta)
    del nested
    cifar_pickle(folder, np.random.default_rng(0))
    for what, names in {
        "a list": ["a"] * 10,
        "another key": {"a": 1},
        "names a number": {"label_names": 3},
        "names a text": {"label_names": "abcdefghij"},
        "names of numbers": {"label_names": list(range(10))},
        "names of nothing": {"label_names": [None] * 10},
        "names of lists": {"label_names": [[]] * 10},
        "names of bytes": {"label_names": [b"\xff"] * 10},
        "names an array": {"label_names": np.arange(10)},
        "too few names": {"label_names": ["a"]},
        "twice one name": {"label_names": ["a"] * 10},
    }.items():
        meta.write_bytes(pickle.dumps(names, 2))
        yield f"meta: {what}", str(folder)
    meta.unlink()
    meta.mkdir()
    yield "meta: a folder", str(folder)
