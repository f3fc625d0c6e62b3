"""Which model of a run to use: its best round, or the one that has seen the labelled images alone."""

from dataclasses import dataclass

import numpy as np

from odst.evaluation.metrics import wrong
from odst.evaluation.scoring import FEW, Scored, best_round, mean_and_error

BETTER, WORSE = "better by more than a standard error", "worse by more than a standard error"
UNCLEAR, TOO_FEW = "no clear difference", "too few to tell"


@dataclass(frozen=True)
class Choice:
    round: int  # the best of the rounds
    alone: bool  # labels alone are to be used instead
    verdict: str | None = None  # on that round against labels alone, on val_in; None without these


def choose(rounds: list[Scored], alone: Scored | None, y: np.ndarray, *, holds: bool = True) -> Choice:
    """The best round; labels alone where its val_error is worse than theirs by more than one paired standard error. Where
    no weight of the rest `holds`, the round must be better by that much."""
    best = best_round([one.metrics for one in rounds])
    if alone is None:
        return Choice(best, alone=False)
    worse, error = mean_and_error(wrong(rounds[best].logits["val_in"], y) - wrong(alone.logits["val_in"], y))
    return Choice(best, worse > error if holds else worse >= -error, verdict(worse, error, len(y)))


def verdict(worse: float, error: float, n: int) -> str:
    """On a few images even two standard errors may be chance, and less says nothing."""
    if abs(worse) <= (2 if n < FEW else 1) * error or worse == 0:
        return TOO_FEW if n < FEW else UNCLEAR
    return WORSE if worse > 0 else BETTER
