"""What `odst forecast` expected of a run, beside what came out."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from odst.progress import duration
from odst.report.findings import Findings
from odst.run.outlook import read_outlook


@dataclass(frozen=True)
class ClassForesight:
    """One class; None where the run does not know."""

    name: str
    share: list[float]  # lower end, best guess and upper end
    true: float | None  # share of the pool, where its truth is known
    above: int  # the thresholds of the quick base
    found: int | None  # above those of the run's own base, which is another model

    @property
    def held(self) -> bool | None:
        return None if self.true is None else self.share[0] <= self.true <= self.share[2]


@dataclass(frozen=True)
class Foresight:
    classes: list[ClassForesight]
    rounds: list[tuple[int, int | None, int, int | None]]  # round, images expected, at most, and selected
    scanned: int
    sentences: list[str]


def compare_forecast(found: Findings) -> Foresight | None:
    """None for a run that nobody forecast."""
    forecast = read_outlook(found.run)
    if forecast is None:
        return None
    true = _true_shares(found)
    first = next((one.selection for one in found.rounds if one.selection is not None), None)
    classes = []
    for c, name in enumerate(found.classes):
        if (one := forecast["classes"].get(name)) is not None:
            above = None if first is None else first["classes"][name]["above"]
            classes.append(
                ClassForesight(name, one["share"], None if true is None else float(true[c]), one["above"], above)
            )
    selected = {one.t: one.metrics.get("selected") for one in found.rounds}
    rounds = [(one["round"], one["selected"], one["most"], selected.get(one["round"])) for one in forecast["rounds"]]
    return Foresight(classes, rounds, forecast["scanned"], _sentences(found, forecast, classes, true))


def _true_shares(found: Findings) -> np.ndarray | None:
    pool = found.pool
    if pool is None or pool.truth is None:
        return None
    kept = np.delete(pool.truth, pool.excluded)
    return np.bincount(kept + 1, minlength=found.K + 1)[1:] / max(len(kept), 1)


def _sentences(
    found: Findings, forecast: dict[str, Any], classes: list[ClassForesight], true: np.ndarray | None
) -> list[str]:
    worth = {True: "worth it", False: "not worth it", None: "hard to say"}[forecast["worth_it"]]
    low, best, high = (f"{100 * share:.3g} %" for share in forecast["related"])
    sentences = [f"Expected: {best} of the pool related (95 %: {low} to {high}); {worth}: {forecast['why']}."]
    if true is not None:
        held = sum(bool(one.held) for one in classes)
        sentences.append(
            f"In truth {100 * true.sum():.3g} % are; {held} of {len(classes)} classes lie inside their interval."
        )
    spent = sum(seconds for _, seconds, _ in found.run.timings())
    if found.final is not None and spent:
        sentences.append(f"Time: {duration(forecast['seconds'], 0)} expected, {duration(spent, 0)} taken.")
    return sentences
