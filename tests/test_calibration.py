import logging

import numpy as np
import pytest
from benchmarks.calibration import grid_scores, grid_temperature, model
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss

from odst.method import calibration
from odst.method.calibration import (
    GRID,
    expected_calibration_error,
    fit_temperature,
    log_odds,
    probabilities,
    top_log_odds,
)
from odst.seeds import stream


def noisy_logits(n=400, K=5, sharp=3.0, seed=0):
    rng = stream(seed, "logits")
    y = rng.integers(K, size=n)
    return (rng.normal(size=(n, K)) + 1.5 * np.eye(K)[y]).astype(np.float32) * sharp, y


def brute_force_ece(confidence, correct, bins=20):
    total = 0.0
    for b in range(bins):
        inside = (confidence > b / bins) & (confidence <= (b + 1) / bins)
        if inside.any():
            total += inside.sum() * abs(correct[inside].mean() - confidence[inside].mean())
    return total / len(confidence)


def test_the_grid_holds_temperature_one():
    assert len(GRID) == 2001
    assert GRID[1500] == 0.0


def test_the_calibration_error_agrees_with_brute_force():
    logits, y = noisy_logits()
    p = probabilities(logits, 1.0)
    correct = p.argmax(1) == y
    assert expected_calibration_error(p.max(1), correct) == pytest.approx(brute_force_ece(p.max(1), correct))


def test_the_top_bin_counts():
    # a table whose top bin alone is wrong: everything at confidence 1, half of it right
    assert expected_calibration_error(np.ones(10), np.arange(10) % 2 == 0) == 0.5


def test_the_temperature_is_the_grids_best_by_brute_force():
    logits, y = noisy_logits(sharp=2.0)
    scores = []
    for temperature in np.exp(GRID):
        p = probabilities(logits, temperature)
        scores.append(expected_calibration_error(p.max(1), p.argmax(1) == y))
    assert fit_temperature(logits, y) == pytest.approx(np.exp(GRID[int(np.argmin(scores))]))


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 60),
    K=st.sampled_from([2, 3, 10, 20, 40]),
    sharp=st.sampled_from([0.01, 0.3, 1.0, 4.0, 30.0, 1000.0]),
    right=st.sampled_from([0.0, 1.5, 50.0]),
    equal=st.booleans(),
    criterion=st.sampled_from(["ece", "nll"]),
)
def test_the_temperature_is_that_of_the_whole_grid_to_the_bit(seed, n, K, sharp, right, equal, criterion):
    """Sure and unsure, right and wrong models, and rows of equal logits, whose confidence lies at the edge of a bin."""
    rng = np.random.default_rng(seed)
    y = rng.integers(K, size=n)
    logits = ((rng.normal(size=(n, K)) + right * np.eye(K)[y]) * sharp).astype(np.float32)
    if equal:
        logits[rng.random(n) < 0.5] = 1.0
    assert fit_temperature(logits, y, criterion) == grid_temperature(logits, y, criterion)


def test_the_bounds_hold_every_point_of_the_grid_and_name_few_as_the_minimum():
    logits, y = model(300, 500, 1)
    correct = logits.argmax(1) == y

    def score(totals, temperature):
        return expected_calibration_error(1 / totals, correct)

    low, high = calibration._bounds(logits, score, True)
    exact = grid_scores(logits, y, "ece")
    assert (low <= exact).all() and (exact <= high).all()
    assert (high - low).max() < 1e-9
    assert (low <= high.min() + 1e-12).sum() <= 2


def test_rows_on_the_edge_of_a_bin_are_counted_in_theirs():
    """Four equal logits give 1 / 4, twenty give 1 / 20: interpolated, each might fall to either side."""
    logits = np.full((30, 25), -1e4, np.float32)
    logits[:15, :4] = 0
    logits[15:, :20] = 0
    logits[::7] = np.random.default_rng(0).normal(size=(5, 25))
    y = np.arange(30) % 4
    assert fit_temperature(logits, y) == grid_temperature(logits, y)


def test_nll_is_the_other_criterion():
    logits, y = noisy_logits()
    best = fit_temperature(logits, y, "nll")
    losses = [log_loss(y, probabilities(logits, best * f)) for f in (0.98, 1.0, 1.02)]
    assert np.argmin(losses) == 1


def test_without_calibration_the_temperature_is_one():
    assert fit_temperature(*noisy_logits(), "none") == 1.0


def test_ties_break_towards_one():
    # one image, two classes, all logits equal: every temperature gives confidence 1/2
    assert fit_temperature(np.zeros((4, 2), np.float32), np.array([0, 1, 0, 1])) == 1.0


def test_an_optimum_at_the_edge_is_warned_of(caplog):
    logits = np.array([[1.0, 0.0], [0.0, 1.0]], np.float32)  # always right: the colder the better
    with caplog.at_level(logging.WARNING, "odst"):
        assert fit_temperature(logits, np.array([0, 1])) == pytest.approx(np.exp(-3))
    assert "edge" in caplog.text


def test_log_odds_are_the_logit_of_the_probability():
    logits, _ = noisy_logits(sharp=1.0)
    p = probabilities(logits, 1.3)
    assert np.allclose(log_odds(logits, 1.3), np.log(p) - np.log1p(-p))
    c, top = top_log_odds(logits, 1.3)
    assert np.array_equal(c, logits.argmax(1))
    assert np.allclose(top, log_odds(logits, 1.3).max(1))


def test_log_odds_still_rank_where_probabilities_saturate():
    logits = np.array([[40, 0, 0], [50, 0, 0], [45, 0, 0]], np.float32)
    assert (probabilities(logits, 0.05).astype(np.float32).max(1) == 1).all()
    for odds in (top_log_odds(logits, 0.05)[1], log_odds(logits, 0.05)[:, 0]):
        assert np.array_equal(np.argsort(odds), [0, 2, 1])
