import numpy as np
import pytest

from odst.data.checks import check_data
from odst.data.images import content_hash
from odst.data.worlds import BLOCK, TASK, load_world
from odst.errors import UserError
from odst.recipe import ODST

WORLDS = {"digits": None, "photos": 4000}


def sets(data):
    yield from {"labelled": data.labelled.x, "val_in": data.val_in.x, "test": data.test.x}.items()
    yield from {
        "pool": data.pool.x[:],
        "val_out": data.val_out,
        "out_test": next(iter(data.out_tests.values())),
    }.items()


@pytest.mark.parametrize("name", WORLDS)
def test_no_image_is_in_two_sets(name):
    seen: dict[str, str] = {}
    for which, x in sets(load_world(name, 3, WORLDS[name])):
        for hash_ in {content_hash(row) for row in x}:
            assert seen.setdefault(hash_, which) == which


@pytest.mark.parametrize("name", WORLDS)
def test_a_world_is_fit_for_odst(name):
    data = load_world(name, 0, WORLDS[name])
    check_data(ODST, data)
    assert len(np.unique(data.labelled.y)) == data.K
    assert 0.15 < (data.pool.truth >= 0).mean() < 0.25


@pytest.mark.parametrize("name", WORLDS)
def test_seeds_deal_everything_but_the_test_images(name):
    one, other = dict(sets(load_world(name, 0, WORLDS[name]))), dict(sets(load_world(name, 1, WORLDS[name])))
    again = dict(sets(load_world(name, 0, WORLDS[name])))
    for which in one:
        assert np.array_equal(one[which], again[which])
        assert np.array_equal(one[which], other[which]) == (which in ("test", "out_test")), which


def test_the_digits_world_has_the_sizes_it_says():
    data = load_world("digits", 0)
    assert np.bincount(data.labelled.y).tolist() == [5] * 5
    assert np.bincount(data.val_in.y).tolist() == [60] * 5
    assert np.bincount(data.test.y).tolist() == [200] * 5
    assert np.bincount(data.pool.truth[data.pool.truth >= 0]).tolist() == [100] * 5
    assert (data.pool.truth < 0).sum() == 5 * 360
    assert data.classes == tuple(map(str, TASK))


def test_no_two_sets_of_photos_share_a_pixel():
    """Blocks are dealt whole, and no patch reaches out of its block."""
    data = load_world("photos", 2, 3000)
    blocks = data.pool.x.blocks
    assert (blocks[:, 1:] % BLOCK == 0).all()
    assert len(np.unique(blocks, axis=0)) == len(blocks)
    picture = data.pool.x.pictures[blocks[5, 0]]
    _, top, left = blocks[5]
    row = int(np.flatnonzero(data.pool.x.owner == 5)[0])
    block = picture[top : top + BLOCK, left : left + BLOCK]
    windows = np.lib.stride_tricks.sliding_window_view(block, (32, 32), axis=(0, 1)).transpose(0, 1, 3, 4, 2)
    assert (windows == data.pool.x[np.array([row])][0]).all(axis=(2, 3, 4)).any()


def test_a_pool_of_ten_million_patches_is_read_where_it_is_asked_for():
    data = load_world("photos", 0, 10_000_000)
    assert data.pool.x.shape == (10_000_000, 32, 32, 3)
    rows = np.array([0, 5_000_000, 9_999_999])
    assert np.array_equal(data.pool.x[rows][1], data.pool.x[5_000_000:5_000_001][0])


def test_rows_come_back_the_same_however_they_are_asked_for():
    x = load_world("photos", 0, 500).pool.x
    order = np.random.default_rng(0).permutation(500)
    assert np.array_equal(x[order], x[:][order])


def test_a_pool_larger_than_the_digits_is_refused_with_the_way_out():
    with pytest.raises(UserError, match="Use --world photos"):
        load_world("digits", 0, 5000)
    with pytest.raises(UserError, match="Choose digits or photos"):
        load_world("cats", 0)
