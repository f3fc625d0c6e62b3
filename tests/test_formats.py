"""Files of the true formats, made small."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from odst.data.exclusions import read_exclusions
from odst.data.formats.originals import CIFAR10, open_format, read_corruptions, read_format
from odst.data.reading import read_set
from odst.errors import UserError
from odst.vision.corruptions import CORRUPTIONS

rng = np.random.default_rng(0)


def pictures(n: int) -> np.ndarray:
    return rng.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)


def planes(x: np.ndarray) -> np.ndarray:
    """CIFAR's rows: all of red, then green, then blue, each row by row."""
    return x.transpose(0, 3, 1, 2).reshape(len(x), 3072)


def dump(path: Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(value, protocol=2))


def cifar10_python(folder: Path, x: np.ndarray, y: np.ndarray) -> Path:
    half = len(x) // 2
    for number, rows in ((1, slice(0, half)), (2, slice(half, None))):
        labels = y[rows].tolist()
        dump(folder / f"data_batch_{number}", {"batch_label": "b", "labels": labels, "data": planes(x[rows])})
    dump(folder / "test_batch", {"labels": y[::-1].tolist(), "data": planes(x[::-1])})
    dump(folder / "batches.meta", {"label_names": list(CIFAR10), "num_vis": 3072})
    return folder


def test_a_folder_of_python_batches_is_the_training_set_in_order(tmp_path: Path) -> None:
    x, y = pictures(6), np.array([3, 1, 4, 1, 5, 9])
    stored = read_format(cifar10_python(tmp_path / "cifar-10-batches-py", x, y))
    assert stored is not None
    np.testing.assert_array_equal(stored.x[:], x)
    np.testing.assert_array_equal(stored.y, y)
    assert stored.classes == CIFAR10


def test_the_test_batch_is_named_by_its_file(tmp_path: Path) -> None:
    x, y = pictures(6), np.arange(6)
    stored = read_format(cifar10_python(tmp_path, x, y) / "test_batch")
    assert stored is not None
    np.testing.assert_array_equal(stored.x[:], x[::-1])
    assert stored.y is not None
    assert stored.y.tolist() == [5, 4, 3, 2, 1, 0]


def test_python_and_binary_batches_of_cifar10_are_the_same_images(tmp_path: Path) -> None:
    x, y = pictures(12), np.arange(12) % 10
    for number in range(1, 13):  # more than nine: batches are ordered by number, not by name
        row = slice(number - 1, number)
        record = np.concatenate([y[row, None].astype(np.uint8), planes(x[row])], axis=1)
        record.tofile(tmp_path / f"data_batch_{number}.bin")
    (tmp_path / "batches.meta.txt").write_text("\n".join(CIFAR10) + "\n\n")
    stored = read_format(tmp_path)
    assert stored is not None
    np.testing.assert_array_equal(stored.x[:], x)
    np.testing.assert_array_equal(stored.y, y)
    assert stored.classes == CIFAR10


def test_cifar100_takes_the_fine_label_from_either_version(tmp_path: Path) -> None:
    x, coarse, fine = pictures(4), np.array([0, 1, 2, 3]), np.array([7, 0, 99, 50])
    names = [f"thing{k}" for k in range(100)]
    python, binary = tmp_path / "cifar-100-python", tmp_path / "cifar-100-binary"
    dump(python / "train", {"coarse_labels": coarse.tolist(), "fine_labels": fine.tolist(), "data": planes(x)})
    dump(python / "meta", {"fine_label_names": names, "coarse_label_names": ["c"]})
    binary.mkdir()
    records = np.concatenate([coarse[:, None].astype(np.uint8), fine[:, None].astype(np.uint8), planes(x)], axis=1)
    records.tofile(binary / "train.bin")
    (binary / "fine_label_names.txt").write_text("\n".join(names) + "\n")
    for path in (python, python / "train", binary, binary / "train.bin"):
        stored = read_format(path)
        assert stored is not None
        np.testing.assert_array_equal(stored.x[:], x)
        np.testing.assert_array_equal(stored.y, fine)
        assert stored.classes == tuple(names)


def test_imagenet32_counts_its_labels_from_one(tmp_path: Path) -> None:
    x = pictures(3)
    dump(tmp_path / "train_data_batch_1", {"data": planes(x), "labels": [1, 1000, 2], "mean": planes(x).mean(0)})
    stored = read_format(tmp_path)
    assert stored is not None
    np.testing.assert_array_equal(stored.x[:], x)
    assert stored.y is not None
    assert stored.y.tolist() == [0, 999, 1]


def test_the_selected_tiny_images_keep_their_pseudo_labels(tmp_path: Path) -> None:
    x, y = pictures(3), np.array([9, 0, 4])
    dump(tmp_path / "ti_500K_pseudo_labeled.pickle", {"data": x, "extrapolated_targets": y})
    stored = read_format(tmp_path / "ti_500K_pseudo_labeled.pickle")
    assert stored is not None
    np.testing.assert_array_equal(stored.x[:], x)
    np.testing.assert_array_equal(stored.y, y)
    assert stored.classes == CIFAR10


class Hostile:
    def __init__(self, trace: Path):
        self.trace = trace

    def __reduce__(self) -> tuple:
        return Path.touch, (self.trace,)


def test_a_pickle_that_asks_for_code_is_refused_and_runs_nothing(tmp_path: Path) -> None:
    trace = tmp_path / "executed"
    dump(tmp_path / "data_batch_1", {"data": Hostile(trace), "labels": [0]})
    with pytest.raises(UserError, match="asks for"):
        read_format(tmp_path / "data_batch_1")
    assert not trace.exists()


def test_a_pickle_cannot_call_another_codec(tmp_path: Path) -> None:
    codec = b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00hex\x86R."
    (tmp_path / "test_batch").write_bytes(codec)
    with pytest.raises(UserError, match="codec hex"):
        read_format(tmp_path / "test_batch")


@pytest.mark.parametrize("cut", [1, 100, 5000])
def test_a_cut_batch_is_one_line_with_the_way_out(tmp_path: Path, cut: int) -> None:
    path = cifar10_python(tmp_path, pictures(4), np.arange(4)) / "data_batch_1"
    path.write_bytes(path.read_bytes()[:-cut])
    with pytest.raises(UserError, match="fetch it again"):
        read_format(path)
    binary = tmp_path / "test_batch.bin"
    binary.write_bytes(bytes(3073 * 2 - cut))
    with pytest.raises(UserError, match="cut short"):
        read_format(binary)


def test_labels_beyond_the_class_names_are_refused(tmp_path: Path) -> None:
    folder = cifar10_python(tmp_path, pictures(2), np.array([0, 10]))
    with pytest.raises(UserError, match="label 10 but only 10 class names"):
        read_format(folder)


def test_svhn_is_turned_upright_and_its_ten_is_a_zero(tmp_path: Path) -> None:
    x, y = pictures(5), np.array([1, 10, 9, 10, 3], dtype=np.uint8)
    path = tmp_path / "train_32x32.mat"
    savemat(path, {"X": x.transpose(1, 2, 3, 0), "y": y[:, None]}, do_compression=True)
    stored = read_format(path)
    assert stored is not None
    assert stored.y is not None
    np.testing.assert_array_equal(stored.x[np.array([4, 0])], x[[4, 0]])
    np.testing.assert_array_equal(stored.x[1:3], x[1:3])
    assert stored.y.tolist() == [1, 0, 9, 0, 3]
    assert stored.classes == tuple("0123456789")


def test_a_mat_file_of_something_else_is_refused(tmp_path: Path) -> None:
    savemat(tmp_path / "setid.mat", {"tstid": np.arange(3)})
    (tmp_path / "cut.mat").write_bytes(b"MATLAB 5.0 MAT-file")
    for name in ("setid.mat", "cut.mat"):
        with pytest.raises(UserError, match="odst data get svhn"):
            read_format(tmp_path / name)


def test_tiny_images_are_column_major_and_stay_on_disk(tmp_path: Path) -> None:
    x = pictures(7)
    path = tmp_path / "tiny_images.bin"
    path.write_bytes(b"".join(image.tobytes(order="F") for image in x))
    stored = read_format(path)
    assert stored is not None
    assert stored.x.shape == (7, 32, 32, 3)
    np.testing.assert_array_equal(stored.x[2:5], x[2:5])
    np.testing.assert_array_equal(stored.x[np.array([6, 0, 6])], x[[6, 0, 6]])
    np.testing.assert_array_equal(stored.x[3], x[3])
    assert isinstance(stored.x.raw, np.memmap)  # type: ignore[attr-defined]


def test_as_a_source_the_items_carry_class_names_and_rows(tmp_path: Path) -> None:
    x, y = pictures(5), np.array([9, 0, 2, 2, 7])
    folder = cifar10_python(tmp_path / "cifar-10-batches-py", x, y)
    tiny = tmp_path / "tiny_images.bin"
    tiny.write_bytes(b"".join(image.tobytes(order="F") for image in x))
    for path, labels in ((folder, [CIFAR10[k] for k in y]), (tiny, [None] * 5)):
        source = open_format(path)
        assert source is not None
        items = [item for part in source.parts(1, 3) for item in pickle.loads(pickle.dumps(part))]
        assert [item.label for item in items] == labels[1:]
        assert items[0].uri == f"{path.as_uri()}#row=1"
        for item, image in zip(items, x[1:], strict=True):
            np.testing.assert_array_equal(item.read(), image)


def test_a_tiny_images_file_cut_within_an_image_is_refused(tmp_path: Path) -> None:
    (tmp_path / "tiny_images.bin").write_bytes(bytes(3072 * 2 + 5))
    with pytest.raises(UserError, match="6149 bytes are no whole number"):
        read_format(tmp_path / "tiny_images.bin")


def corruptions(folder: Path, n: int = 3) -> np.ndarray:
    folder.mkdir(exist_ok=True)
    labels = np.tile(np.arange(n, dtype=np.uint8), 5)
    np.save(folder / "labels.npy", labels)
    for k, name in enumerate((*CORRUPTIONS, "saturate")):
        levels = np.repeat(np.arange(5), n)
        np.save(
            folder / f"{name}.npy",
            np.broadcast_to((10 * k + levels)[:, None, None, None], (5 * n, 32, 32, 3)).astype("u1"),
        )
    return labels


def test_cifar_c_gives_fifteen_corruptions_at_five_levels(tmp_path: Path) -> None:
    corruptions(tmp_path / "CIFAR-10-C")
    sets = list(read_corruptions(tmp_path / "CIFAR-10-C"))
    assert [(name, level) for name, level, _, _ in sets] == [(name, k) for name in CORRUPTIONS for k in range(1, 6)]
    for name, level, x, y in sets:
        assert (x == 10 * CORRUPTIONS.index(name) + level - 1).all()
        assert y.tolist() == [0, 1, 2]
    stored = read_format(tmp_path / "CIFAR-10-C")
    assert stored is not None
    assert len(stored) == 15 * 5 * 3
    assert stored.classes == CIFAR10


def test_a_missing_corruption_is_named(tmp_path: Path) -> None:
    corruptions(tmp_path)
    (tmp_path / "fog.npy").unlink()
    with pytest.raises(UserError, match=r"1 of the 16 files of CIFAR-C are not there, fog\.npy first"):
        next(read_corruptions(tmp_path))


def test_cifar10_1_finds_its_labels_beside_the_data(tmp_path: Path) -> None:
    x, y = pictures(4), np.array([0, 9, 5, 5], dtype=np.int32)
    np.save(tmp_path / "cifar10.1_v6_data.npy", x)
    with pytest.raises(UserError, match=r"cifar10\.1_v6_labels\.npy"):
        read_format(tmp_path)
    np.save(tmp_path / "cifar10.1_v6_labels.npy", y)
    for path in (tmp_path, tmp_path / "cifar10.1_v6_data.npy"):
        stored = read_format(path)
        assert stored is not None
        np.testing.assert_array_equal(stored.x[:], x)
        np.testing.assert_array_equal(stored.y, y)


def test_other_paths_are_none_of_these_formats(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "test").write_text("a plain file")
    np.save(tmp_path / "array.npy", pictures(1))
    for path in (tmp_path, tmp_path / "train", tmp_path / "test", tmp_path / "array.npy", tmp_path / "absent"):
        assert read_format(path) is None


def test_exclusion_lists_know_from_which_number_they_count(tmp_path: Path) -> None:
    one, zero = tmp_path / "80mn_cifar_idxs.txt", tmp_path / "80mn_cifar10_test_idxs.txt"
    one.write_text("10\n1\n3\n3\n")
    zero.write_text("9\n0\n2\n")
    assert read_exclusions(one, 10).tolist() == read_exclusions(zero, 10).tolist() == [0, 2, 9]
    own = tmp_path / "own.txt"
    own.write_text("5\n")
    with pytest.raises(UserError, match="from 0 or from 1"):
        read_exclusions(own, 10)
    assert read_exclusions(own, 10, base=1).tolist() == [4]


@pytest.mark.parametrize(
    ("text", "base", "message"), [("0\n", 1, "counts from 0"), ("10\n", 0, "counts from 1"), ("x", 0, "whole number")]
)
def test_an_exclusion_list_of_the_wrong_base_is_refused(tmp_path: Path, text: str, base: int, message: str) -> None:
    (tmp_path / "list.txt").write_text(text)
    with pytest.raises(UserError, match=message):
        read_exclusions(tmp_path / "list.txt", 10, base=base)


def test_a_label_without_a_name_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((3, 8, 8, 3), np.uint8), labels=np.array(["cat", " ", "dog"]))
    with pytest.raises(UserError, match=r"x\.npz: the label of row 1 is"):
        read_set(tmp_path / "x.npz", 8, labelled=True)
