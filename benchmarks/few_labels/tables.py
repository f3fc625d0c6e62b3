"""results.json -> the tables of docs/method.md."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.few_labels.promise import summary
from benchmarks.few_labels.runs import ALONE, AUTO, PAPER, REGRESSION, ST
from benchmarks.few_labels.worlds import CIFAR, PHOTOS, PIXELS
from benchmarks.measuring import table

WORLDS = {
    **{name: f"{name.removesuffix('-rare')}; {one.related:,} of {one.pool:,}" for name, one in CIFAR.items()},
    PHOTOS: "80 photographs; 900 of 3,000",
    PIXELS: "the same by pixels",
}
Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Mean:
    """Over seeds, in percent, with its standard error."""

    value: float
    error: float

    def __str__(self) -> str:
        return f"{self.value:.1f}" + (f" ± {self.error:.1f}" if np.isfinite(self.error) else "")


def mean(values: list[float]) -> Mean:
    percent = 100 * np.array(values)
    return Mean(
        float(percent.mean()), float(percent.std(ddof=1) / np.sqrt(len(percent))) if len(percent) > 1 else np.inf
    )


class Results:
    """Rows looked up by world, method and round; seeds in one order, so that differences are paired."""

    def __init__(self, rows: Rows):
        self.rows = sorted(({"use": False} | row for row in rows), key=lambda row: row["seed"])

    def worlds(self) -> list[str]:
        return [name for name in WORLDS if any(row["world"] == name for row in self.rows)]

    def of(self, world: str, method: str, round_: int | None = None, key: str = "error") -> list[float]:
        """By seed; of the round, or of the last that a seed has."""
        own = [row for row in self.rows if (row["world"], row["method"]) == (world, method)]
        found = {}
        for row in sorted(own, key=lambda row: row["round"]):
            if round_ is None or row["round"] <= round_:  # a run that ended early stands with its last round
                found[row["seed"]] = row[key]
        return list(found.values())

    def used(self, world: str, key: str = "error") -> list[float]:
        return [row[key] for row in self.rows if row["world"] == world and row["use"]]

    def alone_chosen(self, world: str) -> int:
        return sum(row["world"] == world and row["method"] == ALONE and row["use"] for row in self.rows)


def tables(results: dict[str, Any]) -> str:
    """Markdown: the worlds, the promise, and what auto costs elsewhere."""
    found, methods = Results(results["rows"]), (REGRESSION, ALONE, ST, PAPER, AUTO)
    lines = []
    for world in found.worlds():
        used = f"**{mean(found.used(world))}**, {mean(found.used(world, 'od_auroc')).value:.1f}"
        lines.append([WORLDS[world], *(by_round(found, world, method) for method in methods), used])
    parts = [table(["labelled; related of pool", *methods, "the round to use"], lines)]
    if results.get("promise"):
        headings = [
            "world",
            "promised, %",
            "seeds",
            "related, mean %",
            "lowest",
            "seeds below it",
            "seeds with open classes",
        ]
        parts.append(table([*headings, "open classes", "selected"], summary(results["promise"])))
    if results.get("costs"):
        found, lines = Results(results["costs"]), []
        for world, method in dict.fromkeys((row["world"], row["method"]) for row in results["costs"]):
            errors, auroc = mean(found.of(world, method)), mean(found.of(world, method, key="od_auroc"))
            lines.append([world, len(found.of(world, method)), method, by_round(found, world, method), errors, auroc])
        headings = ["world", "seeds", "method", "by round", "third round's error", "third round's OD-AUROC"]
        parts.append(table(headings, lines))
    return "\n\n".join(parts) + "\n"


def by_round(found: Results, world: str, method: str) -> str:
    """The mean error of every round, and the mean OD-AUROC of the last; with its standard error where there is one round."""
    last = max((row["round"] for row in found.rows if (row["world"], row["method"]) == (world, method)), default=None)
    if last is None:
        return "–"
    errors = [mean(found.of(world, method, t)) for t in range(last + 1)]
    shown = str(errors[0]) if last == 0 else " ".join(f"{one.value:.1f}" for one in errors)
    return f"{shown}, {mean(found.of(world, method, key='od_auroc')).value:.1f}"
