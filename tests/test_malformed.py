"""Sources that nobody could use are refused in one line, whatever is wrong with them. benchmarks.malformed makes them."""

import io
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks.malformed import FAMILIES
from benchmarks.malformed.chance import by_chance, damaged
from benchmarks.malformed.trial import faults
from benchmarks.malformed.whole import cifar_pickle, svhn

from commands import fails, odst
from odst.data.exclusions import read_ids
from odst.data.formats.unpickling import load_arrays
from odst.data.reading import read_set
from odst.errors import UserError


@pytest.mark.parametrize("family", FAMILIES, ids=lambda one: one.__name__)
def test_every_source_that_is_wrong_in_a_known_way_is_refused_or_read(family, tmp_path):
    (place := tmp_path / "sources").mkdir()
    cases = [(what, faults(spec, tmp_path / "pool")) for what, spec in family(place)]
    assert len(cases) > 10
    assert [case for case in cases if case[1]] == []


@pytest.mark.parametrize("seed", [100, pytest.param(101, marks=pytest.mark.slow)])
def test_every_format_damaged_by_chance_is_refused_or_read(seed, tmp_path):
    (place := tmp_path / "sources").mkdir()
    tries = 60 if seed == 100 else 600
    found = [
        (what, wrong) for what, spec in by_chance(place, seed, tries) if (wrong := faults(spec, tmp_path / "pool"))
    ]
    assert found == []


# labels and ids --------------------------------------------------------------------------------------------------------------

X = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), np.uint8)


def refusal(spec: object) -> str:
    with pytest.raises(UserError) as caught:
        read_set(str(spec), 16, labelled=True)
    return str(caught.value)


@pytest.mark.parametrize("bad", [np.nan, np.inf, 0.5])
def test_a_label_that_is_no_whole_number_is_refused_with_its_row(bad, tmp_path):
    y = np.arange(12) % 2.0
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", y)
    assert set(read_set(f"{tmp_path}/x.npy?labels=y.npy", 16, labelled=True).labels or ()) == {"0", "1"}
    y[7] = bad
    np.save(tmp_path / "y.npy", y)
    np.savez(tmp_path / "z.npz", x=X, labels=y)
    for spec in (f"{tmp_path}/x.npy?labels=y.npy", tmp_path / "z.npz"):
        assert f"the label of row 7 is {bad}" in refusal(spec)


@pytest.mark.parametrize("bad", [-3, 99, 11, np.nan, 1.5])
def test_svhns_labels_go_from_1_to_10(bad, tmp_path):
    from scipy.io import savemat

    spec, (file,) = svhn(tmp_path, np.random.default_rng(0))
    assert read_set(spec, 16, labelled=True).labels == [str((i + 1) % 10) for i in range(10)] + ["1", "2"]
    y = np.ones((12, 1))
    y[4] = bad
    savemat(file, {"X": np.zeros((32, 32, 3, 12), np.uint8), "y": y})
    assert "the label of row 4 is" in refusal(spec)


@pytest.mark.parametrize("bad", [-1, 10])
def test_the_labels_of_cifar10_1_are_those_of_cifar10(bad, tmp_path):
    np.save(tmp_path / "cifar10.1_v6_data.npy", np.zeros((12, 32, 32, 3), np.uint8))
    np.save(tmp_path / "cifar10.1_v6_labels.npy", np.array([3] * 11 + [bad]))
    assert f"the label of row 11 is {bad}" in refusal(tmp_path / "cifar10.1_v6_data.npy")


@pytest.mark.parametrize("bad", [-5, float("nan"), 2**70, "three"])
def test_the_labels_of_a_pickle_are_positions(bad, tmp_path):
    spec, (file, _) = cifar_pickle(tmp_path, np.random.default_rng(0))
    assert read_set(spec, 16, labelled=True).labels[3] == "class 3"
    file.write_bytes(pickle.dumps({"data": np.zeros((3, 3072), np.uint8), "labels": [0, bad, 1]}, 2))
    assert str(file) in refusal(spec)


def test_a_row_of_a_table_without_a_label_has_none_and_not_one_called_nan(tmp_path):
    from pictures import encoded

    pictures = [encoded(i) for i in range(3)]
    pq.write_table(pa.table({"image": pictures, "label": [1.0, float("nan"), 2.0]}), tmp_path / "x.parquet")
    assert "no label for" in refusal(tmp_path / "x.parquet")
    assert read_set(tmp_path / "x.parquet", 16).labels is None


@pytest.fixture
def pool(tmp_path):
    np.save(tmp_path / "x.npy", X)
    assert odst("pool", "build", tmp_path / "x.npy", "--out", tmp_path / "pool", "--size", 16).code == 0
    return tmp_path / "pool"


@pytest.mark.parametrize(
    "ids", [[0.5], [float("nan")], [True, False], ["3"], ["x"], [None, 2], [-1], [[1]], [10**19], [99], [1e300], [b"1"]]
)
def test_a_list_of_ids_holds_whole_numbers_of_the_pool_and_nothing_else(ids, pool, tmp_path):
    kind = pa.uint64() if ids == [10**19] else None
    pq.write_table(pa.table({"pool_id": pa.array([3.0, 4.0]), "reason": ["a", "b"]}), tmp_path / "good.parquet")
    assert read_ids(tmp_path / "good.parquet", 12).tolist() == [3, 4]
    pq.write_table(pa.table({"pool_id": pa.array(ids, kind)}), tmp_path / "bad.parquet")
    assert "bad.parquet" in fails(
        "dedup", pool, "--against", tmp_path / "x.npy", "--size", 16, "--list", tmp_path / "bad.parquet"
    )


@pytest.mark.parametrize("text", ["1.0", "1e2", "nan", "True", "1_0", "１", "-1", str(10**23), "9" * 5000, "", "0x1"])
def test_a_text_of_ids_holds_plain_whole_numbers(text, tmp_path):
    (tmp_path / "good.csv").write_text("pool_id,path\n 7 ,a\n3,b\n")
    assert read_ids(tmp_path / "good.csv", 12).tolist() == [3, 7]
    (tmp_path / "bad.csv").write_text(f"pool_id,path\n3,b\n{text},a\n")
    with pytest.raises(UserError, match=r"bad\.csv: "):
        read_ids(tmp_path / "bad.csv", 12)


def test_an_empty_text_is_no_source_and_no_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save(tmp_path / "x.npy", X)
    assert "an empty text" in fails("pool", "build", "", "--out", "pool")
    assert "an empty text" in fails("pool", "build", "x.npy", "", "--out", "pool")
    assert not (tmp_path / "pool").exists()


# pickles ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_arrays_come_out_of_a_pickle_as_they_went_in(protocol):
    rng = np.random.default_rng(0)
    arrays = {
        "bytes": rng.integers(0, 256, (3, 4), np.uint8),
        "fortran": np.asfortranarray(rng.normal(size=(3, 4))),
        "swapped": rng.normal(size=5).astype(">f4"),
        "number": np.float32(3.5),
        "texts": np.array(["a", "bcd"]),
        "list": [1, "a", b"\xff", None, (2.5, True)],
    }
    found = load_arrays(io.BytesIO(pickle.dumps(arrays, protocol)), Path("x"))
    assert found["list"] == arrays["list"]
    for name, array in list(arrays.items())[:-1]:
        assert found[name].dtype == array.dtype
        np.testing.assert_array_equal(found[name], array)
    found["bytes"][0] = 0  # they can be written to


def test_a_type_that_says_its_bytes_are_objects_never_reaches_numpy():
    """A record of one object pointer, its flags cleared: numpy would follow the eight bytes of the array as a pointer."""
    hostile = (
        b"\x80\x02cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R("
        b"K\x01K\x01\x85cnumpy\ndtype\nU\x02V8K\x00K\x01\x87R(K\x03U\x01|NU\x01f\x85}U\x01fcnumpy\ndtype\nU\x02O8K\x00K\x01"
        b"\x87RK\x00\x86sK\x08K\x01K\x00tb\x89U\x08AAAAAAAAtb."
    )
    with pytest.raises(UserError, match="arrays of"):
        load_arrays(io.BytesIO(hostile), Path("x"))


def test_a_pickle_can_change_nothing_of_ours():
    for state in (b"}U\x04evilK\x01s", b"N}U\x04evilK\x01s\x86"):
        with pytest.raises(UserError, match="gives a state"):
            load_arrays(io.BytesIO(b"\x80\x02cnumpy.core.multiarray\nscalar\n" + state + b"b."), Path("x"))


def test_damage_by_chance_is_the_same_for_the_same_seed():
    one, other = (damaged(bytes(range(200)), np.random.default_rng([3, 4])) for _ in range(2))
    assert one == other and one[1] != bytes(range(200))
