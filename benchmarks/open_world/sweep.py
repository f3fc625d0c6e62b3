"""What unrelated images cost: the last round of each method with 1,000 labelled and 3,000 related images among ever more
unrelated ones, the area under each curve, and its slope per tenfold more of them."""

from pathlib import Path
from typing import Any

import numpy as np
from scipy.integrate import trapezoid  # numpy 1 has it by another name

from benchmarks.measuring import table
from benchmarks.open_world.tables import cell
from benchmarks.open_world.world import SIDES, SWEEP

ALONE = "labels alone"
MEASURES = {"error": "error, %", "od_auroc": "OD-AUROC, %", "related": "related, %", "correct": "correct, %"}
# Unrelated images from which area and slope are taken: the closed world has no logarithm, and peers have no smaller number
FIRST, PEERS_FIRST = 1_500, 6_000
PEERS = ("fixmatch", "openmatch", "pseudo")

Rows = list[dict[str, Any]]


def swept(rows: Rows) -> bool:
    """Whether any run of the sweep is there."""
    return any(row["share"] in SWEEP for row in rows)


def last_rounds(rows: Rows) -> Rows:
    """The last round of every run of the sweep. Labels alone are the base of st, whatever the pool; so is the bound one run."""
    runs: dict[tuple[str, str, int], Rows] = {}
    for row in rows:
        if row["share"] in SWEEP | SIDES:
            runs.setdefault((row["share"], row["method"], row["seed"]), []).append(row)
    found = [max(own, key=lambda row: row["round"]) for own in runs.values()]
    alone = {row["seed"]: row for row in rows if row["share"] in SWEEP and row["method"] == "st" and row["round"] == 0}
    constant = [row | {"method": ALONE, "related": None, "correct": None} for row in alone.values()]
    constant += [row for row in found if row["method"] == "bound"]
    found = [row for row in found if row["method"] != "bound"]
    return found + [row | {"share": world} for row in constant for world in SWEEP]


def seeds_of(rows: Rows, method: str) -> set[int]:
    """Those from which a method has run in every world that it has run in at all."""
    own = [row for row in rows if row["share"] in SWEEP and row["method"] == method]
    worlds = {row["share"] for row in own}
    by_seed = {seed: {row["share"] for row in own if row["seed"] == seed} for seed in {row["seed"] for row in own}}
    return {seed for seed, run in by_seed.items() if run == worlds}


def curves(rows: Rows, *names: str, key: str = "error") -> list[dict[int, float]]:
    """Of each method its mean by the number of unrelated images, over the seeds that all of these methods share."""
    seeds = set.intersection(*(seeds_of(rows, name) for name in names))
    found: list[dict[int, float]] = [{} for _ in names]
    for name, points in zip(names, found, strict=True):
        for world, unrelated in SWEEP.items():
            own = [row for row in rows if (row["share"], row["method"]) == (world, name) and row["seed"] in seeds]
            values = [row[key] for row in own if row[key] is not None]
            if values:
                points[unrelated] = 100 * float(np.mean(values))
    return found


def area(points: dict[int, float], first: int = FIRST) -> float:
    """The mean height of a curve over log10(unrelated) from the first number up: what it costs on the way."""
    x, y = part(points, first)
    return float(trapezoid(y, x) / (x[-1] - x[0])) if len(x) > 1 else float("nan")


def slope(points: dict[int, float], first: int = FIRST) -> float:
    """Points per tenfold more unrelated images, by least squares."""
    x, y = part(points, first)
    return float(np.polyfit(x, y, 1)[0]) if len(x) > 1 else float("nan")


def part(points: dict[int, float], first: int) -> tuple[np.ndarray, np.ndarray]:
    """A curve from a number up, over the logarithm; empty where it has a gap there."""
    if not {n for n in SWEEP.values() if n >= first} <= points.keys():
        return np.empty(0), np.empty(0)
    return np.log10([n for n in points if n >= first]), np.array([y for n, y in points.items() if n >= first])


def methods(rows: Rows) -> list[str]:
    order = ("odst-auto", "odst", "st", "st-ot", *PEERS, ALONE, "bound")
    here = {row["method"] for row in rows}
    return [method for method in order if method in here]


def sweep_tables(every: Rows) -> str:
    rows = last_rounds(every)
    parts = []
    for key, heading in MEASURES.items():
        lines = []
        for method in methods(rows):
            (points,) = curves(rows, method, key=key)
            if not points:
                continue
            whole = seeds_of(rows, method)  # the curves' seeds, so that a row is of one kind
            own = [row for row in rows if row["method"] == method and row["seed"] in whole and row[key] is not None]
            cells = [cell([row[key] for row in own if row["share"] == world], key) for world in SWEEP]
            figures = []
            for first in (FIRST, PEERS_FIRST):
                figures += [shown(area(points, first), ".1f"), shown(slope(points, first), "+.2f")]
            lines.append([method, *cells, *figures])
        if lines:
            headings = [f"{what} from {first:,}" for first in (FIRST, PEERS_FIRST) for what in ("area", "slope")]
            columns = ["method", *(f"{n:,} unrelated" for n in SWEEP.values()), *headings]
            parts.append(f"**{heading}**\n\n{table(columns, lines)}\n")
    if steps := steps_table(every):
        parts.append(steps)
    if sides := sides_table(rows):
        parts.append(sides)
    return (
        "\n".join(["## 1,000 labelled and 3,000 related images among ever more unrelated ones\n", *parts])
        if parts
        else ""
    )


def steps_table(every: Rows) -> str:
    """How the methods came to their last rounds: means of every measure from the base to the third round, world by world."""
    parts = []
    for key, heading in MEASURES.items():
        lines = []
        for method in methods([row for row in every if row["share"] in SWEEP and row["round"] > 0]):
            seeds = seeds_of(every, method)
            own = [row for row in every if row["method"] == method and row["seed"] in seeds and row[key] is not None]
            cells = []
            for world in SWEEP:
                here = [row for row in own if row["share"] == world]
                rounds = sorted({row["round"] for row in here})
                means = [100 * np.mean([row[key] for row in here if row["round"] == t]) for t in rounds]
                cells.append(" → ".join(f"{value:.1f}" for value in means) or "–")
            lines.append([method, *cells])
        if lines:
            parts.append(
                f"**{heading}, by round**\n\n{table(['method', *(f'{n:,} unrelated' for n in SWEEP.values())], lines)}\n"
            )
    return "\n".join(parts)


def sides_table(rows: Rows) -> str:
    """The last round among as many unrelated images of classes that are like the task's, and of others: error, OD-AUROC, related."""
    lines, keys = [], ("error", "od_auroc", "related")
    for method in methods(rows):
        own = {world: [row for row in rows if (row["share"], row["method"]) == (world, method)] for world in SIDES}
        if any(own.values()):
            cells = [
                ", ".join(cell([r[key] for r in some if r[key] is not None], key) for key in keys) if some else "–"
                for some in own.values()
            ]
            lines.append([method, *cells])
    head = "**6,000 unrelated images near the task's classes and far from them: error, OD-AUROC, related, %**"
    return f"{head}\n\n{table(['method', *SIDES], lines)}\n" if lines else ""


def shown(value: float, form: str) -> str:
    return format(value, form) if np.isfinite(value) else "–"


def draw_sweep(every: Rows, file: Path) -> None:
    if not swept(every):
        return
    import matplotlib.pyplot as plt

    from benchmarks.open_world.figures import COLOURS, save

    rows = last_rounds(every)
    figure, panels = plt.subplots(1, 3, figsize=(12, 3.6), constrained_layout=True)
    ticks = list(range(len(SWEEP)))
    for panel, key in zip(panels, ("error", "od_auroc", "correct"), strict=True):
        for method in methods(rows):
            (points,) = curves(rows, method, key=key)
            if points:
                at = [list(SWEEP.values()).index(n) for n in points]
                style = "--" if method in (ALONE, "bound") else "-"
                panel.plot(at, list(points.values()), style, marker=".", color=COLOURS[method], label=method)
        panel.set_title({"error": "error, % (lower is better)", "od_auroc": "OD-AUROC, % (higher is better)",
                         "correct": "selected with the right class, %"}[key], fontsize=10)  # fmt: skip
        panel.set_xticks(ticks, [f"{n:,}" for n in SWEEP.values()])
        panel.set_xlabel("unrelated images in the pool")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False, fontsize=8)
    save(figure, file)
