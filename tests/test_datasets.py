"""The paper's experiments, on files of the true formats made small."""

import logging
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

import tiny_encoder
from odst.data.encoding import Encoding
from odst.data.formats.originals import CIFAR10
from odst.data.images import Pool, content_hash, is_counted
from odst.data.loading import load_data
from odst.data.named.download import load_set, named_source
from odst.data.named.tasks import TASKS, load_pool, load_task
from odst.data.sets import DataSection, class_numbers
from odst.data.sources import open_source
from odst.data.vectors import Embedder
from odst.errors import UserError
from pictures import folder_of
from test_formats import cifar10_python, dump, planes

CIFAR100 = tuple(sorted({"bus", "pickup_truck", *(f"thing{k:02d}" for k in range(98))}))


def picture(kind: int, *numbers: int) -> np.ndarray:
    """Images that say where they come from: red is the set, green and blue are the number inside it."""
    x = np.zeros((len(numbers), 32, 32, 3), np.uint8)
    x[..., 0], x[..., 1:] = kind, np.array(numbers)[:, None, None, None]
    return x


def kinds(x: np.ndarray) -> set[int]:
    return set(np.asarray(x)[:, 0, 0, 0].tolist())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small copies of all sets: 20 CIFAR-10, 60 a class of CIFAR-100 for three classes, 40 and 12,000 digits."""
    folder = tmp_path_factory.mktemp("data")
    cifar10_python(folder / "cifar-10-batches-py", picture(10, *range(20)), np.arange(20) % 10)
    fine = np.repeat([CIFAR100.index("bus"), CIFAR100.index("pickup_truck"), *range(2, 6)], 60)
    x = picture(100, *(fine % 256))
    for name in ("train", "test"):
        dump(folder / "cifar-100-python" / name, {"fine_labels": fine.tolist(), "data": planes(x)})
    dump(folder / "cifar-100-python" / "meta", {"fine_label_names": list(CIFAR100)})
    np.save(folder / "cifar10.1_v6_data.npy", picture(11, *range(10)))
    np.save(folder / "cifar10.1_v6_labels.npy", np.arange(10, dtype=np.int32))
    for split, n, kind in (("train", 40, 1), ("test", 30, 2), ("extra", 12_000, 3)):
        digits = picture(kind, *(np.arange(n) % 256)).transpose(1, 2, 3, 0)
        savemat(folder / f"{split}_32x32.mat", {"X": digits, "y": (np.arange(n) % 10 + 1)[:, None].astype(np.uint8)})
    for kind, name in enumerate(("lsun-cr-32", "flowers102-test-32", "food101-test-32", "fgvc-aircraft-test-32"), 50):
        np.save(folder / f"{name}.npy", picture(kind, 1, 2, 3))
    tiny = picture(80, *range(9))
    (folder / "tiny_images.bin").write_bytes(b"".join(image.tobytes(order="F") for image in tiny))
    return folder


def test_cifar10_is_validated_on_cifar10_1_and_on_cifar100_without_the_confusable_classes(folder: Path) -> None:
    data = load_task("cifar10", picture(80, 1, 2), folder=folder)
    assert data.classes == CIFAR10
    assert (len(data.labelled), len(data.test or ()), len(data.val_in)) == (20, 20, 10)
    assert kinds(data.labelled.x[:]) == {10}
    assert kinds(data.val_in.x[:]) == {11}
    assert data.val_out is not None
    assert set(data.val_out[:][:, 0, 0, 1].tolist()) == {2, 3, 4, 5}  # neither bus nor pickup_truck
    assert len(data.val_out) == 4 * 60
    assert {name: kinds(x[:]) for name, x in data.out_tests.items()} == {
        "cifar100": {100},
        "svhn": {2},
        "lsun-cr": {50},
        "flowers102": {51},
        "food101": {52},
    }


def test_cifar100_sets_fifty_of_each_class_aside(folder: Path) -> None:
    data = load_task("cifar100", picture(80, 1, 2), folder=folder, out_tests=["cifar10:test"])
    counts = np.bincount(data.val_in.y, minlength=100)
    assert set(counts.tolist()) == {0, 50}
    assert len(data.labelled) + len(data.val_in) == 360
    np.testing.assert_array_equal(np.bincount(data.labelled.y, minlength=100), counts // 5)
    assert data.val_out is not None
    numbers = data.val_out[:][:, 0, 0, 1]
    assert set((numbers % 10).tolist()) == set(range(10)) - {CIFAR10.index("automobile"), CIFAR10.index("truck")}
    assert list(data.out_tests) == ["cifar10"]
    again = load_task("cifar100", folder=folder, out_tests=[], seed=0)
    np.testing.assert_array_equal(again.val_in.y, data.val_in.y)


def test_svhn_mixes_its_extra_digits_into_the_pool_but_for_val_in(folder: Path) -> None:
    given = Pool(picture(80, *range(7)), excluded=np.array([2]), identity="known")
    data = load_task("svhn", given, folder=folder)
    pool = data.pool
    assert pool is not None
    assert len(pool) == 7 + 12_000
    assert len(data.val_in) == 10_000
    assert len(pool.excluded) == 10_001
    assert kinds(pool.x[:7]) == {80}
    assert kinds(pool.x[7:]) == {3}
    taken = pool.excluded[1:]
    np.testing.assert_array_equal(pool.x[taken], data.val_in.x[:])
    assert pool.truth is not None
    assert pool.truth[:7].tolist() == [-1] * 7
    np.testing.assert_array_equal(pool.truth[taken], data.val_in.y)
    assert pool.source(np.array([0, 7])) == ["row:0", f"{(folder / 'extra_32x32.mat').as_uri()}#row=0"]
    assert pool.identity not in (None, "known")
    assert data.val_out is not None
    assert len(data.val_out) == 360  # digits are confused with none of CIFAR-100's classes


def test_svhn_keeps_sources_and_content_hashes_of_its_pool_and_looks_them_up_at_once(folder: Path) -> None:
    asked = []

    class Texts:
        def __getitem__(self, rows: np.ndarray) -> list[str]:
            asked.append(rows.tolist())
            return [f"text {j}" for j in rows]

    given = Pool(picture(80, *range(7)), sources=Texts(), hashes=Texts(), identity="known")
    pool = load_task("svhn", given, folder=folder).pool
    assert pool is not None
    rows = np.array([9, 3, 8, 0, 6])
    extra = f"{(folder / 'extra_32x32.mat').as_uri()}#row="
    assert pool.source(rows) == [f"{extra}2", "text 3", f"{extra}1", "text 0", "text 6"]
    own = [content_hash(pool.x[j : j + 1][0]) for j in (9, 8)]
    assert pool.content_hash(rows) == [own[0], "text 3", own[1], "text 0", "text 6"]
    assert asked == [[3, 0, 6]] * 2


def test_a_pool_still_to_be_packed_is_counted_with_the_extra_digits_also_where_it_will_be_embedded(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODST_DATA", str(folder))
    folder_of(tmp_path / "pool", 5)
    encoding = Encoding(Embedder(tiny_encoder.save(tmp_path / "encoder.pth")))
    section = DataSection(task="svhn", pool=str(tmp_path / "pool"), out_test={"rooms": "lsun-cr"})
    data = load_data(section, seed=0, workspace=None, encoding=encoding)
    assert data.pool is not None and data.pool.pictures is not None
    assert data.pool.x.shape == (5 + 12_000, 216) and is_counted(data.pool.x)
    assert data.pool.pictures.shape == (5 + 12_000, 32, 32, 3)
    assert data.labelled.x.shape == (40, 216) and data.out_tests["rooms"].shape == (3, 216)


def test_svhn_without_a_pool_is_the_closed_world(folder: Path) -> None:
    pool = load_task("svhn", folder=folder).pool
    assert pool is not None
    assert kinds(pool.x[:]) == {3}
    assert (pool.truth is not None) and pool.truth.min() >= 0
    other = load_task("svhn", folder=folder, seed=1).pool
    assert other is not None
    assert pool.excluded.tolist() != other.excluded.tolist()


def test_the_labels_of_svhn_are_the_digits(folder: Path) -> None:
    data = load_task("svhn", folder=folder)
    assert data.classes == tuple("0123456789")
    assert data.labelled.y[:10].tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0]


def test_tiny_images_honour_the_exclusion_lists_beside_them(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="odst"):
        pool = load_pool("tiny-images", folder)
    assert "odst dedup" in caplog.text
    assert pool.excluded.tolist() == []
    one, zero = folder / "80mn_cifar_idxs.txt", folder / "80mn_cifar10_test_idxs.txt"
    one.write_text("1\n9\n")
    zero.write_text("1\n")
    try:
        pool = load_task("cifar10", "tiny-images", folder=folder, out_tests=[]).pool or pool
    finally:
        one.unlink()
        zero.unlink()
    assert pool.excluded.tolist() == [0, 1, 8]
    np.testing.assert_array_equal(pool.x[np.array([5])], picture(80, 5))


def test_the_truth_of_a_pool_is_matched_with_the_classes_of_the_task(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODST_DATA", str(folder))
    np.savez(tmp_path / "x.npz", x=picture(80, 1, 2, 3), labels=np.array(["truck", "cactus", "airplane"]))
    own = DataSection(task="cifar10", pool=str(tmp_path / "x.npz"), pool_truth=True, out_test={"lsun-cr": "lsun-cr"})
    data = load_data(own, seed=0, workspace=tmp_path / "run")
    assert data.pool is not None
    assert data.pool.truth is not None
    assert data.pool.truth.tolist() == [9, -1, 0]


def test_the_truth_of_a_pool_by_name_is_taken_or_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODST_DATA", str(folder))
    own = DataSection(task="cifar10", pool="cifar10:test", pool_truth=True, out_test={"lsun-cr": "lsun-cr"})
    pool = load_data(own, seed=0, workspace=None).pool
    assert pool is not None
    np.testing.assert_array_equal(pool.truth, load_set("cifar10:test", folder).y)
    with pytest.raises(UserError, match=r"data\.pool_truth: lsun-cr has no labels"):
        load_data(own.model_copy(update={"pool": "lsun-cr"}), seed=0, workspace=None)


def test_the_out_tests_of_a_task_may_be_sources_of_ones_own(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODST_DATA", str(folder))
    np.save(tmp_path / "mine.npy", picture(90, 1, 2))
    outs = {"noise": str(tmp_path / "mine.npy"), "rooms": "lsun-cr", "cifar100:test": "cifar100:test"}
    data = load_data(DataSection(task="cifar10", out_test=outs), seed=0, workspace=None)
    assert {name: kinds(x[:]) for name, x in data.out_tests.items()} == {
        "noise": {90},
        "rooms": {50},
        "cifar100": {100},
    }
    with pytest.raises(UserError, match="gone: there is no such file or folder"):
        load_data(DataSection(task="cifar10", out_test={"lsun-cr": "gone"}), seed=0, workspace=None)


def test_all_missing_sets_are_named_at_once(tmp_path: Path, folder: Path) -> None:
    missing = "cifar10 cifar10.1 cifar100 svhn lsun-cr flowers102 food101"
    with pytest.raises(UserError, match=f"odst data get {missing}`"):
        load_task("cifar10", folder=tmp_path)
    with pytest.raises(UserError, match="odst data get 300k-random`"):
        load_task("cifar10", "300k-random", folder=folder)
    with pytest.raises(UserError, match="cifar10, cifar100, svhn"):
        load_task("imagenet", folder=folder)
    assert list(tmp_path.iterdir()) == []


def test_a_set_with_parts_asks_which_one(folder: Path) -> None:
    with pytest.raises(UserError, match="cifar10:train or cifar10:test"):
        load_set("cifar10", folder)
    with pytest.raises(UserError, match="has no parts"):
        load_set("lsun-cr:test", folder)


def test_every_set_a_task_names_is_in_the_catalogue(folder: Path) -> None:
    for task in TASKS.values():
        for spec in (task.labelled, task.test, task.val_in, task.val_out, task.extra, *task.out_tests):
            if spec:
                assert load_set(spec, folder).x.shape[1:] == (32, 32, 3)


def test_classes_are_matched_by_name_never_by_position() -> None:
    assert class_numbers("test", ("dog", "cat", "dog"), ("bird", "cat", "dog")).tolist() == [2, 1, 2]
    assert class_numbers("pool", ("dog", None, "cat"), ("bird", "cat"), foreign=-1).tolist() == [-1, -1, 1]
    with pytest.raises(UserError, match="test: its class 'dog' is none of bird, cat"):
        class_numbers("test", ("dog", "cat"), ("bird", "cat"))


def test_a_name_stands_where_a_path_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODST_DATA", str(folder))
    for spec in ("cifar10.1", folder / "cifar10.1_v6_data.npy"):
        source = open_source(spec)
        assert [item.label for part in source.parts(0, 4) for item in part] == list(CIFAR10)
    assert open_source("cifar100:test").count() == 360
    with pytest.raises(UserError, match="odst data get 300k-random"):
        open_source("300k-random")
    assert named_source("photos/mine") is None
