"""The pool's logits: ranges of fixed rows in files, read as one array."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch

from interruption import Interrupted, StopAfter
from odst.data.views import ColumnMajor, opener
from odst.engine.interface import Share, ShareDone, running_on
from odst.engine.local import Local
from odst.errors import UserError
from odst.method.labelling import infer
from odst.method.stored import RANGE, label, read_logits
from odst.progress import listening
from odst.vision.networks import make_network

M, D, K = 2 * RANGE + 700, 6, 3


def network(seed=0):
    torch.manual_seed(seed)
    return make_network("mlp", K, shape=(D,))


@pytest.fixture(scope="module")
def pool() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(M, D)).astype(np.float32)


def files(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def test_logits_in_files_are_those_in_memory(tmp_path: Path, pool):
    stored = label(network(), pool, tmp_path / "logits")
    np.testing.assert_allclose(stored[:], infer(network(), pool), rtol=1e-5, atol=1e-6)
    assert sorted(files(tmp_path / "logits")) == ["00000.npy", "00001.npy", "00002.npy", "manifest.json"]
    assert np.array_equal(read_logits(tmp_path / "logits")[np.array([3, M - 1])], stored[[3, M - 1]])


def test_the_bits_of_a_row_do_not_depend_on_where_the_pool_ends(tmp_path: Path, pool):
    whole, cut = label(network(), pool, tmp_path / "whole"), label(network(), pool[: M - 333], tmp_path / "cut")
    assert np.array_equal(whole[: M - 333], cut[:])


@pytest.mark.parametrize("ranges", [1, 2])
def test_a_scan_broken_off_goes_on_to_the_same_files(tmp_path: Path, pool, ranges):
    label(network(), pool, tmp_path / "whole")
    with pytest.raises(Interrupted), listening(StopAfter(ranges * RANGE)):
        label(network(), pool, tmp_path / "cut", name="label pool")
    assert len(list((tmp_path / "cut").glob("*.npy"))) == ranges
    label(network(), pool, tmp_path / "cut", name="label pool")
    assert files(tmp_path / "cut") == files(tmp_path / "whole")


def test_several_processes_write_the_files_of_one(tmp_path: Path, pool):
    label(network(), pool, tmp_path / "one")
    with running_on(Local(2)):
        label(network(), pool, tmp_path / "two")
    assert files(tmp_path / "two") == files(tmp_path / "one")


def test_shares_in_any_order_and_a_closing_call_write_the_files_of_one(tmp_path: Path, pool):
    label(network(), pool, tmp_path / "one")
    for i in (2, 0, 2):
        with pytest.raises(ShareDone), running_on(None, Share(i, 3)):
            label(network(), pool, tmp_path / "shared", name="label pool")
    assert read_logits(tmp_path / "shared") is None
    with (
        pytest.raises(UserError, match=r"--shard 1/4: the first call here was one of 3"),
        running_on(None, Share(1, 4)),
    ):
        label(network(), pool, tmp_path / "shared")
    label(network(), pool, tmp_path / "shared", name="label pool")
    assert files(tmp_path / "shared") == files(tmp_path / "one")


def test_a_finished_scan_is_not_made_again(tmp_path: Path, pool):
    label(network(), pool, tmp_path / "logits", name="label pool")
    with listening(StopAfter(1)):
        label(network(), pool, tmp_path / "logits", name="label pool")


def test_logits_of_another_model_or_pool_are_refused(tmp_path: Path, pool):
    out = tmp_path / "logits"
    label(network(), pool, out, identity="a")
    with pytest.raises(UserError, match="logits: these logits belong to another model or pool"):
        label(network(1), pool, out, identity="a")
    with pytest.raises(UserError, match="another model or pool"):
        label(network(), pool, out, identity="b")
    with pytest.raises(Interrupted), listening(StopAfter(RANGE)):
        label(network(), pool, tmp_path / "begun", name="label pool")
    with pytest.raises(UserError, match=r"made from another model\. Delete the folder"):
        label(network(1), pool, tmp_path / "begun")


@pytest.mark.parametrize("harm", ["cut", "note", "head", "middle"])
def test_damaged_logits_are_named(tmp_path: Path, pool, harm):
    out = tmp_path / "logits"
    label(network(), pool, out)
    file = out / "00001.npy"
    if harm == "cut":
        file.write_bytes(file.read_bytes()[:-4])
    elif harm == "note":
        (out / "manifest.json").write_text("{")
    else:
        raw = bytearray(file.read_bytes())
        raw[0 if harm == "head" else len(raw) // 2] ^= 1
        file.write_bytes(bytes(raw))
    with pytest.raises(UserError, match=r"logits.*damaged"):
        label(network(), pool, out)


def test_logits_of_an_older_odst_are_read(tmp_path: Path):
    z = np.arange(6, dtype=np.float32).reshape(3, 2)
    np.save(tmp_path / "pool-logits-0.npy", z)
    (tmp_path / "pool-logits-0.json").write_text(json.dumps({"done": 2, "rows": 3}))
    assert read_logits(tmp_path / "pool-logits-0") is None
    (tmp_path / "pool-logits-0.json").write_text(json.dumps({"done": 3, "rows": 3}))
    assert np.array_equal(read_logits(tmp_path / "pool-logits-0"), z)


def test_mapped_rows_travel_by_the_name_of_their_file(tmp_path: Path):
    raw = np.random.default_rng(0).integers(256, size=(1000, 3072), dtype=np.uint8)
    np.save(tmp_path / "x.npy", raw)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    for x in (mapped, mapped[17:500], ColumnMajor(mapped)):
        sent = pickle.dumps(opener(x))
        assert len(sent) < 1000
        assert np.array_equal(pickle.loads(sent)()[5:9], x[5:9])
