"""results.json -> tables in the paper's form: a row a method, a column a round, mean and spread over seeds."""

from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.measuring import table
from odst.files import write_text

MEASURES = {
    "error": "error, %",
    "corruption_error": "corruption error, %",
    "od_auroc": "OD-AUROC, %",
    "selected": "selected",
    "related": "related, %",
    "correct": "correct, %",
}


def write_tables(rows: list[dict[str, Any]], file: Path) -> None:
    parts = []
    for world in dict.fromkeys(row["share"] for row in rows):
        here = [row for row in rows if row["share"] == world]
        rounds = range(max(row["round"] for row in here) + 1)
        title = "SVHN among CIFAR-100" if world == "svhn" else f"CIFAR-10 among CIFAR-100, {world} % related"
        parts.append(f"## {title}\n")
        for key, heading in MEASURES.items():
            lines = []
            for method in dict.fromkeys(row["method"] for row in here):
                own = [row for row in here if row["method"] == method]
                cells = [cell([r[key] for r in own if r["round"] == t and r[key] is not None], key) for t in rounds]
                if any(text != "–" for text in cells):
                    lines.append([method, *cells])
            if lines:
                parts.append(
                    f"**{heading}**\n\n" + table(["method", "base", *(f"round {t}" for t in rounds[1:])], lines) + "\n"
                )
        spent = {(row["method"], row["seed"]): row["seconds"] for row in here}
        parts.append(
            f"Time: {sum(spent.values()) / 60:.0f} minutes for {len(spent)} runs; a base that two methods share counts once.\n"
        )
    write_text(file, "\n".join(parts))


def cell(values: list[float], key: str) -> str:
    if not values:
        return "–"
    scale, digits = (1, 0) if key == "selected" else (100, 1)
    text = f"{scale * np.mean(values):,.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {scale * np.std(values, ddof=1):.{digits}f}"
