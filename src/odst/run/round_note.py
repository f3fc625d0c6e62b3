"""The parts of round.json, the note that closes a round: thresholds both ways, and the selection in numbers."""

from typing import Any

import numpy as np

from odst.method.selection import Selection, Thresholds
from odst.run.selection_file import Teacher


def number_to_json(value: float) -> float | str:
    """JSON has no infinity: "inf" closes a class, "-inf" opens it."""
    return float(value) if np.isfinite(value) else str(value)


def thresholds_to_json(tau: Thresholds, classes: tuple[str, ...]) -> dict[str, Any]:
    return {
        name: {
            "log_odds": number_to_json(tau.tau[c]),
            "in": number_to_json(tau.inside[c]),
            "in_above": int(tau.in_above[c]),
            "in_right": int(tau.in_right[c]),
            "out": number_to_json(tau.outside[c]),
            "out_above": int(tau.out_above[c]),
        }
        for c, name in enumerate(classes)
    }


def thresholds_from_json(values: dict[str, Any]) -> Thresholds:
    def column(key: str, kind: type) -> np.ndarray:
        return np.array([kind(one[key]) for one in values.values()])

    return Thresholds(
        column("in", float),
        column("in_above", int),
        column("in_right", int),
        column("out", float),
        column("out_above", int),
    )


def selection_summary(I: Selection, classes: tuple[str, ...], teacher: Teacher | None) -> dict[str, Any]:
    """`selection` of round.json: the cap, who chose, and per class how many lay above, were used, and stand in I."""
    used = np.bincount(I.classes, minlength=len(classes))
    copies = np.bincount(I.classes, weights=I.copies, minlength=len(classes)).astype(int)
    rows: dict[str, dict[str, Any]] = {
        name: {"above": int(I.above[c]), "used": int(used[c]), "entries": int(copies[c]), "stop": I.stop[c]}
        for c, name in enumerate(classes)
    }
    summary: dict[str, Any] = {"k": I.k, "teacher": None if teacher is None else teacher.round, "classes": rows}
    if I.pick != "top" and I.tau is not None:  # the thresholds of a promise are not the teacher's own
        for c, row in enumerate(rows.values()):
            row["threshold"] = number_to_json(I.tau[c])
        summary["pick"] = I.pick
    return summary
