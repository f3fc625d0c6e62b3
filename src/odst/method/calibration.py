"""A) Calibrate: the temperature that minimises the expected calibration error on val_in."""

import logging
from collections.abc import Callable, Iterator
from functools import cache

import numpy as np

log = logging.getLogger("odst")

GRID = np.linspace(-3, 1, 2001)  # natural log of the temperature; 0, that is T = 1, is one of them
BINS = 20
TIED = 1e-12  # scores that differ by no more are one
NODES = 56  # temperatures at which totals are worked out in full
RHO = 2.056  # of Bernstein's ellipse: see `_interpolation`
SUMMED = (
    1e-13  # rounding of an interpolated total, relative to the row's largest: more than (m + 20) 2^-53 Lebesgue's 3.6
)
ROUNDED = 1e-13  # of the sum over images: a hundred times what is seen
CACHED = 1 << 16  # numbers


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
    """The grid's minimiser of `ece`, or of `nll`; `none` keeps T = 1. Ties break towards T = 1, since the ECE is flat.

    Few points of the grid are worked out in full: the totals in between are interpolated, with a bound on the error that
    says which points can be the minimum.
    """
    if criterion == "none":
        return 1.0
    logits = np.asarray(logits)
    rows = np.arange(len(y))
    own = logits[rows, y].astype(np.float64) - logits.max(axis=1)
    correct = logits.argmax(axis=1) == y

    def score(totals: np.ndarray, temperature: float) -> float:
        if criterion == "ece":
            return expected_calibration_error(1 / totals, correct)
        return float((np.log(totals) - own / temperature).mean())

    low, high = _bounds(logits, score, criterion == "ece")
    candidates = np.flatnonzero(low <= high.min() + TIED)
    candidates = candidates[
        np.argsort(np.abs(GRID[candidates]), kind="stable")
    ]  # in the order in which a tie is broken
    sure = high[candidates] <= low.min() + TIED
    if sure[0]:
        best = int(candidates[0])
    else:
        exact = np.array([score(softmax_totals(logits, np.exp(GRID[i])), np.exp(GRID[i])) for i in candidates])
        best = int(candidates[np.flatnonzero(exact <= exact.min() + TIED)[0]])
    if warn and best in (0, len(GRID) - 1):
        log.warning(
            "calibration: the best temperature, %.3f, lies at the edge of the grid: %s.",
            np.exp(GRID[best]),
            "val_in is hardly ever wrong, or too small"
            if best == 0
            else "the model is sure and wrong, or val_in too small",
        )
    return float(np.exp(GRID[best]))


def softmax_totals(logits: np.ndarray, temperature: float) -> np.ndarray:
    """(n,) 1 / confidence: of each row the sum of exp((logit - its largest) / temperature) in float64."""
    totals = np.empty(len(logits))
    for block, z in _gaps(logits):
        totals[block] = np.exp(z / temperature).sum(axis=1)
    return totals


def _gaps(logits: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
    """Logits minus their row's largest, in float64, a few rows at a time: as many as the cache holds."""
    few = max(1, CACHED // logits.shape[1])
    for start in range(0, len(logits), few):
        block = slice(start, start + few)
        z = logits[block].astype(np.float64)
        yield block, z - z.max(axis=1, keepdims=True)


def _bounds(
    logits: np.ndarray, score: Callable[[np.ndarray, float], float], binned: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Of every point of the grid a lower and an upper bound on its score."""
    nodes, weights = _interpolation()
    known = np.empty((len(logits), len(nodes)))
    for block, z in _gaps(logits):
        known[block] = np.stack([np.exp(z / temperature).sum(axis=1) for temperature in np.exp(nodes)], axis=1)
    slack = SUMMED * known.max(axis=1) + 4 * logits.shape[1] * RHO**-NODES / (RHO - 1)  # of a row's totals, at any T
    low, high = np.empty(len(GRID)), np.empty(len(GRID))
    for i, temperature in enumerate(np.exp(GRID)):
        totals = np.maximum(known @ weights[i], 1.0)
        error = slack / np.maximum(totals - slack, 1.0) ** (2 if binned else 1)  # of 1 / total, of its logarithm
        if binned:  # what lies at the edge of a bin is worked out, or the image might be counted in the wrong one
            place = BINS / totals
            edge = np.flatnonzero((np.abs(place - place.round()) <= BINS * error) & (place.round() < BINS))
            if len(edge):
                totals[edge], error[edge] = softmax_totals(logits[edge], temperature), 0
        found, error = score(totals, temperature), error.mean() + ROUNDED
        low[i], high[i] = found - error, found + error
    return low, high


@cache
def _interpolation() -> tuple[np.ndarray, np.ndarray]:
    """Chebyshev's points on the grid's interval of log T, and the weights that give each point of the grid from them.

    A term exp(-gap / T) is analytic in log T and at most 1 wherever the imaginary part stays below pi / 2, which holds in
    Bernstein's ellipse of RHO around an interval of length 4: with m points the error of a total of K terms is at most
    4 K RHO^-m / (RHO - 1), whatever the gaps are (Trefethen, Approximation Theory, ch. 8). The rest is rounding.
    """
    k = np.arange(NODES)
    angles = (2 * k + 1) * np.pi / (2 * NODES)
    middle, half = (GRID[-1] + GRID[0]) / 2, (GRID[-1] - GRID[0]) / 2
    nodes = middle + half * np.cos(angles)
    barycentric = np.where(k % 2, -1.0, 1.0) * np.sin(angles)
    distance = GRID[:, None] - nodes
    hit = np.abs(distance) < 1e-14
    ratios = barycentric / np.where(hit, 1.0, distance)
    weights = np.where(hit.any(axis=1, keepdims=True), hit.astype(float), ratios / ratios.sum(axis=1, keepdims=True))
    return nodes, weights  # (m,), (2001, m)
