"""The precision contract: what the thresholds of each class keep on images that did not set them.

In sample the precision is at least alpha by construction, so it says nothing. Here each half of the validation sets is
judged by the thresholds of the other half, and the counts carry exact binomial (Clopper-Pearson) intervals.
"""

from dataclasses import dataclass
from math import ceil, inf, log

import numpy as np
from scipy.special import betaincinv

from odst.errors import UserError
from odst.method.calibration import log_odds
from odst.method.selection import thresholds
from odst.seeds import stream

DOUBT = 0.05  # of a one-sided statement; the two-sided intervals leave half of it on either side


@dataclass(frozen=True)
class ClassContract:
    """One class: images above the other half's threshold, over both halves. A closed class has none above."""

    in_above: int  # of val_in
    in_right: int  # of which of the class
    out_above: int  # of val_out
    out_total: int  # 0 without a val_out

    @property
    def precision(self) -> float | None:
        return self.in_right / self.in_above if self.in_above else None

    @property
    def precision_interval(self) -> tuple[float, float]:
        return interval(self.in_right, self.in_above)

    @property
    def out_rate(self) -> float | None:
        return self.out_above / self.out_total if self.out_total else None

    @property
    def out_rate_interval(self) -> tuple[float, float]:
        return interval(self.out_above, self.out_total)


def contract(
    logits_in: np.ndarray,
    y: np.ndarray,
    logits_out: np.ndarray | None,
    temperature: float,
    alpha_in: float | None,
    alpha_out: float | None,
    *,
    seed: int,
) -> list[ClassContract]:
    """One row per class. An alpha of None means that the method does without that threshold; its rate is still counted.

    The temperature is the round's own, fitted on all of val_in: one number, against two thresholds a class.
    """
    for name, images in (("val_in", logits_in), ("val_out", logits_out)):
        if images is not None and len(images) < 2:
            raise UserError(
                f"{name}: {len(images)} image cannot be split into two halves. Give at least 2; 1,500 is better."
            )
    K = logits_in.shape[1]
    rng = stream(seed, "contract")
    # halves with every class (almost) evenly in both: shuffle, then deal out class by class
    shuffled = rng.permutation(len(y))
    dealt = shuffled[np.argsort(y[shuffled], kind="stable")]
    halves_in = dealt[::2], dealt[1::2]
    halves_out = None if logits_out is None else np.array_split(rng.permutation(len(logits_out)), 2)
    counts = np.zeros((4, K), np.int64)
    for setting, judged in ((0, 1), (1, 0)):
        rows = halves_in[setting]
        out = None if logits_out is None or halves_out is None else logits_out[halves_out[setting]]
        tau = thresholds(logits_in[rows], y[rows], out, temperature, alpha_in, alpha_out).tau
        rows = halves_in[judged]
        above = log_odds(logits_in[rows], temperature) > tau
        counts[0] += above.sum(axis=0)
        counts[1] += (above & (y[rows, None] == np.arange(K))).sum(axis=0)
        if logits_out is not None and halves_out is not None:
            counts[2] += (log_odds(logits_out[halves_out[judged]], temperature) > tau).sum(axis=0)
            counts[3] += len(halves_out[judged])
    return [ClassContract(*map(int, column)) for column in counts.T]


def shortfalls(rows: list[ClassContract], alpha_in: float | None, alpha_out: float | None) -> list[str]:
    """A plain sentence where val_in, or val_out, is too small to certify its alpha even without a single error."""
    sentences = []
    if alpha_in is not None:
        short = [row.in_above for row in rows if row.in_above < needed(alpha_in)]
        if short:
            sentences.append(
                f"val_in is too small to certify a precision of {_percent(alpha_in)}: that takes "
                f"{_count(needed(alpha_in))} above a class's threshold without an error (95 % one-sided), "
                f"and {len(short)} of {len(rows)} classes have fewer, the smallest {min(short):,}."
            )
    if alpha_out is not None and rows and rows[0].out_total < needed(alpha_out):
        sentences.append(
            f"val_out is too small to certify an out-rate of {_percent(1 - alpha_out)}: that takes "
            f"{_count(needed(alpha_out))} with none above the threshold (95 % one-sided), "
            f"and it has {rows[0].out_total:,}."
        )
    return sentences


def needed(alpha: float) -> float:
    """How many images without a single error certify a rate of alpha, 95 % one-sided: alpha^n <= 0.05."""
    return ceil(log(DOUBT) / log(alpha)) if alpha < 1 else inf


def interval(hits: int, n: int) -> tuple[float, float]:
    """The exact two-sided 95 % interval of Clopper and Pearson for hits out of n; all of [0, 1] for n = 0."""
    return _lower(hits, n), 1 - _lower(n - hits, n)


def _lower(hits: int, n: int) -> float:
    return float(betaincinv(hits, n - hits + 1, DOUBT / 2)) if hits else 0.0


def _percent(share: float) -> str:
    return f"{100 * share:.6g} %"


def _count(n: float) -> str:
    return f"{n:,} images" if n < inf else "infinitely many images"
