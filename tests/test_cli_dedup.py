import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from commands import fails
from interruption import Interrupted, StopAfter
from odst.cli import main
from odst.data.joining import join_pools
from odst.data.packing import build_pool
from odst.data.pool import open_pool
from odst.errors import UserError
from odst.progress import listening


def pictures(n: int, seed: int, size: int = 32) -> np.ndarray:
    rng = np.random.default_rng(seed)
    coarse = np.kron(rng.integers(0, 256, (n, 4, 4, 3)), np.ones((1, size // 4, size // 4, 1)))
    return np.clip(coarse + rng.normal(0, 6, coarse.shape), 0, 255).astype(np.uint8)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ODST_DATA", str(tmp_path / "cache"))
    test = pictures(12, 0)
    np.save("test.npy", test)
    np.save("pool.npy", np.concatenate([pictures(20, 1), test[3:6]]))
    np.save("features.npy", np.zeros((4, 8), np.float32))
    Path("empty").mkdir()
    return tmp_path


def dedup(*args: str) -> int:
    """The command in this process; its exit code."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["odst", "dedup", *args])
        with pytest.raises(SystemExit) as stop:
            main()
    return int(stop.value.code or 0)


def gone(out: str) -> list[tuple[int, str, str]]:
    rows = pq.read_table(f"{out}/excluded.parquet").to_pylist()
    return [(row["pool_id"], row["reference_set"], row["reason"]) for row in rows]


@pytest.mark.slow
def test_the_command_lists_leaks_between_any_two_sets(folder: Path):
    odst = str(Path(sys.executable).parent / "odst")
    command = [odst, "dedup", "pool.npy", "--against", "test.npy", "--against", "test.npy"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, check=True)
    assert "3 of 23 images leave the pool." in done.stdout
    assert "WITHOUT LPIPS" in done.stdout
    assert "odst data get lpips-alexnet" in done.stderr
    assert gone("pool-dedup") == [(j, name, "l2") for j in (20, 21, 22) for name in ("test", "test-2")]
    assert json.loads((folder / "pool-dedup" / "dedup.json").read_text())["lpips_used"] is False


def test_without_lpips_only_l2_decides_and_ssim_alone_must_be_asked_for(folder: Path, capfd):
    darker = np.clip(np.load("test.npy")[:2].astype(int) - 30, 0, 255).astype(np.uint8)
    np.save("pool.npy", np.concatenate([np.load("pool.npy"), darker]))
    for args, alone, reasons in [
        ([], "L2", ["l2"] * 3),
        (["--lpips", "none"], "L2", ["l2"] * 3),
        (["--ssim-alone"], "L2 and SSIM", ["l2"] * 3 + ["perceptual"] * 2),
    ]:
        assert dedup("pool.npy", "--against", "test.npy", *args) == 0
        said = capfd.readouterr()
        assert f"WITHOUT LPIPS: {alone} alone decided" in said.out
        assert f"{alone.split()[-1]} alone" in said.err
        assert [reason for _, _, reason in gone("pool-dedup")] == reasons
    assert "Give one of them" in fails("dedup", "pool.npy", "--against", "test.npy", "--ssim-alone", "--lpips", "w.npz")


def test_a_packed_pool_keeps_its_own_list_and_loses_those_images(folder: Path):
    build_pool("pool.npy", Path("packed"), size=32, workers=1)
    np.save("train.npy", np.load("pool.npy")[2:4])
    Path("list.txt").write_text("1\n20\n")
    assert (
        dedup(
            "packed", "--against", "test.npy", "--exact-against", "train.npy", "--list", "list.txt", "--list-base", "1"
        )
        == 0
    )
    expected = [(0, "list", "listed"), (2, "train", "exact"), (3, "train", "exact"), (19, "list", "listed")]
    assert gone("packed") == expected + [(j, "test", "l2") for j in (20, 21, 22)]
    assert open_pool("packed").excluded.tolist() == [0, 2, 3, 19, 20, 21, 22]
    before = (folder / "packed" / "dedup.json").read_bytes()
    assert (
        dedup(
            "packed", "--against", "test.npy", "--exact-against", "train.npy", "--list", "list.txt", "--list-base", "1"
        )
        == 0
    )
    assert (folder / "packed" / "dedup.json").read_bytes() == before


def test_references_of_another_size_come_to_the_pools_size_by_its_own_rule(folder: Path):
    large = np.kron(np.load("test.npy"), np.ones((1, 2, 2, 1), np.uint8))
    Path("photos").mkdir()
    for j, image in enumerate(large):
        Image.fromarray(image).save(f"photos/{j}.png")
    np.save("large.npy", large)
    assert dedup("large.npy", "--against", "photos", "--size", "32", "--out", "a") == 0
    assert gone("a") == [(j, "photos", "l2") for j in range(12)]
    assert json.loads((folder / "a" / "dedup.json").read_text())["fit"] == "crop"


def test_bad_input_is_one_line_with_the_way_out_and_leaves_nothing(folder: Path, capfd):
    Path("list.txt").write_text("1\n900\n")
    Path("80mn_cifar_idxs.txt").write_text("1\n")
    build_pool(["pool.npy", "pool.npy"], folder / "fewer")
    for args, words in [
        (["features.npy", "--against", "test.npy"], "feature vectors"),
        (["pool.npy", "--against", "features.npy"], "feature vectors"),
        (["pool.npy", "--against", "empty"], "empty"),
        (["pool.npy", "--against", "nowhere"], "no such file or folder"),
        (["pool.npy", "--against", "test.npy", "--lpips", "nowhere.npz"], "no such file"),
        (["pool.npy", "--against", "test.npy", "--list", "list.txt"], "count from 0 or from 1"),
        (["pool.npy", "--against", "test.npy", "--list", "list.txt", "--list-base", "0"], "outside a pool of 23"),
        (["pool.npy", "--against", "test.npy", "--l2", "9"], "l2 is 9"),
        (["fewer", "--against", "test.npy", "--list", "80mn_cifar_idxs.txt"], "fewer left 23 of them out"),
    ]:
        assert dedup(*args) == 2, args
        last = capfd.readouterr().err.strip().splitlines()[-1]
        assert last.startswith("odst: "), args
        assert words in last, (args, last)
        assert not Path("pool-dedup").exists()


def test_a_pool_that_changed_is_refused_with_the_way_out(folder: Path, capfd):
    assert dedup("pool.npy", "--against", "test.npy") == 0
    np.save("pool.npy", np.load("pool.npy")[::-1])
    assert dedup("pool.npy", "--against", "test.npy") == 2
    assert "has changed since this pass" in capfd.readouterr().err
    assert dedup("pool.npy", "--against", "test.npy", "--fresh") == 0
    assert gone("pool-dedup") == [(j, "test", "l2") for j in range(3)]


def test_a_pool_with_a_half_finished_pass_is_opened_for_nothing_but_that_pass(folder: Path, capfd):
    build_pool("pool.npy", Path("packed"), size=32, workers=1)
    join_pools([Path("packed")], Path("joined"))
    with listening(StopAfter(13)), pytest.raises(Interrupted):  # the 12 references are read, the pool is looked at
        dedup("packed", "--against", "test.npy")
    unfinished = "packed: a pass of `odst dedup` is not finished here.*packed/.dedup"
    for path in ("packed", "joined"):
        with pytest.raises(UserError, match=unfinished):
            open_pool(path)
    assert "is not finished here" in fails("pool", "join", "packed", "--out", "again")
    assert not Path("again").exists()
    assert dedup("packed", "--against", "test.npy") == 0
    assert open_pool("packed").excluded.tolist() == open_pool("joined").excluded.tolist() == [20, 21, 22]
    with listening(StopAfter(13)), pytest.raises(Interrupted):
        dedup("packed", "--against", "test.npy", "--l2", "2")
    with pytest.raises(UserError, match=unfinished):  # the list that is there is the earlier pass's
        open_pool("packed")


def test_a_list_made_for_another_state_of_the_pool_is_refused(folder: Path, capfd):
    build_pool("pool.npy", Path("packed"), size=32, workers=1)
    np.save("turned.npy", np.load("pool.npy")[::-1])
    build_pool("turned.npy", Path("turned"), size=32, workers=1)
    assert dedup("packed", "--against", "test.npy", "--out", "elsewhere") == 0
    assert open_pool("packed", ["elsewhere/excluded.parquet"]).excluded.tolist() == [20, 21, 22]
    words = r"elsewhere/excluded.parquet: `odst dedup` made this list for another pool"
    with pytest.raises(UserError, match=words):
        open_pool("turned", ["elsewhere/excluded.parquet"])
    shutil.copy("elsewhere/excluded.parquet", "turned")
    shutil.copy("elsewhere/dedup.json", "turned")
    with pytest.raises(UserError, match=r"turned/excluded.parquet: .*--fresh if it has changed"):
        open_pool("turned")
    assert dedup("turned", "--against", "test.npy", "--fresh") == 0
    assert open_pool("turned").excluded.tolist() == [0, 1, 2]
    Path("elsewhere/.dedup").mkdir()
    with pytest.raises(UserError, match="elsewhere: a pass of `odst dedup` is not finished here"):
        open_pool("packed", ["elsewhere/excluded.parquet"])


def test_sets_by_name_come_to_the_pools_size_too(folder: Path):
    Path("cache").mkdir()
    shutil.copy("test.npy", "cache/300K_random_images.npy")
    build_pool("test.npy", Path("half"), size=16, workers=1)
    assert dedup("half", "--against", "300k-random", "--exact-against", "300k-random") == 0
    expected = [
        (j, name, reason) for j in range(12) for name, reason in (("300k-random", "l2"), ("300k-random-2", "exact"))
    ]
    assert gone("half") == expected


def test_the_references_of_a_joined_pool_follow_the_rule_its_pools_were_packed_by(folder: Path, capfd):
    Path("wide").mkdir()
    for j, image in enumerate(np.load("test.npy")):
        Image.fromarray(np.concatenate([image, image[::-1]], 1)).save(f"wide/{j:02d}.png")
    build_pool("wide", Path("a"), size=32, fit="pad", workers=1)
    build_pool("pool.npy", Path("b"), size=32, fit="pad", workers=1)
    build_pool("pool.npy", Path("c"), size=32, fit="crop", workers=1)
    join_pools([Path("a"), Path("b")], Path("alike"))
    join_pools([Path("a"), Path("c")], Path("mixed"))
    assert dedup("alike", "--against", "wide") == 0
    assert gone("alike") == [(j, "wide", "l2") for j in range(12)]
    assert "--fit" not in capfd.readouterr().err
    assert dedup("mixed", "--against", "wide", "--fit", "pad") == 0
    assert "packed with --fit crop and pad" in capfd.readouterr().err
    assert len(gone("mixed")) == 12


def test_a_list_of_another_pool_is_not_taken_for_one_of_this_pool(folder: Path, capfd):
    np.save("turned.npy", np.load("pool.npy")[::-1])
    assert dedup("pool.npy", "--against", "test.npy") == 0
    assert dedup("pool.npy", "--against", "test.npy", "--list", "pool-dedup/excluded.parquet", "--out", "more") == 0
    assert dedup("turned.npy", "--against", "test.npy", "--list", "pool-dedup/excluded.parquet") == 2
    assert "made this list for another pool" in capfd.readouterr().err


def test_a_pass_that_forgets_a_set_of_the_one_before_says_so(folder: Path, capfd):
    np.save("val.npy", pictures(5, 9))
    assert dedup("pool.npy", "--against", "test.npy") == 0
    assert dedup("pool.npy", "--against", "val.npy", "--against", "test.npy") == 0
    assert "guarded against" not in capfd.readouterr().err
    assert dedup("pool.npy", "--against", "val.npy") == 0
    assert "an earlier pass guarded against test." in capfd.readouterr().err


def test_the_last_line_says_what_makes_a_run_leave_them_out(folder: Path, capfd):
    build_pool("pool.npy", Path("packed"), size=32, workers=1)
    for args, words in [
        (["packed"], "`odst run` leaves them out of this pool."),
        (["packed", "--out", "found"], 'data.excluded = ["found/excluded.parquet"]'),
        (["pool.npy"], "`odst pool build pool.npy --out POOL`"),
    ]:
        assert dedup(*args, "--against", "test.npy") == 0
        assert words in capfd.readouterr().out.splitlines()[-1]


def test_thresholds_meant_for_32_pixels_are_called_out_at_other_sizes(folder: Path, capfd):
    build_pool("pool.npy", Path("half"), size=16, workers=1)
    words = "These are 16×16, where the same change is 0.5 times as far: --radius 3.92 --l2 1.5 would judge alike."
    assert dedup("half", "--against", "test.npy") == 0
    assert words in capfd.readouterr().err
    assert dedup("half", "--against", "test.npy", "--radius", "3.92", "--l2", "1.5") == 0
    assert dedup("pool.npy", "--against", "test.npy") == 0
    assert "would judge alike" not in capfd.readouterr().err
