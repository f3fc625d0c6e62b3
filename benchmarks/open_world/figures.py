"""Figures of the 33 % world: the rounds of each method, and what odst and st-ot alone selected."""

from collections import Counter
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
import pyarrow.parquet as pq

from odst.data.pool import open_labels
from odst.files import whole

COLOURS = {
    "odst": "#0b6e4f", "odst-auto": "#58c08f", "st": "#c0392b", "st-ot": "#d68910", "fixmatch": "#2e6fb5", "openmatch": "#7d5ba6",
    "pseudo": "#8c6d5a", "labels alone": "#888888", "bound": "#222222",
}  # fmt: skip
OVER_ROUNDS = ("odst", "odst-auto", "st", "st-ot")
PANELS = {
    "error": "error, % (lower is better)",
    "od_auroc": "OD-AUROC, % (higher is better)",
    "selected": "images selected",
    "correct": "selected with the right class, %",
}


def draw_rounds(rows: list[dict[str, Any]], file: Path) -> None:
    """Means over seeds as lines, the seeds as dots; nothing where none of these has run."""
    if not any(row["share"] == "33" and row["method"] in OVER_ROUNDS for row in rows):
        return
    figure, panels = plt.subplots(1, len(PANELS), figsize=(14, 3.4), constrained_layout=True)
    for panel, (key, title) in zip(panels, PANELS.items(), strict=True):
        for method in OVER_ROUNDS:
            colour = COLOURS[method]
            own = [r for r in rows if (r["share"], r["method"]) == ("33", method) and r[key] is not None]
            scale = 1 if key == "selected" else 100
            for row in own:
                panel.plot(row["round"], scale * row[key], ".", color=colour, alpha=0.4)
            if not own:
                continue
            rounds = sorted({row["round"] for row in own})
            means = [scale * np.mean([row[key] for row in own if row["round"] == t]) for t in rounds]
            panel.plot(rounds, means, color=colour, label=method)
        panel.set_title(title, fontsize=10)
        panel.set_xticks(range(4), ["base", "1", "2", "3"])
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].legend(frameon=False)
    save(figure, file)


def draw_exclusive(runs: dict[str, Path], pool: Path, file: Path, most: int = 14) -> None:
    """What the images are that one run alone selected in its last round, by true name; the pictures are in compare.html."""
    tables = {name: pq.read_table(run / "round-3" / "selection.parquet").to_pydict() for name, run in runs.items()}
    truth = np.array(open_labels(pool)[np.arange(1 + max(max(table["pool_id"]) for table in tables.values()))])
    figure, panels = plt.subplots(1, len(runs), figsize=(11, 4), constrained_layout=True)
    for panel, (name, table) in zip(panels, tables.items(), strict=True):
        others = set().union(*(other["pool_id"] for key, other in tables.items() if key != name))
        mine = [(truth[j], c) for j, c in zip(table["pool_id"], table["class"], strict=True) if j not in others]
        task = set(table["class"])
        shown = Counter(str(true) for true, _ in mine).most_common(most)[::-1]
        related, correct = np.mean([true in task for true, _ in mine]), np.mean([true == c for true, c in mine])
        colours = [COLOURS[name] if true in task else "#999999" for true, _ in shown]
        panel.barh([true for true, _ in shown], [n for _, n in shown], color=colours)
        panel.set_title(
            f"only {name}: {len(mine):,} images, {related:.0%} of the task, {correct:.0%} right",
            fontsize=10,
        )
        panel.spines[["top", "right"]].set_visible(False)
    save(figure, file)


def save(figure: Any, file: Path) -> None:
    with whole(file) as part:
        figure.savefig(part, dpi=110, format="png", metadata={"Software": None})
    plt.close(figure)
