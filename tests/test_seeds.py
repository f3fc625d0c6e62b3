import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from odst.seeds import Shuffle, key, stream


def test_the_same_name_gives_the_same_stream_and_another_name_another():
    assert stream(0, "select", 1).random() == stream(0, "select", 1).random()
    assert len({key(s, name, t) for s in (0, 1) for name in ("select", "noise") for t in range(3)}) == 12


def test_a_seed_is_the_same_on_every_machine():
    assert key(0, "select", 1) == 2350285332324104207


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 3000), st.integers(0, 2**31), st.integers(0, 3))
def test_every_pass_of_a_shuffle_visits_every_row_once(n, seed, e):
    order = Shuffle(n, seed, "rest")[np.arange(e * n, (e + 1) * n)]
    assert np.array_equal(np.sort(order), np.arange(n))


def test_passes_and_keys_of_a_shuffle_differ():
    n = 1000
    shuffle = Shuffle(n, 0, "rest")
    first, second = shuffle[np.arange(n)], shuffle[np.arange(n, 2 * n)]
    other = Shuffle(n, 1, "rest")[np.arange(n)]
    assert (first == second).mean() < 0.02
    assert (first == other).mean() < 0.02


def test_a_shuffle_is_read_at_any_place_without_its_past():
    shuffle = Shuffle(10**8, 3, "rest")
    whole = shuffle[np.arange(10**8 - 50, 10**8 + 50)]
    assert np.array_equal(shuffle[np.array([10**8 + 7])], whole[[57]])


def test_a_shuffle_spreads_neighbours_over_the_whole_range():
    order = Shuffle(100_000, 5, "rest")[np.arange(10_000)]
    counts = np.histogram(order, bins=20, range=(0, 100_000))[0]
    assert abs(counts - 500).max() < 5 * np.sqrt(500)
