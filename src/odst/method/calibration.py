"""A) Calibrate: the temperature that minimises the expected calibration error on val_in."""

import logging

import numpy as np

log = logging.getLogger("odst")

GRID = np.linspace(-3, 1, 2001)  # natural log of the temperature; 0, that is T = 1, is one of them
BINS = 20


def probabilities(logits: np.ndarray, temperature: float) -> np.ndarray:
    """Calibrated softmax in float64."""
    z = np.asarray(logits, np.float64) / temperature
    z = np.exp(z - z.max(axis=1, keepdims=True))
    return z / z.sum(axis=1, keepdims=True)  # (n, K)


def top_log_odds(logits: np.ndarray, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """The predicted class and log(p / (1 - p)) of its calibrated probability.

    The same order as the confidence, but it never saturates: with T < 1 a float32 probability becomes a row of ones.
    """
    z = np.asarray(logits, np.float64) / temperature
    c = z.argmax(axis=1)
    rows = np.arange(len(z))
    top = z[rows, c]
    z[rows, c] = -np.inf
    second = z.max(axis=1)
    others = np.exp(z - second[:, None]).sum(axis=1)
    return c, top - second - np.log(others)


def log_odds(logits: np.ndarray, temperature: float) -> np.ndarray:
    """log(p_c / (1 - p_c)) for every class c."""
    p = probabilities(logits, temperature)
    z = np.asarray(logits, np.float64) / temperature
    log_p = z - z.max(axis=1, keepdims=True)
    log_p -= np.log(np.exp(log_p).sum(axis=1, keepdims=True))
    c, top = top_log_odds(logits, temperature)
    p[np.arange(len(p)), c] = 0  # 1 - p cancels only where p is near 1, and that can be the top class alone
    odds = log_p - np.log1p(-p)
    odds[np.arange(len(p)), c] = top
    return odds  # (n, K)


def expected_calibration_error(confidence: np.ndarray, correct: np.ndarray, bins: int = BINS) -> float:
    """Mean over images of |accuracy - confidence| of their bin: equal-width bins (lo, hi], the top one included."""
    place = np.clip(np.ceil(np.asarray(confidence, np.float64) * bins).astype(int) - 1, 0, bins - 1)
    gap = np.bincount(place, weights=np.asarray(correct, np.float64) - confidence, minlength=bins)
    return float(np.abs(gap).sum() / len(place))


def calibrated_losses(logits: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The negative log-likelihood of each image, at the temperature that is best for it."""
    z = np.asarray(logits, np.float64) / fit_temperature(logits, y, "nll", warn=False)
    z = z - z.max(axis=1, keepdims=True)
    losses: np.ndarray = np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]
    return losses


def fit_temperature(logits: np.ndarray, y: np.ndarray, criterion: str = "ece", *, warn: bool = True) -> float:
    """The grid's minimiser of `ece`, or of `nll`; `none` keeps T = 1. Ties break towards T = 1, since the ECE is flat."""
    if criterion == "none":
        return 1.0
    z = np.asarray(logits, np.float64)
    z = z - z.max(axis=1, keepdims=True)
    correct = z.argmax(axis=1) == y
    own = z[np.arange(len(y)), y]
    scores = np.empty(len(GRID))
    for i, temperature in enumerate(np.exp(GRID)):
        total = np.exp(z / temperature).sum(axis=1)
        if criterion == "ece":
            scores[i] = expected_calibration_error(1 / total, correct)
        else:
            scores[i] = (np.log(total) - own / temperature).mean()
    tied = np.flatnonzero(scores <= scores.min() + 1e-12)
    best = tied[np.abs(GRID[tied]).argmin()]
    if warn and best in (0, len(GRID) - 1):
        log.warning(
            "calibration: the best temperature, %.3f, lies at the edge of the grid: %s.",
            np.exp(GRID[best]),
            "val_in is hardly ever wrong, or too small"
            if best == 0
            else "the model is sure and wrong, or val_in too small",
        )
    return float(np.exp(GRID[best]))
