import numpy as np
import pytest

from odst.data.images import Labelled, Pool
from odst.method.labelling import Predictions
from odst.method.selection import Selection
from odst.method.targets import Examples, Rest
from odst.seeds import stream


def examples(damping=0.5, hard=False):
    rng = stream(0, "data")
    T = Labelled(rng.normal(size=(6, 4)).astype(np.float32), np.array([0, 1, 2, 0, 1, 2]))
    U = Pool(np.arange(80, dtype=np.float32).reshape(20, 4), excluded=np.array([3, 19]))
    p = Predictions(rng.normal(size=(20, 3)).astype(np.float32) * 5, 0.5)
    I = Selection(
        ids=np.array([7, 2, 11]), classes=np.array([0, 0, 2]), log_odds=np.zeros(3), copies=np.array([1, 3, 2]),
        above=np.array([2, 0, 1]), stop=("", "", ""), k=4, hard=hard,
    )  # fmt: skip
    return Examples(T, U, p, I, damping, 3)


def test_the_rest_is_the_pool_without_selected_and_excluded_images():
    rest = Rest(10, np.array([0, 3, 4, 9, 3]))
    assert rest[np.arange(len(rest))].tolist() == [1, 2, 5, 6, 7, 8]


def test_the_rest_of_a_huge_pool_takes_no_array():
    rest = Rest(10**12, np.array([5, 10**11]))
    assert rest[np.array([4, 5, 10**11 - 2, 10**11 - 1])].tolist() == [4, 6, 10**11 - 1, 10**11 + 1]


def test_an_epoch_holds_the_labelled_images_and_the_selected_ones_with_their_copies():
    e = examples()
    assert len(e) == 6 + 6
    x, _ = e.batch(np.arange(len(e)))
    ids = (x[6:, 0] / 4).astype(int)
    assert ids.tolist() == [7, 2, 2, 2, 11, 11]


def test_labels_are_one_hot_and_selected_images_get_the_calibrated_teacher():
    e = examples()
    _, q = e.batch(np.arange(len(e)))
    assert np.array_equal(q[:6], np.eye(3)[e.T.y])
    assert np.allclose(q[6:], e.p[np.array([7, 2, 2, 2, 11, 11])])


def test_a_given_selection_is_labelled_by_its_class():
    _, q = examples(hard=True).batch(np.arange(6, 12))
    assert q.argmax(1).tolist() == [0, 0, 0, 0, 2, 2]
    assert set(q.ravel()) == {0.0, 1.0}


@pytest.mark.parametrize("damping", [0.0, 0.5, 1.0])
def test_the_rest_gets_damped_probabilities(damping):
    e = examples(damping)
    x, v = e.rest_batch(np.arange(len(e.rest)))
    ids = (x[:, 0] / 4).astype(int)
    assert set(ids) == set(range(20)) - {7, 2, 11, 3, 19}
    assert np.allclose(v, (1 - damping) * e.p[ids] + damping / 3)
    assert np.allclose(v.sum(1), 1)


def test_the_most_confident_target_on_the_rest_is_a_half_plus_half_a_kth():
    # the paper says 1/2 + 1/K; its eq. (2) gives 1/2 + 1/(2K)
    sure = Predictions(np.array([[1000.0, 0, 0, 0, 0]], np.float32), 1.0)
    U = Pool(np.zeros((1, 4), np.float32))
    T = Labelled(np.zeros((5, 4), np.float32), np.arange(5))
    _, v = Examples(T, U, sure, None, 0.5, 5).rest_batch(np.array([0]))
    assert v.max() == pytest.approx(1 / 2 + 1 / 10)


def test_the_base_pushes_the_rest_to_uniform():
    e = examples()
    base = Examples(e.T, e.U, None, None, 1.0, 3)
    assert len(base) == 6
    _, v = base.rest_batch(np.arange(18))
    assert (v == 1 / 3).all()


def test_labelled_images_may_stand_in_an_epoch_several_times():
    e = examples()
    often = Examples(e.T, e.U, e.p, e.I, 0.5, 3, labelled_copies=3)
    assert len(often) == 3 * 6 + 6
    x, q = often.batch(np.arange(len(often)))
    assert np.array_equal(x[:18], np.tile(e.T.x, (3, 1)))
    assert np.array_equal(q[:18], np.tile(np.eye(3)[e.T.y], (3, 1)))
    assert np.array_equal(x[18:], e.batch(np.arange(len(e)))[0][6:])
    assert often.digest() != e.digest()
