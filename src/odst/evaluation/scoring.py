"""A round -> its line in metrics.jsonl, and the verdict on a student: does it harm, which round is best."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from odst.data.images import Data, Pool
from odst.evaluation.metrics import auroc, brier, confidence_log_odds, ece, error, nll, wrong
from odst.evaluation.paired import Placements, paired_spread, placements
from odst.method.calibration import calibrated_losses
from odst.method.labelling import infer
from odst.method.selection import Selection
from odst.rounds import Round

AUROC_SLACK = 0.01  # a student may lose one point of val_od_auroc
NEAR = 1 + 1e-9
FEW = 500  # val_in images: with fewer, one image is too large a step: harm and choice go by the NLL (OD-AUROC: of val_out too)


@dataclass(frozen=True)
class Scored:
    """The numbers of a round and the logits they come from, by set: val_in, val_out, test, out/NAME."""

    metrics: dict[str, Any]
    logits: dict[str, np.ndarray]


def score(round_: Round, data: Data, device: str = "cpu") -> Scored:
    """Error, calibration and detection on val and test sets, and the quality of the selection where the truth is known."""
    temperature = round_.temperature
    logits = {"val_in": round_.logits_in}
    if round_.logits_out is not None:
        logits["val_out"] = round_.logits_out
    if data.test is not None:
        logits["test"] = infer(round_.model, data.test.x, device=device)
    for name, x in data.out_tests.items():
        logits[f"out/{name}"] = infer(round_.model, x, device=device)

    def od_auroc(inside: str, outside: str) -> float | None:
        if inside not in logits or outside not in logits:
            return None
        return auroc(
            confidence_log_odds(logits[inside], temperature), confidence_log_odds(logits[outside], temperature)
        )

    by_set = {name: od_auroc("test", f"out/{name}") for name in data.out_tests} if data.test is not None else {}
    tested = data.test is not None
    y = data.test.y if data.test is not None else np.empty(0)
    metrics: dict[str, Any] = {
        "round": round_.t,
        "val_error": error(logits["val_in"], data.val_in.y),
        "val_od_auroc": od_auroc("val_in", "val_out"),
        "error": error(logits["test"], y) if tested else None,
        "ece": ece(logits["test"], y, temperature) if tested else None,
        "nll": nll(logits["test"], y, temperature) if tested else None,
        "brier": brier(logits["test"], y, temperature) if tested else None,
        "od_auroc": float(np.mean(list(by_set.values()))) if by_set else None,
        "od_auroc_by_set": by_set,
        "temperature": temperature,
    }
    return Scored(metrics | selection_metrics(round_.selection, data.pool, data.classes), logits)


def selection_metrics(I: Selection | None, pool: Pool | None, classes: tuple[str, ...]) -> dict[str, Any]:
    """Of the selection a round was trained on: unique images, images above each threshold, extra copies, and the shares of
    task-related and of correctly labelled images (null for an empty selection or an unknown truth)."""
    if I is None or pool is None:
        return dict.fromkeys(("selected", "above", "repeats", "related", "correct"))
    truth = None if pool.truth is None or len(I) == 0 else pool.truth[I.ids]
    return {
        "selected": len(I),
        "above": {name: int(n) for name, n in zip(classes, I.above, strict=True)},
        "repeats": int((I.copies - 1).sum()),
        "related": None if truth is None else float((truth >= 0).mean()),
        "correct": None if truth is None else float((truth == I.classes).mean()),
    }


def harm(teacher: Scored, student: Scored, y: np.ndarray) -> str | None:
    """What is worse about the student, in words: its val_error by more than one paired standard error (on few images its
    calibrated NLL), or its val_od_auroc by more than a point (on few images also more than a standard error). None where nothing is."""
    worse, error = mean_and_error(losses(student, y) - losses(teacher, y))
    if worse > error and len(y) < FEW:
        return f"the NLL on val_in rose by {worse:.3f}, more than one standard error ({error:.3f})"
    if worse > error:
        return f"val_error rose by {100 * worse:.2f} points, more than one standard error ({100 * error:.2f})"
    if not aware(teacher, student):
        fell = teacher.metrics["val_od_auroc"] - student.metrics["val_od_auroc"]
        few = " and more than one standard error" * (smaller_set(student) < FEW)
        return f"val_od_auroc fell by {100 * fell:.2f} points, more than one{few}"
    return None


def losses(one: Scored, y: np.ndarray) -> np.ndarray:
    """Of each val_in image what harm and the choice of a round go by: whether it is wrong, or with few of them its calibrated
    NLL, which is finer."""
    logits = one.logits["val_in"]
    return calibrated_losses(logits, y) if len(y) < FEW else wrong(logits, y)


def mean_and_error(differences: np.ndarray) -> tuple[float, float]:
    """Of paired differences the mean and its standard error; 0 for a single one, which says nothing of it.

    One more wrong image is exactly one standard error: NEAR makes it no more than that, however the two were rounded.
    """
    n = len(differences)
    return float(differences.mean()), float(NEAR * differences.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0


def best_round(rounds: Sequence[Scored], losses: Sequence[float] | None = None) -> int:
    """The round with the lowest val_error (or loss; of equals the later) among those that do not give up val_od_auroc for it."""
    measured = [one.metrics["val_error"] for one in rounds] if losses is None else losses
    best = 0
    for t in range(1, len(rounds)):
        if measured[t] <= measured[best] and aware(rounds[best], rounds[t]):
            best = t
    return int(rounds[best].metrics["round"])


def aware(before: Scored, after: Scored) -> bool:
    """Whether the later round has not given up more than a point of val_od_auroc; on few images, where that may be a single one,
    nor more than a paired standard error."""
    was, now = before.metrics["val_od_auroc"], after.metrics["val_od_auroc"]
    if now is None or now >= was - AUROC_SLACK:
        return True
    return smaller_set(after) < FEW and bool(was - now <= NEAR * paired_spread(placed(before), placed(after)))


def smaller_set(one: Scored) -> int:
    """The images of the smaller of val_in and val_out."""
    return min(len(one.logits["val_in"]), len(one.logits["val_out"]))


def placed(one: Scored) -> Placements:
    """val_in among val_out, by confidence."""
    inside, outside = (
        confidence_log_odds(one.logits[name], one.metrics["temperature"]) for name in ("val_in", "val_out")
    )
    return placements(inside, [outside])
