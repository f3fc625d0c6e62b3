"""Files of a pool that change, shrink or go: noticed before their rows are used, and never a signal."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from commands import fails
from odst.data.mapped import Mapped
from odst.data.packing import build_pool
from odst.data.pool import open_pool, verify_pool
from odst.errors import UserError
from pictures import folder_of
from processes import environment


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    build_pool(folder_of(tmp_path / "in", 40), tmp_path / "pool", size=8, shard_rows=16)
    return tmp_path / "pool"


def zero_half(file: Path) -> None:
    with file.open("r+b") as opened:
        opened.seek(file.stat().st_size // 2)
        opened.write(bytes(file.stat().st_size // 2))


@pytest.mark.parametrize("name", ["shards/00001.npy", "index.parquet", "rejected.parquet"])
@pytest.mark.parametrize("how", ["half of it zeros", "cut", "empty", "missing"])
def test_a_changed_file_is_noticed_when_the_pool_is_opened(pool: Path, name: str, how: str) -> None:
    file = pool / name
    if how == "half of it zeros":
        zero_half(file)
    elif how == "missing":
        file.unlink()
    else:
        os.truncate(file, 0 if how == "empty" else file.stat().st_size // 2)
    with pytest.raises(UserError, match=f"{name}: this file {'is missing' if how == 'missing' else 'has changed'}"):
        open_pool(pool)
    assert name in fails("pool", "info", pool)
    assert name in fails("pool", "verify", pool)


def test_a_pool_with_other_times_is_read_once_and_then_known_again(pool: Path, tmp_path: Path) -> None:
    rows = open_pool(pool).x[:]
    copy = Path(shutil.copytree(pool, tmp_path / "copy"))
    shard = copy / "shards" / "00000.npy"
    os.utime(shard, (1, 1))
    np.testing.assert_array_equal(open_pool(copy).x[:], rows)
    zero_half(shard)
    os.utime(shard, (1, 1))  # by its size and time the file that was found right: only its hash could tell
    assert not np.array_equal(open_pool(copy).x[:], rows)
    with pytest.raises(UserError, match=r"00000\.npy differs"):
        verify_pool(copy)
    (copy / ".checked.json").unlink()
    with pytest.raises(UserError, match=r"00000\.npy: this file has changed"):
        open_pool(copy)


def test_an_edited_manifest_is_damaged(pool: Path) -> None:
    file = pool / "manifest.json"
    file.write_text(file.read_text().replace('"fit": "crop"', '"fit": "pad"'))
    with pytest.raises(UserError, match=r"manifest\.json: it is damaged"):
        open_pool(pool)


def test_a_shard_that_shrinks_while_it_is_in_use_is_one_line_and_no_signal(pool: Path) -> None:
    x = open_pool(pool).x
    shard = pool / "shards" / "00001.npy"
    x[np.array([3, 20, 37])]
    os.truncate(shard, 4096 if shard.stat().st_size > 8192 else 128)
    for rows in (np.array([20]), slice(18, 22), 20):
        with pytest.raises(UserError, match=r"00001\.npy: this file has become shorter"):
            x[rows]
    assert x[np.array([3, 37])].shape == (2, 8, 8, 3)


def test_a_pool_that_is_deleted_while_it_is_in_use_is_one_line(pool: Path) -> None:
    opened = open_pool(pool)
    shutil.rmtree(pool)
    with pytest.raises(UserError, match=r"index\.parquet: this file is missing"):
        opened.source(np.array([3]))
    with pytest.raises(UserError, match=r"00000\.npy: this file has gone"):
        opened.x[np.array([3])]


def test_a_file_that_holds_no_rows_is_one_line(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npy.npz", x=np.zeros(3))
    for name, content in {"b.npy": b"", "c.npy": b"\x93NUMPY\x01\x00\x08\x00{'descr'"}.items():
        (tmp_path / name).write_bytes(content)
    for name in ("a.npy.npz", "b.npy", "c.npy"):
        with pytest.raises(UserError, match="is damaged"):
            Mapped(tmp_path / name, "")


def test_many_shards_are_read_with_few_files_open(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.random.default_rng(0).integers(0, 256, (150, 8, 8, 3), np.uint8))
    build_pool(tmp_path / "a.npy", tmp_path / "pool", size=8, shard_rows=1)
    script = f"""
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import numpy as np
from odst.data.pool import open_pool
x = open_pool({str(tmp_path / "pool")!r}).x
whole = np.load({str(tmp_path / "a.npy")!r})
for seed in range(3):
    rows = np.random.default_rng(seed).permutation(150)
    assert (x[rows] == whole[rows]).all()
assert (x[:] == whole).all()
"""
    done = subprocess.run([sys.executable, "-c", script], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_changed_exclusion_list_of_the_leak_guard_is_noticed(pool: Path, tmp_path: Path) -> None:
    from commands import odst

    done = odst("dedup", pool, "--against", tmp_path / "in", "--lpips", "none", "--quiet")
    assert done.code == 0, done.err
    gone = len(open_pool(pool).excluded)
    assert gone == 40
    text = (pool / "excluded.parquet").read_bytes()
    (pool / "excluded.parquet").write_bytes(text[:-1])
    assert "excluded.parquet: `odst dedup` wrote this list, and it has changed" in fails("pool", "info", pool)
    (pool / "excluded.parquet").unlink()
    assert "it is missing" in fails("pool", "info", pool)
    (pool / "dedup.json").unlink()
    assert len(open_pool(pool).excluded) == 0
