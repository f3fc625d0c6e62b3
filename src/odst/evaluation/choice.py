"""Which model of a run to use: its best round, or the one that has seen the labelled images alone."""

from dataclasses import dataclass

import numpy as np

from odst.evaluation.metrics import wrong
from odst.evaluation.scoring import FEW, Scored, aware, best_round, mean_and_error

BETTER, WORSE = "better by more than a standard error", "worse by more than a standard error"
UNCLEAR, TOO_FEW = "no clear difference", "too few to tell"


@dataclass(frozen=True)
class Choice:
    round: int  # the best of the rounds
    alone: bool  # labels alone are to be used instead
    verdict: str | None = None  # on that round against labels alone, on val_in; None without these


def choose(rounds: list[Scored], alone: Scored | None, y: np.ndarray, *, holds: bool = True) -> Choice:
    """The best round; where labels alone stand beside it, the latest that is as good: no worse than it by more than one paired
    standard error of the val_error, and no less aware.

    Labels alone are used where that round is worse than they are by more than one standard error. Where no weight of the
    rest `holds`, it must be better by that much.
    """
    best = best_round([one.metrics for one in rounds])
    if alone is None:
        return Choice(best, alone=False)

    def worse(one: Scored, other: Scored) -> tuple[float, float]:
        return mean_and_error(wrong(one.logits["val_in"], y) - wrong(other.logits["val_in"], y))

    for t in range(len(rounds) - 1, best, -1):
        more, error = worse(rounds[t], rounds[best])
        if more <= error and aware(rounds[best].metrics, rounds[t].metrics):
            best = t
            break
    more, error = worse(rounds[best], alone)
    return Choice(best, more > error if holds else more >= -error, verdict(more, error, len(y)))


def verdict(worse: float, error: float, n: int) -> str:
    """On a few images even two standard errors may be chance, and less says nothing."""
    if abs(worse) <= (2 if n < FEW else 1) * error or worse == 0:
        return TOO_FEW if n < FEW else UNCLEAR
    return WORSE if worse > 0 else BETTER
