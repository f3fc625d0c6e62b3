"""All methods on a frozen backbone's vectors: a pool of one size, of which a third, a tenth or a fiftieth is related."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.few_labels.runs import ALONE, AUTO, METHODS, PAPER, REGRESSION, ST, Methods, run_world
from benchmarks.few_labels.tables import Results, mean
from benchmarks.few_labels.worlds import SHARES
from benchmarks.measuring import table
from odst.few_labels import base_steps
from odst.run.config import read_config

SEEDS = range(10)
BOUND = "bound"
ORDER = (REGRESSION, ALONE, ST, "st-ot", PAPER, "uniform-rest", "soft-rest", "one-shot", AUTO, BOUND)


def run_shares(world: str, seed: int, *, data: Path, features: Path, out: Path) -> list[dict[str, Any]]:
    return run_world(world, seed, others, data=data, features=features, out=out)


def others(folder: Path) -> Methods:
    """The methods that few_labels does not have. The bound learns the labelled and all related vectors, with as many passes."""
    with np.load(folder / "pool.npz") as pool, np.load(folder / "labelled.npz") as labelled:
        ours, n = np.isin(pool["labels"], labelled["labels"]), len(labelled["x"])
        np.savez(folder / "related.npz", x=pool["x"][ours], labels=pool["labels"][ours])
    training = read_config(str(folder / "project" / "odst.toml"), {}).training
    steps = base_steps(n + int(ours.sum()), training.batch)
    bound = METHODS[ST] | {
        "method.name": "supervised",
        "data.labelled": [str(folder / "labelled.npz"), str(folder / "related.npz")],
        "training.phases": [{"steps": steps, "lr": training.phases[0].lr, "shape": "cosine"}],
    }
    phases = [asdict(phase) for phase in training.students[-1].phases or training.phases]
    last = {"training.students": [{"phases": phases}]}  # of one round, with the last ratio
    return {
        "st-ot": METHODS[ST] | {"method.name": "st-ot"},
        "uniform-rest": METHODS[PAPER] | {"method.name": "uniform-rest"},
        "soft-rest": METHODS[PAPER] | {"method.name": "soft-rest"},
        "one-shot": METHODS[PAPER] | {"method.name": "one-shot"} | last,
        BOUND: bound,
    }


def shares_tables(rows: list[dict[str, Any]]) -> str:
    """A table for each number of labels: the last round of every method, and the round to use, by the related share."""
    found = Results(rows)
    here = {row["world"] for row in rows}
    parts = []
    for n in dict.fromkeys(world.labelled for world in SHARES.values()):
        worlds = {name: world for name, world in SHARES.items() if world.labelled == n and name in here}
        if not worlds:
            continue
        lines = [[method, *(cell(found, name, method) for name in worlds)] for method in ORDER]
        lines.append(["the round to use", *(f"**{used(found, name)}**" for name in worlds)])
        share = [f"{world.related:,} of {world.pool:,} related" for world in worlds.values()]
        parts.append(f"**{n:,} labels**\n\n{table(['method', *share], lines)}\n")
    return "\n".join(parts)


def cell(found: Results, world: str, method: str) -> str:
    """Error and OD-AUROC of the last round."""
    errors = found.of(world, method)
    return f"{mean(errors)}, {mean(found.of(world, method, key='od_auroc')).value:.1f}" if errors else "–"


def used(found: Results, world: str) -> str:
    error, aware = (mean(found.used(world, key)) for key in ("error", "od_auroc"))
    return f"{error}, {aware.value:.1f}" if np.isfinite(error.value) else "–"
