import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from odst.data.images import Pool
from odst.data.views import Concatenated
from odst.errors import UserError
from odst.method.calibration import top_log_odds
from odst.method.labelling import Predictions
from odst.method.selection import CLOSED, EMPTY, FULL, SHORT, in_threshold, out_threshold, select, shortage, thresholds
from odst.seeds import key, mix, stream

NONE = np.empty(0, np.int64)
values = hnp.arrays(np.float64, st.integers(1, 40), elements=st.sampled_from(np.linspace(-3, 3, 13)))
alphas = st.sampled_from([0.5, 0.8, 0.9, 0.98, 0.998])
quick = settings(deadline=None, max_examples=150)


def choose(logits, tau, k, *, temperature=1.0, excluded=NONE, max_copies=None, seed=0, t=0):
    p = Predictions(np.asarray(logits, np.float32), temperature)
    return select(p, np.asarray(tau, float), k, excluded=excluded, max_copies=max_copies, seed=seed, t=t)


def precision_above(odds, is_c, tau):
    above = odds > tau
    return is_c[above].mean() if above.any() else -1.0


@quick
@given(values, alphas, st.integers(0, 2**16))
def test_the_in_threshold_is_the_smallest_that_reaches_alpha(odds, alpha, seed):
    is_c = stream(seed, "labels").random(len(odds)) < 0.7
    tau = in_threshold(odds, is_c, alpha)
    candidates = np.concatenate([[-np.inf], np.unique(odds)])
    good = [c for c in candidates if precision_above(odds, is_c, c) >= alpha]
    assert tau == (min(good) if good else np.inf)


@quick
@given(values, alphas)
def test_the_out_threshold_bounds_the_false_positive_rate(odds, alpha):
    tau = out_threshold(odds, alpha)
    assert (odds > tau).mean() <= 1 - alpha + 1e-12
    assert tau in odds


def test_precision_is_not_monotone_and_every_value_is_tried():
    odds = np.array([0.0, 1, 2, 3, 4])
    is_c = np.array([True, True, True, True, False])  # the most confident image is wrong
    assert in_threshold(odds, is_c, 0.8) == -np.inf
    assert in_threshold(odds, is_c, 0.81) == np.inf


def test_a_precision_of_exactly_alpha_qualifies():
    odds = np.arange(50.0)
    is_c = np.ones(50, bool)
    is_c[7] = False
    assert in_threshold(odds, is_c, 0.98) == -np.inf  # 49 of 50


def test_an_empty_set_never_qualifies():
    assert in_threshold(np.array([1.0, 2.0]), np.array([False, False]), 0.5) == np.inf


def test_thresholds_count_what_lies_above_them():
    rng = stream(0, "val")
    y = rng.integers(3, size=200)
    logits = rng.normal(size=(200, 3)) + 2 * np.eye(3)[y]
    out = rng.normal(size=(300, 3))
    both = thresholds(logits, y, out, 1.0, 0.9, 0.98)
    assert np.array_equal(both.tau, np.maximum(both.inside, both.outside))
    assert (both.in_right / both.in_above >= 0.9).all()
    assert (both.out_above <= 0.02 * 300).all()
    blind = thresholds(logits, y, None, 1.0, 0.9, None)
    assert np.array_equal(blind.tau, both.inside)


@quick
@given(st.integers(0, 2**16), st.integers(1, 12), st.sampled_from([None, 1, 3]), st.integers(5, 60))
def test_each_open_class_has_its_entries_and_no_better_image_is_left_out(seed, k, cap, m):
    rng = stream(seed, "pool")
    logits = rng.choice([-1.0, 0.0, 1.0, 2.0], size=(m, 3))  # many ties
    tau = np.array([-np.inf, 0.2, np.inf])
    I = choose(logits, tau, k, max_copies=cap, seed=seed)
    p = Predictions(logits.astype(np.float32), 1.0)
    ids, classes, odds = (np.concatenate(part) for part in zip(*p.top(), strict=True))
    for c in range(3):
        eligible = ids[(classes == c) & (odds > tau[c])]
        chosen = I.ids[I.classes == c]
        copies = I.copies[I.classes == c]
        assert I.above[c] == len(eligible)
        assert len(chosen) == min(k, len(eligible))
        assert set(chosen) <= set(eligible)
        if len(chosen):
            assert copies.sum() == (k if cap is None else min(k, cap * len(chosen)))
            assert copies.min() >= 1
            assert cap is None or copies.max() <= cap
            left_out = np.setdiff1d(eligible, chosen)
            assert len(left_out) == 0 or odds[left_out].max() <= odds[chosen].min()
            assert (np.diff(I.log_odds[I.classes == c]) <= 0).all()


@quick
@given(st.integers(0, 2**16))
def test_permuting_the_pool_changes_nothing(seed):
    rng = stream(seed, "pool")
    logits = rng.normal(size=(50, 4))
    order = rng.permutation(50)
    one = choose(logits, np.zeros(4), 5)
    other = choose(logits[order], np.zeros(4), 5)
    assert np.array_equal(one.ids, order[other.ids])
    assert np.array_equal(one.classes, other.classes)


def test_ties_fall_by_the_seed_and_not_by_pool_order():
    logits = np.tile([2.0, 0.0], (1000, 1))
    first, second = choose(logits, [0, 0], 50, seed=1), choose(logits, [0, 0], 50, seed=2)
    assert len(np.intersect1d(first.ids, second.ids)) < 15
    assert 300 < first.ids.mean() < 700
    assert np.array_equal(first.ids, choose(logits, [0, 0], 50, seed=1).ids)


def test_a_pool_of_many_blocks_is_ranked_as_a_whole():
    logits = stream(0, "pool").normal(size=(300_000, 3)).astype(np.float32)
    I = choose(logits, np.zeros(3), 1000)
    classes, odds = top_log_odds(logits, 1.0)
    for c in range(3):
        own = np.flatnonzero((classes == c) & (odds > 0))
        assert I.above[c] == len(own)
        assert np.array_equal(I.ids[I.classes == c], own[np.argsort(-odds[own])[:1000]])


def test_an_excluded_image_is_not_selected_in_whatever_order_a_pool_is_given_them():
    logits = np.array([[0.0, 0], [4, 0], [3, 0], [2, 0], [0, 2]])
    pool = Pool(np.zeros((5, 2), np.float32), excluded=np.array([2, 0, 4, 4]))
    assert choose(logits, [0.5, 0.5], 10, excluded=pool.excluded).ids.tolist() == [1, 3]
    assert pool.excluded.tolist() == [0, 2, 4]


def test_an_excluded_image_is_not_selected():
    logits = stream(0, "pool").normal(size=(100, 2))
    best = choose(logits, [0, 0], 10)
    without = choose(logits, [0, 0], 10, excluded=np.sort(best.ids))
    assert len(np.intersect1d(best.ids, without.ids)) == 0


def test_an_image_at_the_threshold_is_not_above_it():
    logits = np.array([[1.0, 0.0], [1.0, 0.0], [2.0, 0.0]])
    assert choose(logits, [1.0, 0.0], 5).ids.tolist() == [2]


def test_a_class_says_why_it_took_no_more():
    logits = np.array([[3.0, 0, 0, 0]] * 5 + [[0, 3.0, 0, 0]] * 2 + [[0, 0, 0.1, 0]])
    I = choose(logits, [0, 0, 3.0, np.inf], 3)
    assert I.stop == (FULL, SHORT, EMPTY, CLOSED)
    assert I.copies[I.classes == 1].sum() == 3


@pytest.mark.parametrize("max_copies", [None, 2])
def test_repeats_are_random(max_copies):
    logits = np.stack([np.linspace(1, 2, 10), np.zeros(10)], axis=1)
    counts = sum(choose(logits, [0, 0], 15, max_copies=max_copies, seed=s).copies for s in range(200))
    assert abs(counts / 200 - 1.5).max() < 0.2


@pytest.mark.parametrize("excluded", [np.array([True, False, True, False, False]), np.array([-1]), np.array([5])])
def test_a_mask_or_an_id_outside_the_pool_is_no_list_of_excluded_ids(excluded):
    with pytest.raises(UserError, match="excluded holds pool ids from 0 to 4"):
        Pool(np.zeros((5, 2), np.float32), excluded=excluded)


def plainly(logits, temperature, tau, k, pick, excluded, seed):
    """The k best of each class in float64, all rows at once."""
    c, odds = top_log_odds(logits, temperature)
    ids = np.setdiff1d(np.flatnonzero(odds > tau[c]), excluded)
    ties = mix(ids, key(seed, "ties", 0))
    rank = odds[ids] if pick == "top" else -mix(ids, key(seed, "spread", 0)).astype(np.float64)
    best = ids[np.lexsort([ties, -rank])]
    chosen = [best[c[best] == one][:k] for one in range(len(tau))]
    return chosen, np.bincount(c[ids], minlength=len(tau))


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    K=st.sampled_from([2, 3, 10, 100]),
    k=st.sampled_from([1, 7, 400]),
    temperature=st.sampled_from([0.06, 0.7, 1.0, 2.5]),
    pick=st.sampled_from(["top", "spread"]),
    coarse=st.booleans(),
)
def test_float32_first_chooses_what_float64_alone_chooses(seed, K, k, temperature, pick, coarse):
    rng = np.random.default_rng(seed)
    logits = (rng.normal(size=(3000, K)) * rng.choice([0.01, 1, 8], size=(3000, 1))).astype(np.float32)
    if coarse:  # ties without end
        logits = logits.round(1)
    _, odds = top_log_odds(logits, temperature)
    tau = rng.choice([*rng.choice(odds, 20), -np.inf, np.inf], size=K)  # log-odds of rows themselves: strictness shows
    excluded = np.unique(rng.integers(3000, size=100))
    found = select(Predictions(logits, temperature), tau, k, pick, excluded=excluded, max_copies=1, seed=seed % 97, t=0)
    chosen, above = plainly(logits, temperature, tau, k, pick, excluded, seed % 97)
    assert np.array_equal(found.above, above)
    for c in range(K):
        assert np.array_equal(np.sort(found.ids[found.classes == c]), np.sort(chosen[c]))
    assert np.array_equal(found.log_odds, odds[found.ids])


def test_rows_in_several_blocks_and_files_are_chosen_as_in_one(monkeypatch):
    logits = np.random.default_rng(0).normal(size=(5000, 4)).astype(np.float32)
    options = {"excluded": np.array([5, 4000]), "max_copies": None, "seed": 0, "t": 0}
    one = select(Predictions(logits, 0.5), np.zeros(4), 50, **options)
    monkeypatch.setattr("odst.method.candidates.BLOCK", 700)
    many = select(Predictions(Concatenated(np.split(logits, [100, 101, 3000])), 0.5), np.zeros(4), 50, **options)
    assert np.array_equal(one.ids, many.ids)
    assert np.array_equal(one.copies, many.copies)


def test_logits_that_are_no_numbers_are_never_chosen_and_infinite_ones_do_not_stop_the_scan():
    logits = np.zeros((6, 3), np.float32)
    logits[0], logits[1, 1], logits[2] = np.nan, 5, [9, 1, 1]
    with np.errstate(invalid="ignore"):
        found = select(
            Predictions(logits, 1.0), np.full(3, 1.0), 5, excluded=np.empty(0, np.int64), max_copies=1, seed=0, t=0
        )
    assert sorted(found.ids) == [1, 2]


def test_a_class_that_val_in_closes_is_told_what_it_would_take():
    odds = np.array([5.0, 4, 3, 2, 1, 0])
    is_c = np.array([False, True, True, True, False, False])
    assert in_threshold(odds, is_c, 0.9) == np.inf
    said = shortage("cat", odds, is_c, 0.9)
    assert "cat: 1 of the 4 val_in images surest to be of it are not" in said
    assert "a precision of 0.9 with so many wrong takes 10 above the threshold" in said
    more = np.concatenate([[False], np.ones(9, bool)])  # which is enough
    assert in_threshold(np.arange(10.0)[::-1], more, 0.9) == -np.inf
    assert shortage("cat", odds, np.zeros(6, bool), 0.9) == "cat: val_in has no image of it"
