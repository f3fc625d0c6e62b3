"""One model against another on the same images: the difference of a measure, with a paired 95 % interval."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from odst.evaluation.metrics import bootstrap, wrong

Z = 1.959964  # the normal distribution's 97.5 % quantile


@dataclass(frozen=True)
class Change:
    """`after` minus `before`, and its interval. It is clear where the interval leaves out 0."""

    before: float
    after: float
    low: float
    high: float

    @property
    def difference(self) -> float:
        return self.after - self.before

    @property
    def clear(self) -> bool:
        return self.low > 0 or self.high < 0


def error_change(before: np.ndarray, after: np.ndarray, y: np.ndarray, *, seed: int) -> Change:
    """Of the error, from the logits of both models on the same images."""
    a, b = wrong(before, y), wrong(after, y)
    return Change(float(a.mean()), float(b.mean()), *bootstrap(np.mean, b - a, seed=seed))


@dataclass(frozen=True)
class Placements:
    """The AUROC as a mean over images (DeLong): where each lies among those of the other set, a tie counting half.

    With several out-sets it is the mean over them. Differences of placements pair two models; no resampling is needed.
    """

    inside: np.ndarray  # per in-image the share of out-images below it, mean over the out-sets
    outside: tuple[np.ndarray, ...]  # per out-image the share of in-images above it

    @property
    def auroc(self) -> float:
        return float(self.inside.mean())

    def spread(self) -> float:
        """The standard error; infinite where a set has a single image, which says nothing of it."""
        if min(len(self.inside), *map(len, self.outside)) < 2:
            return float("inf")
        variance = self.inside.var(ddof=1) / len(self.inside)
        for one in self.outside:
            variance += one.var(ddof=1) / len(one) / len(self.outside) ** 2
        return float(np.sqrt(variance))

    def interval(self) -> tuple[float, float]:
        half = Z * self.spread()
        return max(0.0, self.auroc - half), min(1.0, self.auroc + half)


def placements(score_in: np.ndarray, scores_out: Sequence[np.ndarray]) -> Placements:
    inside = [_share_below(score_in, score_out) for score_out in scores_out]
    outside = tuple(1 - _share_below(score_out, score_in) for score_out in scores_out)
    return Placements(np.mean(inside, axis=0), outside)


def _share_below(scores: np.ndarray, others: np.ndarray) -> np.ndarray:
    ranked = np.sort(others)
    twice = np.searchsorted(ranked, scores, side="left") + np.searchsorted(ranked, scores, side="right")
    return twice / (2 * len(ranked))


def paired_spread(before: Placements, after: Placements) -> float:
    """The standard error of the difference of their AUROC, on the same images."""
    pairs = zip(before.outside, after.outside, strict=True)
    return Placements(after.inside - before.inside, tuple(b - a for a, b in pairs)).spread()


def auroc_change(before: Placements, after: Placements) -> Change:
    half = Z * paired_spread(before, after)
    d = after.auroc - before.auroc
    return Change(before.auroc, after.auroc, max(-1.0, d - half), min(1.0, d + half))
