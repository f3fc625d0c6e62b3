"""Packed pools joined into one without copying a row."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from odst.data.pool import FORMAT, hash_heads, identity, indexes, open_table, read_manifest, write_manifest
from odst.errors import UserError
from odst.files import sha256, whole
from odst.locks import lock


def join_pools(pools: Sequence[Path], out: Path) -> Path:
    """A pool whose rows are those of `pools` one after the other. Rows that an earlier pool holds already are set aside."""
    manifests = [read_manifest(pool) for pool in pools]
    kinds = {(manifest["dtype"], tuple(manifest["row"])) for manifest in manifests}
    if len(kinds) != 1:
        texts = [
            f"{pool} ({m['dtype']} {'×'.join(map(str, m['row']))})" for pool, m in zip(pools, manifests, strict=True)
        ]
        raise UserError(f"{', '.join(texts)}: pools of different rows cannot be joined. Build them with one --size.")
    with lock(out, "odst pool join"):
        _write(pools, manifests, out)
    return out


def _write(pools: Sequence[Path], manifests: list[dict[str, Any]], out: Path) -> None:
    if (out / "manifest.json").exists():
        raise UserError(f"{out}: there is a pool already. Choose another --out.")
    manifest = {
        "format": FORMAT,
        "dtype": manifests[0]["dtype"],
        "row": manifests[0]["row"],
        "count": sum(m["count"] for m in manifests),
        "pools": [
            {"path": _relative(pool, out), "identity": identity(m), "count": m["count"]}
            for pool, m in zip(pools, manifests, strict=True)
        ],
    }
    repeated = _repeated([file for pool, m in zip(pools, manifests, strict=True) for file, _ in indexes(pool, m)])
    if len(repeated):
        with whole(out / "duplicates.parquet") as temporary:
            pq.write_table(pa.table({"pool_id": repeated}), temporary, compression="zstd")
        manifest["files"] = {"duplicates.parquet": sha256(out / "duplicates.parquet")}
    write_manifest(out, manifest)


def _relative(pool: Path, out: Path) -> str:
    try:
        return Path(os.path.relpath(pool.resolve(), out.resolve())).as_posix()  # `..` leads out of a link's target
    except ValueError:  # another drive
        return str(pool.absolute())


def _repeated(indexes: Sequence[Path]) -> np.ndarray:
    """Ids whose content hash stands at an earlier id: 8 bytes of each hash are compared."""
    heads = []
    for index in indexes:
        with open_table(index) as table:
            for batch in table.iter_batches(65536, columns=["hash"]):
                heads.append(hash_heads(batch.column(0).to_pylist()))
    every = np.concatenate(heads)
    order = np.argsort(every, kind="stable")
    again = every[order][1:] == every[order][:-1]
    return np.sort(order[1:][again])
