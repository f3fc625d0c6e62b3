"""results.json -> tables in the paper's form: a row a method, a column a round, mean and spread over seeds."""

from typing import Any

import numpy as np

from benchmarks.measuring import table

TITLES = {
    "33": "CIFAR-10 among CIFAR-100, 33 % related",
    "svhn": "SVHN among CIFAR-100",
}
MEASURES = {
    "error": "error, %",
    "corruption_error": "corruption error, %",
    "od_auroc": "OD-AUROC, %",
    "selected": "selected",
    "related": "related, %",
    "correct": "correct, %",
}

# Base and rounds 1 to 3 of the paper's ResNet50, CIFAR-10 and SVHN with 80 Million Tiny Images: only the shape compares.
PAPER: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {
    ("33", "error"): {
        "odst": (3.19, 2.15, 2.01, 1.88),
        "st": (3.89, 3.14, 3.20, 3.54),
        "st-ot": (3.89, 3.18, 3.04, 3.07),
        "uniform-rest": (3.19, 2.52, 2.83, 2.73),
        "soft-rest": (3.19, 2.18, 2.22, 2.40),
        "one-shot": (3.19, 1.97),
    },
    ("33", "corruption_error"): {
        "odst": (16.86, 14.19, 15.02, 15.46),
        "st": (16.97, 16.41, 17.36, 19.04),
        "st-ot": (16.97, 16.53, 17.62, 18.98),
        "uniform-rest": (16.86, 15.39, 14.49, 13.96),
        "soft-rest": (16.86, 14.62, 15.15, 16.00),
        "one-shot": (16.86, 13.53),
    },
    ("33", "od_auroc"): {
        "odst": (98.95, 99.20, 99.16, 98.98),
        "st": (92.74, 89.39, 83.73, 75.93),
        "st-ot": (92.74, 90.35, 84.14, 85.71),
        "uniform-rest": (98.95, 98.96, 98.90, 99.03),
        "soft-rest": (98.95, 99.10, 98.72, 98.35),
        "one-shot": (98.95, 99.31),
    },
    ("svhn", "error"): {"odst": (1.94, 1.55, 1.46, 1.36), "st-cw": (2.03, 1.54, 1.53, 1.52), "bound": (1.24,)},
    ("svhn", "unrelated"): {"odst": (0.4, 1.6, 5.9)},
}


def tables(rows: list[dict[str, Any]]) -> str:
    parts = []
    for world in TITLES:
        here = [row for row in rows if row["share"] == world and "settings" not in row]  # a peer's row has its settings
        if not here:
            continue
        parts.append(f"## {TITLES[world]}\n")
        for key, heading in MEASURES.items():
            if world == "svhn" and key == "related":  # the paper counts what should not be there
                key, heading = "unrelated", "not of SVHN, %"
                here = [row | {"unrelated": None if row["related"] is None else 1 - row["related"]} for row in here]
            parts.append(by_round(here, key, heading, PAPER.get((world, key), {})))
        parts.append(by_set(here))
        runs = {(row["method"], row["seed"]): row["seconds"] for row in here}
        parts.append(
            f"Time: {sum(runs.values()) / 60:.0f} minutes of one core for {len(runs)} run{'s' * (len(runs) != 1)}.\n"
        )
    return "\n".join(part for part in parts if part)


def by_round(rows: list[dict[str, Any]], key: str, heading: str, paper: dict[str, tuple[float, ...]]) -> str:
    rounds = range(max(row["round"] for row in rows) + 1)
    lines = []
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method and row[key] is not None]
        cells = [cell([row[key] for row in own if row["round"] == t], key) for t in rounds]
        told = [" → ".join(f"{x:.2f}" for x in paper.get(method, ())) or "–"] if paper else []
        if own:
            lines.append([method, str(len({row["seed"] for row in own})), *cells, *told])
    columns = ["method", "seeds", "base", *(f"round {t}" for t in rounds[1:]), *(["the paper's"] if paper else [])]
    return f"**{heading}**\n\n{table(columns, lines)}\n" if lines else ""


def by_set(rows: list[dict[str, Any]]) -> str:
    """OD-AUROC of each method's last round against each set."""
    lines = []
    sets = sorted(rows[0]["od_auroc_by_set"])
    for method in dict.fromkeys(row["method"] for row in rows):
        own = [row for row in rows if row["method"] == method]
        last = [row["od_auroc_by_set"] for row in own if row["round"] == max(row["round"] for row in own)]
        lines.append([method, *(cell([values[name] for values in last], name) for name in sets)])
    return f"**OD-AUROC of the last round by set, %**\n\n{table(['method', *sets], lines)}\n"


def cell(values: list[float], key: str) -> str:
    if not values:
        return "–"
    scale, digits = (1, 0) if key == "selected" else (100, 1)
    text = f"{scale * np.mean(values):,.{digits}f}"
    return text if len(values) == 1 else f"{text} ± {scale * np.std(values, ddof=1):.{digits}f}"
