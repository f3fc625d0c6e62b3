"""Tables and lists that are wrong. Each function yields (what, spec)."""

import json
import struct
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.malformed.whole import Cases, csv_list, picture


def tables(folder: Path) -> Cases:
    rng = np.random.default_rng(0)
    path, spec = folder / "x.parquet", f"{folder}/x.parquet"
    pictures = pa.array([picture(rng)] * 4)
    for what, columns in {
        "no columns": {},
        "no rows": {"image": pa.array([], pa.binary())},
        "image as a list of bytes": {"image": pa.array([[b"a"]] * 4)},
        "image as a list of numbers": {"image": pa.array([[1, 2, 3]] * 4)},
        "image as a list of lists": {"image": pa.array([[[1.0]]] * 4)},
        "image as a number": {"image": pa.array([1, 2, 3, 4])},
        "image as nothing": {"image": pa.nulls(4)},
        "image as text": {"image": pa.array(["a"] * 4)},
        "image of bytes that are numbers": {"image": pa.array([{"bytes": 3, "path": "a"}] * 4)},
        "image of bytes that are texts": {"image": pa.array([{"bytes": "abc", "path": "a"}] * 4)},
        "image of bytes that are lists": {"image": pa.array([{"bytes": [b"abc"], "path": "a"}] * 4)},
        "image of paths that are numbers": {
            "image": pa.array(
                [{"bytes": None, "path": 3}] * 4, pa.struct([("bytes", pa.binary()), ("path", pa.int64())])
            )
        },
        "image of a path with NUL": {
            "image": pa.array(
                [{"bytes": None, "path": "a\0b"}] * 4, pa.struct([("bytes", pa.binary()), ("path", pa.string())])
            )
        },
        "image of a path that is a lone surrogate": {
            "image": pa.array(
                [{"bytes": None, "path": "a" * 5000}] * 4, pa.struct([("bytes", pa.binary()), ("path", pa.string())])
            )
        },
        "all images missing": {"image": pa.array([None] * 4, pa.binary())},
        "label NaN": {"image": pictures, "label": pa.array([float("nan")] * 4)},
        "label infinite": {"image": pictures, "label": pa.array([float("inf")] * 4)},
        "label bytes": {"image": pictures, "label": pa.array([b"\xff\xfe"] * 4)},
        "label dates": {"image": pictures, "label": pa.array(np.zeros(4, "M8[s]"))},
        "label durations": {"image": pictures, "label": pa.array([2**62] * 4, pa.duration("s"))},
        "label times out of range": {"image": pictures, "label": pa.array([2**62] * 4, pa.timestamp("us"))},
        "label decimals": {"image": pictures, "label": pa.array([1, 2, 3, 4]).cast(pa.decimal128(38, 3))},
        "label dictionary": {"image": pictures, "label": pa.array(["a", "b"] * 2).dictionary_encode()},
        "paths that are numbers": {"path": pa.array([1, 2, 3, 4])},
        "paths that are bytes": {"path": pa.array([b"a\xff"] * 4)},
        "paths with NUL": {"path": pa.array(["a\0b"] * 4)},
        "long paths": {"path": pa.array(["a" * 5000] * 4)},
        "paths that are missing": {"path": pa.array([None] * 4, pa.string())},
        "URIs that are none": {"path": pa.array(["file://%ff%00", "file://", "http://[::1", "file:///"])},
        "vectors of two lengths": {"embedding": pa.array([[1.0], [1.0, 2.0]])},
        "vectors of no length": {"embedding": pa.array([[]] * 4, pa.list_(pa.float32()))},
        "vectors of fixed length 0": {"embedding": pa.array([[]] * 4, pa.list_(pa.float32(), 0))},
        "vectors missing": {"embedding": pa.array([None] * 4, pa.list_(pa.float32()))},
        "vectors with gaps": {"embedding": pa.array([[1.0, None]] * 4)},
        "fixed vectors missing": {"embedding": pa.array([[1.0, 2.0], None], pa.list_(pa.float32(), 2))},
        "vectors of paths that are bytes": {"embedding": pa.array([[1.0]] * 4), "path": pa.array([b"\xff"] * 4)},
        "vectors of paths with NUL": {"embedding": pa.array([[1.0]] * 4), "path": pa.array(["a\0"] * 4)},
        "two columns of one name": None,
    }.items():
        table = pa.table(columns) if columns is not None else pa.table([pictures, pictures], ["image", "image"])
        pq.write_table(table, path)
        yield what, spec
    pq.write_table(
        pa.table([pictures, pa.array([0, 1, 2, 3]), pa.array([0, 1, 2, 3])], ["image", "label", "label"]), path
    )
    yield "two columns called label", spec
    for what, text in {
        "not JSON": "{",
        "deep": "[" * 100_000,
        "a list": "[]",
        "names a number": json.dumps({"info": {"features": {"label": {"names": 3}}}}),
        "names that are numbers": json.dumps({"info": {"features": {"label": {"names": [1, None, {}, []]}}}}),
        "too few names": json.dumps({"info": {"features": {"label": {"names": ["a"]}}}}),
        "features a text": json.dumps({"info": {"features": "abc"}}),
    }.items():
        for kind, values in {
            "whole": [0, 1, 2, 3],
            "fractions": [0.5] * 4,
            "texts": ["a", "b", "c", "d"],
            "NaN": [float("nan")] * 4,
            "bytes": [b"a"] * 4,
        }.items():
            table = pa.table({"image": pictures, "label": pa.array(values)})
            pq.write_table(table.replace_schema_metadata({"huggingface": text}), path)
            yield f"metadata {what}, labels {kind}", spec
    pq.write_table(pa.table({"image": pictures, "label": [0, -1, -7, 3]}), path)
    for query in (
        "label=image",
        "image=label",
        "features=image",
        "path=label",
        "split=a",
        "image=image&image=label",
        "label=label&split=",
        "%ff=%00",
    ):
        yield f"asked for {query}", f"{spec}?{query}"
    good = path.read_bytes()
    for what, data in {
        "empty": b"",
        "magic alone": b"PAR1",
        "twice the magic": b"PAR1PAR1",
        "no foot": good[:-8],
        "foot alone": good[-40:],
        "huge foot": good[:-8] + struct.pack("<I", 2**31 - 1) + b"PAR1",
    }.items():
        path.write_bytes(data)
        yield what, spec


def texts(folder: Path) -> Cases:
    csv_list(folder, np.random.default_rng(0))
    for ending in ("csv", "tsv"):
        path, spec = folder / f"x.{ending}", f"{folder}/x.{ending}"
        mark = "," if ending == "csv" else "\t"
        for what, text in {
            "empty": b"",
            "a newline": b"\n",
            "header alone": f"path{mark}label\n".encode(),
            "no path column": f"a{mark}b\n1{mark}2\n".encode(),
            "NUL in a path": f"path{mark}label\n0\0.png{mark}a\n".encode(),
            "NUL in the header": f"path\0{mark}label\n0.png{mark}a\n".encode(),
            "long path": f"path{mark}label\n{'a' * 5000}{mark}a\n".encode(),
            "long cell": f"path{mark}label\n0.png{mark}{'a' * 200_000}\n".encode(),
            "open quote": f'path{mark}label\n"0.png{mark}a\n'.encode(),
            "open quote in the header": f'"path{mark}label\n0.png{mark}a\n'.encode(),
            "too many cells": f"path{mark}label\n0.png{mark}a{mark}b{mark}c\n".encode(),
            "too few cells": f"label{mark}path\na\n".encode(),
            "two path columns": f"path{mark}path\n0.png{mark}1.png\n".encode(),
            "not UTF-8": b"path" + mark.encode() + b"label\n\xff\xfe.png" + mark.encode() + b"\xff\n",
            "UTF-16": f"path{mark}label\n0.png{mark}a\n".encode("utf-16"),
            "lone carriage returns": f"path{mark}label\r0.png{mark}a\r".encode(),
            "a folder as a picture": f"path{mark}label\n.{mark}a\n/{mark}b\n".encode(),
            "devices": f"path{mark}label\n/dev/zero{mark}a\n/dev/stdin{mark}b\n".encode(),
            "URIs that are none": f"path{mark}label\nfile://{mark}a\nfile://%00{mark}b\nhttp://x/y{mark}c\n".encode(),
        }.items():  # fmt: skip
            path.write_bytes(text)
            yield f"{ending} {what}", spec
