import logging
from pathlib import Path

import numpy as np
import pytest

from odst.data.loading import load_data
from odst.data.packing import build_pool
from odst.data.sets import DataSection
from odst.data.sources import open_source
from odst.errors import UserError
from odst.run.config import read_config
from pictures import encoded, folder_of, picture


def project(tmp: Path) -> Path:
    """Two classes of 10, a pool of 30, and sets of other pictures, each in a folder."""
    folder_of(tmp / "labelled", 20, ("cat", "dog"))
    folder_of(tmp / "pool", 30, start=100)
    folder_of(tmp / "val_in", 6, ("cat", "dog"), start=200)
    folder_of(tmp / "val_out", 5, start=300)
    folder_of(tmp / "test", 6, ("dog", "cat"), start=400)
    folder_of(tmp / "out" / "noise", 4, start=500)
    return tmp


def section(tmp: Path, **changes: object) -> DataSection:
    values = {"labelled": "labelled", "pool": "pool", "size": 16} | changes
    return DataSection.model_validate(values).located(tmp)


def test_own_folders_become_the_sets_of_a_run(tmp_path: Path) -> None:
    project(tmp_path)
    own = section(tmp_path, val_in="val_in", val_out="val_out", test="test", out_test={"noise": "out/noise"})
    data = load_data(own, seed=0, workspace=tmp_path / "run" / "pool")
    assert data.classes == ("cat", "dog")
    assert data.test is not None
    assert data.val_out is not None
    assert (len(data.labelled), len(data.val_in), len(data.test), len(data.val_out)) == (20, 6, 6, 5)
    assert data.labelled.x.shape[1:] == (16, 16, 3)
    assert data.pool is not None
    assert len(data.pool) == 30
    assert data.pool.source(np.array([7]))[0] == (tmp_path / "pool" / "00007.png").as_uri()
    assert {name: len(x) for name, x in data.out_tests.items()} == {"noise": 4}
    assert (tmp_path / "run" / "pool" / "manifest.json").exists()


def test_classes_are_matched_by_name_never_by_position(tmp_path: Path) -> None:
    """The test set has only the second class, so that position and name differ."""
    project(tmp_path)
    folder_of(tmp_path / "dogs", 3, ("dog",), start=600)
    data = load_data(section(tmp_path, test="dogs"), seed=0, workspace=tmp_path / "run")
    assert data.test is not None
    assert data.test.y.tolist() == [1, 1, 1]
    folder_of(tmp_path / "foxes", 3, ("dog", "fox"), start=700)
    with pytest.raises(UserError, match="test: its class 'fox' is none of cat, dog"):
        load_data(section(tmp_path, test="foxes"), seed=0, workspace=tmp_path / "run")


def test_a_fraction_takes_val_in_class_by_class_and_leaves_the_rest(tmp_path: Path) -> None:
    project(tmp_path)
    data = load_data(section(tmp_path, val_in=0.3), seed=0, workspace=tmp_path / "run")
    assert np.bincount(data.val_in.y).tolist() == [3, 3]
    assert np.bincount(data.labelled.y).tolist() == [7, 7]
    rows = {row.tobytes() for row in data.labelled.x[:]} | {row.tobytes() for row in data.val_in.x[:]}
    assert len(rows) == 20
    again = load_data(section(tmp_path, val_in=0.3), seed=0, workspace=tmp_path / "run")
    assert (again.val_in.x[:] == data.val_in.x[:]).all()


def test_sets_that_share_images_are_reported_before_training(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    project(tmp_path)
    (tmp_path / "test" / "cat" / "leak.png").write_bytes(encoded(0))  # a labelled image
    (tmp_path / "val_in" / "dog" / "leak.png").write_bytes(encoded(400))  # a test image
    (tmp_path / "val_out" / "leak.png").write_bytes(encoded(1))  # a labelled image
    own = section(tmp_path, val_in="val_in", val_out="val_out", test="test")
    with caplog.at_level(logging.WARNING, logger="odst"):
        load_data(own, seed=0, workspace=tmp_path / "run")
    said = [record.getMessage() for record in caplog.records]
    for pair in ("both labelled and test", "both val_in and test", "both labelled and val_out"):
        assert any(pair in line for line in said), pair
    assert len(said) == 3


def test_a_picture_twice_in_labelled_is_reported_if_val_in_takes_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    project(tmp_path)
    for i in range(10):
        (tmp_path / "labelled" / "cat" / f"copy{i}.png").write_bytes(encoded(2 * i))
    with caplog.at_level(logging.WARNING, logger="odst"):
        load_data(section(tmp_path, val_in=0.5), seed=0, workspace=tmp_path / "run")
    assert any("both labelled and val_in" in record.getMessage() for record in caplog.records)


def test_a_packed_pool_is_used_where_it_lies_without_its_excluded(tmp_path: Path) -> None:
    project(tmp_path)
    build_pool(tmp_path / "pool", tmp_path / "packed", size=16)
    (tmp_path / "picked.csv").write_text("pool_id\n3\n5\n")
    own = section(tmp_path, pool="packed", val_out="packed?rows=picked.csv", excluded=["picked.csv"])
    data = load_data(own, seed=0, workspace=tmp_path / "run")
    assert data.pool is not None
    assert data.pool.excluded.tolist() == [3, 5]
    assert (data.val_out == data.pool.x[np.array([3, 5])]).all()  # type: ignore[index]
    assert not (tmp_path / "run").exists()


def test_several_sources_make_one_set(tmp_path: Path) -> None:
    project(tmp_path)
    np.save(tmp_path / "more.npy", np.stack([picture(i) for i in range(800, 805)]))
    data = load_data(section(tmp_path, pool=["pool", "more.npy"]), seed=0, workspace=tmp_path / "run")
    assert data.pool is not None
    assert len(data.pool) == 35


def test_the_truth_of_a_pool_is_taken_only_when_asked_for(tmp_path: Path) -> None:
    project(tmp_path)
    folder_of(tmp_path / "known", 6, ("cat", "fox", "dog"), start=900)
    without = load_data(section(tmp_path, pool="known"), seed=0, workspace=tmp_path / "run")
    known = load_data(section(tmp_path, pool="known", pool_truth=True), seed=0, workspace=tmp_path / "run")
    assert without.pool is not None and known.pool is not None
    assert without.pool.truth is None
    assert known.pool.truth is not None
    assert known.pool.truth.tolist() == [0, 0, 1, 1, -1, -1]


def test_features_go_the_same_way(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, n in (("x", 20), ("u", 50)):
        np.save(tmp_path / f"{name}.npy", rng.normal(size=(n, 8)).astype(np.float32))
    np.save(tmp_path / "y.npy", np.arange(20) % 2)
    own = section(tmp_path, labelled="x.npy?labels=y.npy", pool="u.npy")
    data = load_data(own, seed=0, workspace=tmp_path / "run")
    assert data.labelled.x.shape[1:] == data.pool.x.shape[1:] == (8,)  # type: ignore[union-attr]


def test_broken_pictures_of_a_set_are_left_out_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    project(tmp_path)
    (tmp_path / "labelled" / "cat" / "broken.png").write_text("text")
    with caplog.at_level(logging.WARNING, logger="odst"):
        data = load_data(section(tmp_path, val_in="val_in"), seed=0, workspace=tmp_path / "run")
    assert len(data.labelled) == 20
    assert "1 images could not be used" in caplog.text


def test_faults_of_a_set_are_one_line_that_names_it(tmp_path: Path) -> None:
    project(tmp_path)
    folder_of(tmp_path / "single", 3, ("cat", "dog"))
    faults = {
        "no such file or folder": {"pool": "gone"},
        "no label for": {"labelled": "pool"},
        "class 'dog' has 1 image, too few": {"labelled": "single"},
        "name a set": {"labelled": None},
    }
    for message, changes in faults.items():
        with pytest.raises(UserError, match=message):
            load_data(section(tmp_path, **changes), seed=0, workspace=tmp_path / "run")


def test_a_path_may_begin_at_home_and_hold_a_question_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder_of(tmp_path / "what?", 4, ("cat", "dog"))
    folder_of(tmp_path / "in", 5, start=100)
    build_pool(tmp_path / "in", tmp_path / "packed", size=16)
    (tmp_path / "out.csv").write_text("pool_id\n3\n")
    own = section(tmp_path, labelled="what?", pool="~/packed", excluded="~/out.csv", val_in=0.5)
    data = load_data(own, seed=0, workspace=tmp_path / "run")
    assert len(data.labelled) == 2
    assert data.pool is not None
    assert data.pool.excluded.tolist() == [3]
    assert not (tmp_path / "run").exists()  # used where it lies


def test_an_empty_text_names_no_set(tmp_path: Path) -> None:
    """It was the folder of the config."""
    project(tmp_path)
    (tmp_path / "odst.toml").write_text(
        '[data]\nlabelled = "labelled"\npool = "pool"\n[training]\nphases = [{ steps = 1, lr = 0.1 }]\n'
    )
    assert read_config(str(tmp_path / "odst.toml"), {}).data.val_out is None
    keys = ("labelled", "pool", "val_in", "val_out", "test", "excluded", "selection", "corruptions", "out_test.noise")
    for key in keys:
        for empty in ("", " ", ["pool", ""]):
            with pytest.raises(UserError, match=rf"data\.{key.partition('.')[0]}.*\.") as refused:
                read_config(str(tmp_path / "odst.toml"), {f"data.{key}": empty})
            assert "\n" not in str(refused.value)
    with pytest.raises(UserError, match="an empty text names no images"):
        open_source("")


def test_lists_of_excluded_ids_are_never_passed_over(tmp_path: Path) -> None:
    """A set by name is no packed pool: its ids are not those of a list."""
    for pool in ("300k-random", None):
        own = DataSection(task="cifar10", pool=pool, excluded="excluded.parquet")
        with pytest.raises(UserError, match=r"data.excluded: .*odst pool build"):
            load_data(own, seed=0, workspace=tmp_path)
