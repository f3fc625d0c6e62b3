"""A promise on the pool against scipy's Benjamini-Hochberg and by brute force; spreading the picks above a threshold."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import false_discovery_control, kstest

from blobs import SCHEDULES, blob_world, make_mlp
from odst import ODST, self_train
from odst.method.calibration import top_log_odds
from odst.method.labelling import Predictions
from odst.method.promise import promised
from odst.method.selection import FULL, select
from odst.seeds import stream

NONE = np.empty(0, np.int64)
OPEN = np.full(3, -np.inf)
quick = settings(deadline=None, max_examples=150)


def world(seed: int, m: int, n_out: int, ties: bool) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a pool in which some images are surer than unrelated ones are, and of val_out."""
    rng = stream(seed, "promise")
    pool = rng.normal(size=(m, 3)) + np.eye(3)[rng.integers(3, size=m)] * rng.choice([0, 6], size=(m, 1))
    out = rng.normal(size=(n_out, 3))
    return (pool.round(), out.round()) if ties else (pool, out)


@quick
@given(
    st.integers(0, 2**16),
    st.integers(5, 120),
    st.integers(1, 200),
    st.sampled_from([0.5, 0.7, 0.8, 0.9]),
    st.booleans(),
)
def test_what_lies_above_is_what_benjamini_and_hochberg_reject(seed, m, n_out, promise, ties):
    pool, out = world(seed, m, n_out, ties)
    excluded = np.unique(stream(seed, "excluded").integers(m, size=m // 5))
    barred = stream(seed, "barred").integers([[m, 3]] * (m // 5), dtype=np.int64)  # a person has ruled these out
    tau, _ = promised(Predictions(pool, 1.0), OPEN, out, promise, excluded, barred)
    (c, odds), (c_out, odds_out) = top_log_odds(pool, 1.0), top_log_odds(out, 1.0)
    inside = np.setdiff1d(np.arange(m), excluded)
    for k in range(3):
        may = (c == k) & ~np.isin(np.arange(m), barred[barred[:, 1] == k, 0])
        score = np.where(may, odds, -np.inf)[inside]  # another class's image is as unlikely as can be
        score_out = np.where(c_out == k, odds_out, -np.inf)
        p = (1 + (score_out >= score[:, None]).sum(axis=1)) / (n_out + 1)
        rejected = false_discovery_control(p) <= (1 - promise) * (1 + 1e-9)
        assert np.array_equal(rejected, score > tau[k])


@quick
@given(st.integers(0, 2**16), st.integers(5, 80), st.integers(1, 150), st.sampled_from([-1.0, 0.0, 2.0, 4.0]))
def test_it_is_the_smallest_such_threshold_not_below_the_in_threshold(seed, m, n_out, floor):
    pool, out = world(seed, m, n_out, ties=True)
    inside = np.array([floor, -np.inf, np.inf])
    tau, says = promised(Predictions(pool, 1.0), inside, out, 0.75, NONE)
    (c, odds), (c_out, odds_out) = top_log_odds(pool, 1.0), top_log_odds(out, 1.0)
    assert tau[2] == np.inf and 2 not in says  # closed by val_in
    for k in range(2):

        def keeps(bar, k=k):
            R, a = ((c == k) & (odds > bar)).sum(), ((c_out == k) & (odds_out > bar)).sum()
            return R > 0 and m * (1 + a) / (n_out + 1) <= 0.25 * R + 1e-9

        bars = [bar for bar in (inside[k], *odds_out, *odds) if bar >= inside[k] and keeps(bar)]
        chosen = set(np.flatnonzero((c == k) & (odds > tau[k])))
        assert chosen == (set(np.flatnonzero((c == k) & (odds > min(bars)))) if bars else set())
        assert tau[k] >= inside[k] and (k in says) == (not bars)


def test_a_class_says_how_many_images_of_val_out_it_would_take():
    pool = np.array([[9.0, 0, 0]] * 20 + [[0, 0.1, 0]] * 80)  # 20 of 100 lie above all of val_out
    out = np.tile([1.0, 0, 0], (10, 1))
    tau, says = promised(Predictions(pool, 1.0), OPEN, out, 0.9, NONE)
    assert tau[0] == np.inf  # 100 / (0.1 · 20) - 1 = 49
    assert says[0] == "a promise of 0.9 would take at least 49 images of val_out, and 10 are there"
    assert says[2] == "no pool image lies above all 10 of val_out, and a promise of 0.9 needs some"
    enough = promised(Predictions(pool, 1.0), OPEN, np.tile([1.0, 0, 0], (49, 1)), 0.9, NONE)
    assert enough[0][0] < 9 and 0 not in enough[1]
    assert promised(Predictions(pool, 1.0), OPEN, np.tile([1.0, 0, 0], (48, 1)), 0.9, NONE)[0][0] == np.inf


def test_a_run_selects_by_its_promise_and_says_of_a_closed_class_what_it_takes(caplog):
    data = blob_world(pool=2000)
    recipe = replace(ODST, alpha=0.95, ratio=(5,), promise=0.8, pick="spread")
    base, student = self_train(recipe, data, make_mlp, SCHEDULES)
    I = student.selection
    assert I.pick == "spread" and (I.log_odds > I.tau[I.classes]).all()
    assert (I.tau >= base.thresholds.inside).all()
    assert (data.pool.truth[I.ids] >= 0).mean() > 0.8
    few = replace(data, val_out=data.val_out[:5])
    assert len(list(self_train(recipe, few, make_mlp, SCHEDULES))) == 1
    assert "images of val_out, and 5 are there" in caplog.text


# spread ----------------------------------------------------------------------------------------------------------------------


def spread(logits, tau, k, *, seed=0, t=0, excluded=NONE, max_copies=None):
    p = Predictions(np.asarray(logits, np.float32), 1.0)
    return select(p, np.asarray(tau, float), k, "spread", excluded=excluded, max_copies=max_copies, seed=seed, t=t)


@quick
@given(st.integers(0, 2**16), st.integers(1, 12), st.sampled_from([None, 1, 3]), st.integers(5, 60))
def test_spread_takes_as_many_as_top_from_the_same_images(seed, k, cap, m):
    logits = stream(seed, "pool").choice([-1.0, 0.0, 1.0, 2.0], size=(m, 3))
    tau = np.array([-np.inf, 0.2, np.inf])
    excluded = np.arange(0, m, 5)
    p = Predictions(logits.astype(np.float32), 1.0)
    top = select(p, tau, k, excluded=excluded, max_copies=cap, seed=seed, t=0)
    any_k = spread(logits, tau, k, seed=seed, excluded=excluded, max_copies=cap)
    assert np.array_equal(top.above, any_k.above) and top.stop == any_k.stop
    assert np.array_equal(top.classes, any_k.classes) and len(np.unique(any_k.ids)) == len(any_k)
    odds = top_log_odds(logits, 1.0)[1]
    assert (odds[any_k.ids] > tau[any_k.classes]).all() and not np.isin(any_k.ids, excluded).any()
    for c in range(3):
        assert (np.diff(any_k.log_odds[any_k.classes == c]) <= 0).all()  # the most confident first, as ever
        assert any_k.copies[any_k.classes == c].sum() == top.copies[top.classes == c].sum()


def test_spread_is_uniform_above_the_threshold_and_falls_by_seed_and_round():
    logits = np.stack([np.linspace(1, 9, 300_000), np.zeros(300_000)], axis=1)
    I = spread(logits, [2.0, 0.0], 2000)
    assert I.stop[0] == FULL
    assert kstest(I.log_odds, "uniform", args=(2, 7)).pvalue > 0.01
    assert np.array_equal(I.ids, spread(logits, [2.0, 0.0], 2000).ids)
    for other in (spread(logits, [2.0, 0.0], 2000, seed=1), spread(logits, [2.0, 0.0], 2000, t=1)):
        assert len(np.intersect1d(I.ids, other.ids)) < 60


@pytest.mark.parametrize("k", [7, 500])
def test_spread_over_many_blocks_is_that_over_one(monkeypatch, k):
    logits = stream(0, "pool").normal(size=(5000, 3))
    whole = spread(logits, [0.0] * 3, k)
    monkeypatch.setattr("odst.method.candidates.BLOCK", 64)
    parts = spread(logits, [0.0] * 3, k)
    assert np.array_equal(whole.ids, parts.ids) and np.array_equal(whole.log_odds, parts.log_odds)
