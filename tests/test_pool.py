import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from odst.data.joining import join_pools
from odst.data.packing import build_pool
from odst.data.pool import open_pool, original_sizes, verify_pool
from odst.data.reading import read_set
from odst.errors import UserError
from pictures import picture


def packed(tmp: Path, name: str, first: int, last: int, shard_rows: int = 4) -> Path:
    np.save(tmp / f"{name}.npy", np.stack([picture(i, 8, 8) for i in range(first, last)]))
    build_pool(tmp / f"{name}.npy", tmp / name, size=8, shard_rows=shard_rows)
    return tmp / name


def test_what_is_read_from_a_pool_is_the_callers_own(tmp_path: Path) -> None:
    pool = open_pool(packed(tmp_path, "a", 0, 6))
    before = pool.x[:]
    pool.x[0:3][:] = 0
    pool.x[np.array([4, 5])][:] = 0
    assert (pool.x[:] == before).all()


def test_sources_and_hashes_are_looked_up_in_any_order(tmp_path: Path) -> None:
    pool = open_pool(packed(tmp_path, "a", 0, 30))
    ids = np.array([29, 0, 7, 7, 12])
    assert [int(uri.rpartition("=")[2]) for uri in pool.source(ids)] == ids.tolist()
    assert list(pool.content_hash(ids[2:4])) == [pool.content_hash(np.array([7]))[0]] * 2
    assert list(pool.source(np.array([], np.int64))) == []


def test_a_joined_pool_is_its_members_one_after_the_other(tmp_path: Path) -> None:
    a, b = packed(tmp_path, "a", 0, 6), packed(tmp_path, "b", 4, 10)  # pictures 4 and 5 are in both
    pq.write_table(pa.table({"pool_id": [1]}), b / "excluded.parquet")
    joined = open_pool(join_pools([a, b], tmp_path / "c"))
    assert (joined.x[:] == np.concatenate([open_pool(a).x[:], open_pool(b).x[:]])).all()
    assert joined.excluded.tolist() == [6, 7]  # both as repeated, the second also by b's own list
    assert joined.source(np.array([9])) == open_pool(b).source(np.array([3]))
    assert not list((tmp_path / "c").glob("**/*.npy"))
    again = open_pool(join_pools([tmp_path / "c", packed(tmp_path, "d", 20, 23)], tmp_path / "e"))
    assert len(again) == 15
    assert again.excluded.tolist() == [6, 7]
    verify_pool(tmp_path / "e")


def test_joined_pools_may_move_together_but_not_change(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    join_pools([packed(tmp_path / "x", "a", 0, 3), packed(tmp_path / "x", "b", 3, 6)], tmp_path / "x" / "c")
    (tmp_path / "x").rename(tmp_path / "y")
    assert len(open_pool(tmp_path / "y" / "c")) == 6
    shutil.rmtree(tmp_path / "y" / "b")
    packed(tmp_path / "y", "b", 7, 9)
    with pytest.raises(UserError, match="has changed since"):
        open_pool(tmp_path / "y" / "c")


def test_a_joined_pool_is_found_through_links_of_folders(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")
    pools = [packed(tmp_path, "a", 0, 3), packed(tmp_path, "b", 3, 6)]
    assert len(open_pool(join_pools(pools, tmp_path / "link" / "c"))) == 6
    assert len(open_pool(tmp_path / "deep" / "er" / "c")) == 6


def test_pools_of_different_rows_are_not_joined(tmp_path: Path) -> None:
    a = packed(tmp_path, "a", 0, 3)
    build_pool(tmp_path / "a.npy", tmp_path / "large", size=16)
    with pytest.raises(UserError, match=r"8×8×3.*16×16×3.*cannot be joined"):
        join_pools([a, tmp_path / "large"], tmp_path / "c")


def test_excluded_ids_come_from_the_pool_and_from_lists(tmp_path: Path) -> None:
    path = packed(tmp_path, "a", 0, 10)
    pq.write_table(pa.table({"pool_id": [7, 2], "reason": ["near", "near"]}), path / "excluded.parquet")
    (tmp_path / "more.csv").write_text("pool_id,why\n2,x\n9,y\n")
    assert open_pool(path).excluded.tolist() == [2, 7]
    assert open_pool(path, [tmp_path / "more.csv"]).excluded.tolist() == [2, 7, 9]
    assert len(read_set(path, 8).x) == 8
    assert [u.rpartition("=")[2] for u in read_set(f"{path}?rows=more.csv", 8).uris] == ["2", "9"]
    (tmp_path / "wrong.csv").write_text("pool_id\n10\n")
    with pytest.raises(UserError, match="pool id 10 is outside a pool of 10 images"):
        open_pool(path, [tmp_path / "wrong.csv"])
    (tmp_path / "other.csv").write_text("row\n1\n")
    with pytest.raises(UserError, match="a column `pool_id`"):
        open_pool(path, [tmp_path / "other.csv"])


def test_a_published_list_is_refused_where_the_pool_counts_otherwise(tmp_path: Path) -> None:
    """Its numbers are those of tiny_images.bin: one duplicate left out, and each behind it names another image."""
    images = [picture(i % 5, 32, 32) for i in range(8)]
    (tmp_path / "tiny_images.bin").write_bytes(b"".join(image.tobytes(order="F") for image in images))
    (tmp_path / "80mn_cifar_idxs.txt").write_text("1\n4\n")
    build_pool(tmp_path / "tiny_images.bin", tmp_path / "fewer")
    build_pool(tmp_path / "tiny_images.bin", tmp_path / "all", keep_duplicates=True)
    assert open_pool(tmp_path / "all", [tmp_path / "80mn_cifar_idxs.txt"]).excluded.tolist() == [0, 3]
    with pytest.raises(UserError, match=r"fewer left 3 of them out.*--keep-duplicates"):
        open_pool(tmp_path / "fewer", [tmp_path / "80mn_cifar_idxs.txt"])
    join_pools([tmp_path / "all", tmp_path / "fewer"], tmp_path / "both")
    with pytest.raises(UserError, match="both joins several pools"):
        open_pool(tmp_path / "both", [tmp_path / "80mn_cifar_idxs.txt"])
    with pytest.raises(UserError, match="fewer left 3"):
        read_set(f"{tmp_path}/fewer?rows=80mn_cifar_idxs.txt", 32)


def test_the_identity_is_that_of_the_content(tmp_path: Path) -> None:
    a, b = packed(tmp_path, "a", 0, 6), packed(tmp_path, "b", 0, 7)
    (tmp_path / "else").mkdir()
    same = packed(tmp_path / "else", "a", 0, 6)
    assert open_pool(a).identity == open_pool(same).identity != open_pool(b).identity


def test_a_damaged_pool_is_named_with_the_file_that_is_wrong(tmp_path: Path) -> None:
    path = packed(tmp_path, "a", 0, 10)
    shard, manifest = path / "shards" / "00001.npy", path / "manifest.json"
    whole, text = shard.read_bytes(), manifest.read_text()
    verify_pool(path)
    shard.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(UserError, match=r"shards/00001\.npy differs"):
        verify_pool(path)
    with pytest.raises(UserError, match=r"shards/00001\.npy: this file has changed"):
        open_pool(path)
    shard.write_bytes(whole[:-100])
    with pytest.raises(UserError, match=r"shards/00001\.npy: this file has changed"):
        open_pool(path)
    shard.unlink()
    with pytest.raises(UserError, match="missing"):
        open_pool(path)
    manifest.write_text(text[:50])
    with pytest.raises(UserError, match="damaged"):
        open_pool(path)
    manifest.write_text(json.dumps({key: value for key, value in json.loads(text).items() if key != "shards"}))
    with pytest.raises(UserError, match="damaged"):
        open_pool(path)
    manifest.write_text(json.dumps({**json.loads(text), "format": 99}))
    with pytest.raises(UserError, match="pool format 99"):
        open_pool(path)
    with pytest.raises(UserError, match="no packed pool"):
        open_pool(tmp_path)


def test_original_sizes_are_counted(tmp_path: Path) -> None:
    for i, side in enumerate((8, 8, 9, 10, 11, 12, 13)):
        np.save(tmp_path / f"{i}.npy", picture(i, side, side)[None])
    build_pool([tmp_path / f"{i}.npy" for i in range(7)], tmp_path / "pool", size=8)
    sizes = original_sizes(tmp_path / "pool")
    assert sizes[0] == ("8×8", 2)
    assert sizes[-1] == ("1 other sizes", 1)
    assert sum(n for _, n in sizes) == 7
