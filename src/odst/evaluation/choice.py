"""Which model of a run to use: its best round, or the one that has seen the labelled images alone."""

from dataclasses import dataclass

import numpy as np

from odst.evaluation.metrics import wrong
from odst.evaluation.scoring import FEW, Scored, aware, best_round, harm, losses, mean_and_error
from odst.few_labels import not_worse

BETTER, WORSE = "better by more than a standard error", "worse by more than a standard error"
UNCLEAR, TOO_FEW = "no clear difference", "too few to tell"


@dataclass(frozen=True)
class Choice:
    round: int  # the best of the rounds
    alone: bool  # labels alone are to be used instead
    verdict: str | None = None  # on that round against labels alone, on val_in; None without these


def choose(rounds: list[Scored], alone: Scored | None, y: np.ndarray, *, holds: bool = True) -> Choice:
    """The best round that does not harm; where labels alone stand beside it, the latest that is as good: it does not harm, is
    no less aware, and by what harm goes by no worse than the best by more than one paired standard error.

    Labels alone are used where it clearly has more errors than they have. Where that is not clear they are used if no
    weight of the rest `holds`, or if few images show it to be less likely than `auto` allows a base to be.
    """
    harmless = [t for t, one in enumerate(rounds) if t == 0 or harm(rounds[t - 1], one, y) is None]
    kept = [rounds[t] for t in harmless]
    if alone is None:
        return Choice(best_round(kept), alone=False)
    loss = {t: losses(rounds[t], y) for t in harmless}
    best = latest = best_round(kept, [float(loss[t].mean()) for t in harmless])
    for t in harmless:
        more, error = mean_and_error(loss[t] - loss[best])
        if t > best and more <= error and aware(rounds[best], rounds[t]):
            latest = t
    more, error = mean_and_error(wrong(rounds[latest].logits["val_in"], y) - wrong(alone.logits["val_in"], y))
    said = verdict(more, error, len(y))
    doubtful = not holds or (len(y) < FEW and not not_worse(loss[latest], losses(alone, y)))
    return Choice(latest, said == WORSE or (said != BETTER and doubtful), said)


def verdict(worse: float, error: float, n: int) -> str:
    """On a few images even two standard errors may be chance, and less says nothing."""
    if abs(worse) <= (2 if n < FEW else 1) * error or worse == 0:
        return TOO_FEW if n < FEW else UNCLEAR
    return WORSE if worse > 0 else BETTER
