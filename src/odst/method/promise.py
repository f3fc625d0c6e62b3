"""C) A promise on the pool: per class the lowest threshold above which at least this share is expected to be related.

The out-quantile bounds a rate: about (1 - alpha) m unrelated images a class lie above it, whatever the class holds. To promise
a share, count: of m pool images at most m (1 + a) / (n_out + 1) unrelated ones are expected above a threshold that a of
n_out unrelated images exceed, and R pool images do. That is Benjamini and Hochberg's procedure on conformal p-values.
"""

from math import ceil

import numpy as np

from odst.method.calibration import top_log_odds
from odst.method.candidates import BLOCK
from odst.method.labelling import Predictions
from odst.method.selection import joint, without

NEAR = 1 + 1e-12  # equal numbers count as equal, however they were rounded


def promised(
    p: Predictions,
    inside: np.ndarray,
    logits_out: np.ndarray,
    promise: float,
    excluded: np.ndarray,
    barred: np.ndarray | None = None,
) -> tuple[np.ndarray, dict[int, str]]:
    """Per class the smallest threshold, not below the in-threshold, with m (1 + a) / (n_out + 1) <= (1 - promise) R: of val_out
    and pool the images above it whose most probable class this is, m the pool without excluded images. +inf where there
    is none; then the second value says what it would take. Of `barred`, (id, class) that a person has ruled out, none can
    be drawn: R does not count them."""
    K, n_out, m = len(inside), len(logits_out), len(p.logits) - len(excluded)
    c_out, odds_out = top_log_odds(logits_out, p.temperature)
    # Between two values of val_out a is the same and R falls: only those values, and the in-threshold, can be the smallest
    bars = [np.unique(np.append(odds_out[(c_out == c) & (odds_out > inside[c])], inside[c])) for c in range(K)]
    above = [np.zeros(len(one) + 1, np.int64) for one in bars]  # pool images by the number of bars they exceed
    ruled_out = joint(barred, K)
    for ids, classes, odds in p.top(inside, BLOCK):
        kept = without(ids, excluded) & without(ids * K + classes, ruled_out)
        for one in range(K):
            rows = kept & (classes == one)
            above[one] += np.bincount(np.searchsorted(bars[one], odds[rows]), minlength=len(bars[one]) + 1)
    tau, says = np.full(K, np.inf), {}
    for c in range(K):
        if inside[c] == np.inf:
            continue  # closed by val_in already
        R = above[c][::-1].cumsum()[::-1][1:]  # above each bar
        a = (odds_out[c_out == c] > bars[c][:, None]).sum(axis=1)
        kept_promise = (R > 0) & (m * (1 + a) / (n_out + 1) <= (1 - promise) * R * NEAR)
        if kept_promise.any():
            tau[c] = bars[c][kept_promise.argmax()]
        else:
            says[c] = _needed(m, int(R[-1]), n_out, promise)
    return tau, says


def _needed(m: int, R: int, n_out: int, promise: float) -> str:
    if R == 0:
        return f"no pool image lies above all {n_out:,} of val_out, and a promise of {promise:g} needs some"
    needed = max(n_out + 1, ceil(m / ((1 - promise) * R) / NEAR - 1))
    return f"a promise of {promise:g} would take at least {needed:,} images of val_out, and {n_out:,} are there"
