"""Measures as pure functions in float64: of the classifier (logits, labels) and of the detector (scores in and out).

A score is the log-odds of the most probable class: it orders images as confidence does and never saturates.
In `auroc`, `aupr_in` and `fpr_at_95_tpr` the in-distribution is positive; the other two are named after their positive.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from odst.errors import UserError
from odst.method.calibration import BINS, expected_calibration_error, probabilities, top_log_odds
from odst.seeds import stream

# --- the classifier -------------------------------------------------------------------------------------------------


def wrong(logits: np.ndarray, y: np.ndarray) -> np.ndarray:
    """1.0 where the most probable class is not y, else 0.0: its mean is the error."""
    return (_finite(logits).argmax(axis=1) != y).astype(np.float64)  # (n,)


def error(logits: np.ndarray, y: np.ndarray) -> float:
    return float(wrong(logits, y).mean())


def nll(logits: np.ndarray, y: np.ndarray, temperature: float = 1.0) -> float:
    """Mean negative log-likelihood, in nats."""
    z = _finite(logits) / temperature
    z -= z.max(axis=1, keepdims=True)
    return float((np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]).mean())


def brier(logits: np.ndarray, y: np.ndarray, temperature: float = 1.0) -> float:
    """Mean squared distance of the probabilities to the one-hot label, summed over classes: between 0 and 2."""
    distance = probabilities(_finite(logits), temperature)
    distance[np.arange(len(y)), y] -= 1
    return float((distance**2).sum(axis=1).mean())


def ece(logits: np.ndarray, y: np.ndarray, temperature: float = 1.0, bins: int = BINS) -> float:
    """The same definition as the calibration step minimises."""
    p = probabilities(_finite(logits), temperature)
    return expected_calibration_error(p.max(axis=1), p.argmax(axis=1) == y, bins)


def confidence_log_odds(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """log(p / (1 - p)) of the most probable class, without ever forming p."""
    return top_log_odds(_finite(logits), temperature)[1]


def _finite(logits: np.ndarray) -> np.ndarray:
    logits = np.asarray(logits, dtype=np.float64)
    bad = int((~np.isfinite(logits)).any(axis=1).sum())
    if bad:
        raise UserError(
            f"logits: {bad} of {len(logits)} rows hold NaN or infinity. "
            "The training has diverged or the features are not finite; lower the learning rate or clean the features."
        )
    return logits


# --- the detector ---------------------------------------------------------------------------------------------------


def auroc(score_in: np.ndarray, score_out: np.ndarray) -> float:
    """The chance that a random in-image scores above a random out-image; a tie counts half. Exact, by ranks."""
    return _auroc_of_levels(*_levels(score_in, score_out))


def fpr_at_95_tpr(score_in: np.ndarray, score_out: np.ndarray) -> float:
    """Share of out-images accepted (score at or above t) at the largest t that accepts 95 % of the in-images."""
    needed = -(-95 * len(score_in) // 100)  # ceil in integers: 0.95 n in floats can land a hair above a whole number
    t = np.sort(score_in)[len(score_in) - needed]
    return float((score_out >= t).mean())


def fpr_at_95_tpr_out_positive(score_in: np.ndarray, score_out: np.ndarray) -> float:
    """The mirrored convention: share of in-images rejected at the smallest t that rejects 95 % of the out-images."""
    return fpr_at_95_tpr(-score_out, -score_in)


def aupr_in(score_in: np.ndarray, score_out: np.ndarray) -> float:
    """Average precision of finding the in-images: the sum over distinct scores of precision times gain in recall."""
    n_in, n_out = _counts(*_levels(score_in, score_out))
    found, taken = np.cumsum(n_in[::-1]), np.cumsum((n_in + n_out)[::-1])
    return float((found / taken) @ n_in[::-1] / len(score_in))


def aupr_out(score_in: np.ndarray, score_out: np.ndarray) -> float:
    return aupr_in(-score_out, -score_in)


def _levels(score_in: np.ndarray, score_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each score's rank among the distinct scores of both sets. Resampling may then count instead of sorting."""
    scores = np.concatenate([score_in, score_out]).astype(np.float64)
    assert not np.isnan(scores).any(), "a NaN score has no rank"
    levels = np.unique(scores, return_inverse=True)[1].reshape(-1)
    return levels[: len(score_in)], levels[len(score_in) :]


def _counts(level_in: np.ndarray, level_out: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    size = max(level_in.max(), level_out.max()) + 1
    return np.bincount(level_in, minlength=size), np.bincount(level_out, minlength=size)


def _auroc_of_levels(level_in: np.ndarray, level_out: np.ndarray) -> float:
    n_in, n_out = _counts(level_in, level_out)
    twice_below = 2 * np.cumsum(n_out) - n_out  # below count twice, equals once: whole numbers until the last division
    return float(n_in @ twice_below / (2 * len(level_in) * len(level_out)))


# --- intervals ------------------------------------------------------------------------------------------------------


def bootstrap(
    statistic: Callable[..., float], *samples: np.ndarray, seed: int, n: int = 1000, level: float = 0.95
) -> tuple[float, float]:
    """The percentile interval of `statistic(*samples)`, each sample drawn anew with replacement on its own."""
    rng = stream(seed, "bootstrap")
    values = [statistic(*(x[rng.integers(len(x), size=len(x))] for x in samples)) for _ in range(n)]
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def error_interval(logits: np.ndarray, y: np.ndarray, *, seed: int, n: int = 1000) -> tuple[float, float]:
    return bootstrap(np.mean, wrong(logits, y), seed=seed, n=n)


def auroc_interval(score_in: np.ndarray, score_out: np.ndarray, *, seed: int, n: int = 1000) -> tuple[float, float]:
    return bootstrap(_auroc_of_levels, *_levels(score_in, score_out), seed=seed, n=n)


# --- by name --------------------------------------------------------------------------------------------------------


def classifier_measures(logits: np.ndarray, y: np.ndarray, temperature: float, *, seed: int) -> dict[str, Any]:
    """What is known of a labelled set, ready for JSON."""
    return {
        "error": error(logits, y),
        "error_interval": list(error_interval(logits, y, seed=seed)),
        "ece": ece(logits, y, temperature),
        "nll": nll(logits, y, temperature),
        "brier": brier(logits, y, temperature),
    }


def detector_measures(
    logits_in: np.ndarray, logits_out: np.ndarray, temperature: float, *, seed: int
) -> dict[str, Any]:
    """What is known of a labelled set against an out-distribution set, ready for JSON."""
    score_in, score_out = confidence_log_odds(logits_in, temperature), confidence_log_odds(logits_out, temperature)
    return {
        "auroc": auroc(score_in, score_out),
        "auroc_interval": list(auroc_interval(score_in, score_out, seed=seed)),
        "fpr_at_95_tpr": fpr_at_95_tpr(score_in, score_out),
        "fpr_at_95_tpr_out_positive": fpr_at_95_tpr_out_positive(score_in, score_out),
        "aupr_in": aupr_in(score_in, score_out),
        "aupr_out": aupr_out(score_in, score_out),
    }
