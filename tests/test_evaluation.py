"""Measures against brute force and scikit-learn."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest
from sklearn.metrics import average_precision_score, log_loss, roc_auc_score, roc_curve

from odst.errors import UserError
from odst.evaluation import metrics
from odst.evaluation.contract import ClassContract, contract, interval, needed, shortfalls
from odst.method.calibration import expected_calibration_error
from odst.method.selection import thresholds
from odst.seeds import stream

scores = st.lists(st.integers(-4, 4), min_size=1, max_size=40).map(lambda v: np.array(v, np.float64))


def as_sklearn(score_in: np.ndarray, score_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    truth = np.concatenate([np.ones(len(score_in)), np.zeros(len(score_out))])
    return truth, np.concatenate([score_in, score_out])


def some_logits(n: int = 500, K: int = 7, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = stream(seed, "test")
    y = rng.integers(K, size=n)
    return (rng.normal(size=(n, K)) + 2 * np.eye(K)[y]).astype(np.float32), y


# --- the detector


@given(scores, scores)
@settings(deadline=None, max_examples=100)
def test_auroc_counts_every_pair_with_ties_as_half(score_in: np.ndarray, score_out: np.ndarray) -> None:
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in score_in for b in score_out]
    assert metrics.auroc(score_in, score_out) == pytest.approx(np.mean(pairs), abs=1e-15)


@given(scores, scores)
@settings(deadline=None, max_examples=100)
def test_detection_measures_agree_with_scikit_learn(score_in: np.ndarray, score_out: np.ndarray) -> None:
    truth, score = as_sklearn(score_in, score_out)
    assert metrics.auroc(score_in, score_out) == pytest.approx(roc_auc_score(truth, score), abs=1e-12)
    assert metrics.aupr_in(score_in, score_out) == pytest.approx(average_precision_score(truth, score), abs=1e-12)
    assert metrics.aupr_out(score_in, score_out) == pytest.approx(average_precision_score(1 - truth, -score), abs=1e-12)
    fpr, tpr, _ = roc_curve(truth, score, drop_intermediate=False)
    assert metrics.fpr_at_95_tpr(score_in, score_out) == fpr[np.argmax(tpr >= 0.95 - 1e-12)]
    fpr, tpr, _ = roc_curve(1 - truth, -score, drop_intermediate=False)
    assert metrics.fpr_at_95_tpr_out_positive(score_in, score_out) == fpr[np.argmax(tpr >= 0.95 - 1e-12)]


def test_the_two_fpr95_conventions_differ_on_skewed_scores() -> None:
    score_in = np.arange(100.0)  # the lowest 5 are the ones to lose
    score_out = np.concatenate([np.full(90, -1.0), np.full(10, 50.5)])
    assert metrics.fpr_at_95_tpr(score_in, score_out) == 0.10
    assert metrics.fpr_at_95_tpr_out_positive(score_in, score_out) == 0.51


def test_auroc_sees_differences_that_float32_probabilities_lose() -> None:
    logits_in = np.array([[40.0, 0.0]], np.float32)
    logits_out = np.array([[30.0, 0.0]], np.float32)
    p_in, p_out = (1 / (1 + np.exp(-z[:, 0])) for z in (logits_in, logits_out))
    assert metrics.auroc(p_in, p_out) == 0.5
    assert metrics.auroc(metrics.confidence_log_odds(logits_in), metrics.confidence_log_odds(logits_out)) == 1.0


# --- the classifier


def test_classifier_measures_agree_with_brute_force_and_scikit_learn() -> None:
    logits, y = some_logits()
    z = logits.astype(np.float64) / 1.7
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    assert metrics.error(logits, y) == np.mean([p[i].argmax() != y[i] for i in range(len(y))])
    assert metrics.nll(logits, y, 1.7) == pytest.approx(log_loss(y, p), abs=1e-12)
    assert metrics.brier(logits, y, 1.7) == pytest.approx(
        np.mean([sum((p[i, c] - (c == y[i])) ** 2 for c in range(7)) for i in range(len(y))]), abs=1e-12
    )
    top = p.max(axis=1)
    assert metrics.confidence_log_odds(logits, 1.7) == pytest.approx(np.log(top / (1 - top)), abs=1e-9)
    expected = 0.0
    for j in range(20):
        inside = (top > j / 20) & (top <= (j + 1) / 20)
        if inside.any():
            expected += inside.mean() * abs((p.argmax(axis=1) == y)[inside].mean() - top[inside].mean())
    assert metrics.ece(logits, y, 1.7) == pytest.approx(expected, abs=1e-12)


def test_ece_of_a_table_whose_top_bin_alone_is_wrong_is_that_bins_gap() -> None:
    confidence = np.repeat([0.55, 0.75, 1.0], 100)
    correct = np.concatenate([np.arange(100) < 55, np.arange(100) < 75, np.arange(100) < 40])
    assert expected_calibration_error(confidence, correct) == pytest.approx(0.6 / 3, abs=1e-12)


def test_a_confidence_on_a_bin_edge_belongs_to_the_bin_below() -> None:
    confidence, correct = np.array([0.85, 0.90]), np.array([False, True])  # bins (0.80, 0.85] and (0.85, 0.90]
    assert expected_calibration_error(confidence, correct) == pytest.approx((0.85 + 0.10) / 2, abs=1e-12)
    confidence = np.array([0.86, 0.90])  # one bin: the gaps cancel before the absolute value
    assert expected_calibration_error(confidence, correct) == pytest.approx(0.76 / 2, abs=1e-12)


def test_logits_that_are_not_finite_are_refused_in_one_line() -> None:
    logits, y = some_logits(n=4)
    logits[2, 1] = np.nan
    with pytest.raises(UserError, match=r"1 of 4 rows.*lower the learning rate"):
        metrics.error(logits, y)


# --- intervals


def test_bootstrap_intervals_have_the_width_of_theory() -> None:
    wrong = np.arange(2000) < 200
    low, high = metrics.bootstrap(np.mean, wrong, seed=0)
    half = 1.96 * np.sqrt(0.1 * 0.9 / 2000)
    assert low == pytest.approx(0.1 - half, abs=0.1 * half)
    assert high == pytest.approx(0.1 + half, abs=0.1 * half)


def test_the_auroc_interval_is_that_of_resampling_scores() -> None:
    rng = stream(1, "test")
    score_in, score_out = rng.normal(1, 1, 200).round(1), rng.normal(0, 1, 150).round(1)
    fast = metrics.auroc_interval(score_in, score_out, seed=3, n=100)
    assert fast == metrics.bootstrap(metrics.auroc, score_in, score_out, seed=3, n=100)
    assert fast[0] < metrics.auroc(score_in, score_out) < fast[1]
    assert fast != metrics.auroc_interval(score_in, score_out, seed=4, n=100)


def test_the_error_interval_holds_the_error() -> None:
    logits, y = some_logits()
    low, high = metrics.error_interval(logits, y, seed=0)
    assert low < metrics.error(logits, y) < high
    assert (low, high) == metrics.error_interval(logits, y, seed=0)


def test_the_measures_of_a_set_are_named() -> None:
    logits, y = some_logits()
    out = some_logits(seed=1)[0] / 3
    inside = metrics.classifier_measures(logits, y, 1.3, seed=0)
    assert inside["error"] == metrics.error(logits, y)
    assert inside["ece"] == metrics.ece(logits, y, 1.3) != metrics.ece(logits, y)
    assert inside["error_interval"] == list(metrics.error_interval(logits, y, seed=0))
    outside = metrics.detector_measures(logits, out, 1.3, seed=0)
    score_in, score_out = metrics.confidence_log_odds(logits, 1.3), metrics.confidence_log_odds(out, 1.3)
    assert outside["auroc"] == metrics.auroc(score_in, score_out) > 0.5
    assert outside["fpr_at_95_tpr_out_positive"] == metrics.fpr_at_95_tpr_out_positive(score_in, score_out)
    assert json.loads(json.dumps(inside | outside)) == inside | outside


# --- the precision contract


def open_world(n: int, K: int = 3, seed: int = 0, sharp: float = 3.0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Logits and labels of task images, and logits of unrelated ones, which look like the task now and then."""
    rng = stream(seed, "world")
    y = rng.integers(K, size=n)
    logits_in = rng.normal(size=(n, K)) + sharp * np.eye(K)[y]
    logits_out = (
        rng.normal(size=(n, K)) + rng.choice([0, sharp], p=[0.9, 0.1], size=(n, 1)) * np.eye(K)[rng.integers(K, size=n)]
    )
    return logits_in, y, logits_out


@given(st.integers(0, 60), st.integers(1, 60))
@settings(deadline=None, max_examples=50)
def test_the_interval_is_clopper_and_pearsons(hits: int, more: int) -> None:
    exact = binomtest(hits, hits + more).proportion_ci(0.95, method="exact")
    assert interval(hits, hits + more) == pytest.approx((exact.low, exact.high), abs=1e-9)


def test_a_contract_counts_every_image_once_at_the_other_halfs_threshold() -> None:
    """Images are sure or unsure: any half sets its thresholds at the unsure value, and only the sure ones pass."""
    sure, unsure = np.array([5.0, 0.0]), np.array([1.0, 0.0])
    logits_in = np.array([sure] * 97 + [sure] * 3 + [unsure] * 60 + [unsure] * 40)
    y = np.array([0] * 97 + [1] * 3 + [0] * 60 + [1] * 40)
    logits_out = np.array([sure] * 50 + [unsure] * 950)
    row, closed = contract(logits_in, y, logits_out, 1.0, 0.9, 0.9, seed=0)
    assert row == ClassContract(in_above=100, in_right=97, out_above=50, out_total=1000)
    assert row.precision == 0.97
    assert row.out_rate == 0.05
    assert closed == ClassContract(in_above=0, in_right=0, out_above=0, out_total=1000)


def test_cross_fitting_sees_what_in_sample_precision_hides() -> None:
    """Pure noise in small sets: in sample every open class keeps alpha, on the other half it is near chance."""
    right = above = 0
    for seed in range(30):
        rng = stream(seed, "noise")
        logits, y = rng.normal(size=(60, 3)), rng.integers(3, size=60)
        in_sample = thresholds(logits, y, None, 1.0, 0.9, None)
        is_open = in_sample.in_above > 0
        assert (in_sample.in_right[is_open] >= 0.9 * in_sample.in_above[is_open]).all()
        rows = contract(logits, y, None, 1.0, 0.9, None, seed=seed)
        right, above = right + sum(r.in_right for r in rows), above + sum(r.in_above for r in rows)
    assert right / above == pytest.approx(1 / 3, abs=0.1)


def test_the_out_rate_of_a_contract_is_near_its_target_on_enough_images() -> None:
    logits_in, y, logits_out = open_world(4000)
    for row in contract(logits_in, y, logits_out, 1.0, None, 0.95, seed=0):
        assert row.out_rate_interval[0] < 0.05 < row.out_rate_interval[1]


def test_a_closed_class_has_no_precision_and_the_widest_interval() -> None:
    logits_in, y, logits_out = open_world(200)
    y = np.where(y == 2, 0, y)  # class 2 never occurs: no threshold reaches any precision
    row = contract(logits_in, y, logits_out, 1.0, 0.9, 0.9, seed=0)[2]
    assert (row.in_above, row.precision, row.precision_interval) == (0, None, (0.0, 1.0))
    assert (row.out_above, row.out_rate) == (0, 0.0)


def test_too_small_validation_sets_are_named_in_a_sentence() -> None:
    assert needed(0.998) == 1497  # "about 1,500"
    assert 0.998**1497 <= 0.05 < 0.998**1496
    small, large = ClassContract(200, 200, 0, 1000), ClassContract(1497, 1497, 0, 1497)
    assert shortfalls([large, large], 0.998, 0.998) == []
    sentence_in, sentence_out = shortfalls([large, small], 0.998, 0.998)[:1] + shortfalls([small], None, 0.998)
    assert sentence_in == (
        "val_in is too small to certify a precision of 99.8 %: that takes 1,497 images above a class's threshold "
        "without an error (95 % one-sided), and 1 of 2 classes have fewer, the smallest 200."
    )
    assert sentence_out == (
        "val_out is too small to certify an out-rate of 0.2 %: that takes 1,497 images with none above the threshold "
        "(95 % one-sided), and it has 1,000."
    )
    assert "infinitely many" in shortfalls([large], 1.0, None)[0]


def test_a_validation_set_that_cannot_be_halved_is_refused() -> None:
    logits_in, y, logits_out = open_world(10)
    with pytest.raises(UserError, match="val_out: 1 image cannot be split"):
        contract(logits_in, y, logits_out[:1], 1.0, 0.9, 0.9, seed=0)
