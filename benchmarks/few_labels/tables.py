"""results.json -> the tables of docs/method.md, and what must hold, each with its number."""

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
    """Markdown: the worlds, the weight, the promise."""
    found = Results(results["rows"])
    lines = []
    for world in found.worlds():
        rounds = [" ".join(f"{mean(found.of(world, m, t)).value:.1f}" for t in range(4)) for m in (ST, PAPER, AUTO)]
        auroc = [f"{mean(found.of(world, m, key='od_auroc')).value:.1f}" for m in (ST, PAPER, AUTO)]
        regression = found.of(world, REGRESSION)
        lines.append([
            WORLDS[world], str(mean(regression)) if regression else "–",
            f"{mean(found.of(world, ALONE))}, {mean(found.of(world, ALONE, key='od_auroc')).value:.1f}",
            *(f"{one}, {od}" for one, od in zip(rounds, auroc, strict=True)),
            f"**{mean(found.used(world))}**, {mean(found.used(world, 'od_auroc')).value:.1f}",
        ])  # fmt: skip
    headings = ["labelled; related of pool", REGRESSION, ALONE, ST, PAPER, AUTO, "the round to use"]
    parts = [table(headings, lines)]
    if results.get("promise"):
        headings = [
            "world",
            "promised, %",
            "seeds",
            "related, mean %",
            "lowest",
            "seeds below",
            "seeds with open classes",
        ]
        parts.append(table([*headings, "open classes", "selected"], summary(results["promise"])))
    if results.get("costs"):
        parts.append(
            table(
                ["world", "seeds", "method", "weight taken", "error by round, %", "OD-AUROC of the last, %"],
                costs(results["costs"]),
            )
        )
    return "\n\n".join(parts) + "\n"


def costs(rows: Rows) -> list[list[str]]:
    """The paper's weight and auto where labels are not that few."""
    found, lines = Results(rows), []
    for world, method in dict.fromkeys((row["world"], row["method"]) for row in rows):
        own = [row for row in rows if (row["world"], row["method"]) == (world, method)]
        rounds = " ".join(f"{mean(found.of(world, method, t)).value:.1f}" for t in range(3))
        weights = ", ".join(sorted({f"{row['rest_weight']:g}" for row in own}))
        last = f"{mean(found.of(world, method))}", str(mean(found.of(world, method, key="od_auroc")))
        lines.append([world, str(len({row["seed"] for row in own})), method, weights, f"{rounds} {last[0]}", last[1]])
    return lines


def ratio(found: Results, world: str) -> tuple[float, float]:
    """The mean error of the round to use over that of labels alone, and its standard error over the seeds."""
    used, alone = np.array(found.used(world)), np.array(found.of(world, ALONE))
    value = float(used.mean() / alone.mean())
    spread = (used - value * alone).std(ddof=1) / np.sqrt(len(used)) / alone.mean() if len(used) > 1 else np.inf
    return value, float(spread)


def conditions(rows: Rows) -> list[tuple[str, bool, str]]:
    """What must hold: the sentence, whether it does, and the number."""
    found = Results(rows)
    worlds, checks = found.worlds(), []

    def check(sentence: str, by_world: dict[str, tuple[bool, str]]) -> None:
        said = "; ".join(f"{name} {number}{'' if fine else ' NOT MET'}" for name, (fine, number) in by_world.items())
        checks.append((sentence, all(fine for fine, _ in by_world.values()), said))

    def difference(one: list[float], other: list[float]) -> Mean:
        return mean(list(np.array(one) - np.array(other)))

    def against(method: str, of: list[str], round_: int | None, used: bool = False) -> dict[str, Mean]:
        return {
            w: difference(found.used(w) if used else found.of(w, AUTO, round_), found.of(w, method, round_)) for w in of
        }

    cifar = [w for w in worlds if w in CIFAR]
    few = [w for w in cifar if CIFAR[w].labelled <= 1000]
    base = against(ALONE, worlds, 0)
    check(
        "auto's base at most 1.5 points above labels alone",
        {w: (d.value <= 1.5, f"{d.value:+.1f}") for w, d in base.items()},
    )
    use = against(ALONE, worlds, None, used=True)
    check(
        "the round to use not above labels alone beyond a standard error",
        {w: (d.value <= d.error, f"{d.value:+.2f} ± {d.error:.2f}") for w, d in use.items()},
    )
    third = {w: difference(found.of(w, AUTO, 3), found.of(w, ALONE)) for w in few}
    check(
        "the third round below labels alone, up to 1,000 labels",
        {w: (d.value < 0, f"{d.value:+.2f} ± {d.error:.2f}") for w, d in third.items()},
    )
    st = against(ST, worlds, 3)
    check(
        "the third round not above st's beyond a standard error",
        {w: (d.value <= d.error, f"{d.value:+.2f} ± {d.error:.2f}") for w, d in st.items()},
    )
    auroc = {w: difference(found.of(w, AUTO, 3, "od_auroc"), found.of(w, ST, 3, "od_auroc")) for w in cifar}
    check(
        "OD-AUROC at least 5 points above st's with CIFAR-100",
        {w: (d.value >= 5, f"{d.value:+.1f}") for w, d in auroc.items()},
    )
    photos = {
        w: difference(found.used(w, "od_auroc"), found.of(w, ALONE, key="od_auroc")) for w in worlds if w not in CIFAR
    }
    check(
        "the photographs' OD-AUROC above that of labels alone",
        {w: (d.value > 0, f"{d.value:+.1f}") for w, d in photos.items()},
    )
    if cifar:
        centre = float(np.exp(np.mean([np.log(ratio(found, w)[0]) for w in cifar])))
        checks.append(
            ("geometric mean of the ratios over the CIFAR worlds at most 0.95", centre <= 0.95, f"{centre:.3f}")
        )
        chosen, runs = sum(found.alone_chosen(w) for w in cifar), sum(len(found.used(w)) for w in cifar)
        checks.append(
            (
                "labels alone the choice in at most a quarter of the CIFAR runs",
                chosen <= runs / 4,
                f"{chosen} of {runs}",
            )
        )
    worst = max(worlds, key=lambda w: ratio(found, w)[0])
    value, spread = ratio(found, worst)
    checks.append(
        (
            "the worst world's ratio at most 1 within its standard error",
            value - spread <= 1,
            f"{worst}: {value:.3f} ± {spread:.3f}",
        )
    )
    return [(sentence, bool(fine), said) for sentence, fine, said in checks if said]
