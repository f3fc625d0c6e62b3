"""Images in several places read as one array."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odst.data.views import ColumnMajor, Concatenated
from odst.errors import UserError


@settings(deadline=None, max_examples=60)
@given(lengths=st.lists(st.integers(1, 9), min_size=1, max_size=6), data=st.data())
def test_joined_parts_read_as_one_array(lengths: list[int], data: st.DataObject) -> None:
    rng = np.random.default_rng(0)
    made = [
        part_of(data.draw(st.sampled_from(["plain", "turned", "strided", "column-major"])), n, rng) for n in lengths
    ]
    whole, x = np.concatenate([part[:] for part in made]), Concatenated(made)
    n = len(whole)
    assert (x.shape, x.dtype, len(x)) == (whole.shape, whole.dtype, n)
    rows = np.array(data.draw(st.lists(st.integers(-n, n - 1), max_size=200)), np.int64)
    np.testing.assert_array_equal(x[rows], whole[rows])
    a, b, step = data.draw(st.tuples(st.integers(-n, n), st.integers(-n, n), st.sampled_from([1, 1, 2, -1])))
    np.testing.assert_array_equal(x[a:b:step], whole[a:b:step])
    mask = np.isin(np.arange(n), rows)
    np.testing.assert_array_equal(x[mask], whole[mask])
    np.testing.assert_array_equal(x[n - 1], whole[n - 1])
    for outside in (n, -n - 1):
        with pytest.raises(IndexError):
            x[np.array([outside])]


def part_of(kind: str, n: int, rng: np.random.Generator) -> np.ndarray | ColumnMajor:
    raw = rng.integers(0, 256, (2 * n, 12), dtype=np.uint8)
    pixels = raw.reshape(-1, 2, 2, 3)
    return {
        "plain": pixels[:n],
        "turned": pixels[:n].swapaxes(1, 2),
        "strided": pixels[::2],
        "column-major": ColumnMajor(raw[:n], side=2),
    }[kind]


def test_features_join_like_images_and_what_is_read_is_a_copy() -> None:
    parts = [np.arange(6, dtype=np.float32).reshape(2, 3), np.ones((1, 3), np.float32)]
    x = Concatenated(parts)
    x[:][:] = x[np.array([0, 2])][:] = -1
    np.testing.assert_array_equal(x[:], np.concatenate(parts))
    assert parts[1].tolist() == [[1, 1, 1]]


def test_parts_of_two_sizes_do_not_join() -> None:
    with pytest.raises(UserError, match="one size"):
        Concatenated([np.zeros((1, 2)), np.zeros((1, 3))])


def test_a_joined_set_can_be_sent_to_another_process() -> None:
    parts = [np.arange(12, dtype=np.uint8).reshape(2, 2, 3), np.ones((1, 2, 3), np.uint8)]
    np.testing.assert_array_equal(
        pickle.loads(pickle.dumps(Concatenated(parts)))[np.array([2, 0])], Concatenated(parts)[[2, 0]]
    )
