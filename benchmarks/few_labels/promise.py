"""Is the promise of a related share kept? The world 400, where it can be, and 400-rare, where every class closes."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.few_labels.worlds import write_vectors
from odst.project.init import begin_project
from odst.run.config import read_config
from odst.run.directory import RunDir
from odst.run.execution import execute


def run_promise(
    world: str, promise: float, seed: int, *, data: Path, features: Path, out: Path
) -> list[dict[str, Any]]:
    """The first student's selection: how much was promised of it, and how much of it is related."""
    folder = out / f"promise-{world}-{promise:g}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    write_vectors(world, seed, folder, features)
    begin_project(folder, {}, folder / "project", size=None, seed=seed)
    changes: dict[str, Any] = {"method.promise": promise, "method.pick": "spread", "method.alpha_out": None}
    # One round, and a student of a single step: only what it would be trained on is looked at
    changes |= {"method.ratio": [15], "training.students": [{"phases": [{"steps": 1, "lr": 0.01}]}]}
    changes |= {"run.seed": seed, "data.pool_truth": True}
    execute(read_config(str(folder / "project" / "odst.toml"), changes), folder / "run")
    run = RunDir(folder / "run")
    last = run.metrics()[-1]
    made = last["round"] == 1
    said = [
        line.split("closed: ", 1)[1] for line in (run.path / "log.txt").read_text().splitlines() if "closed: " in line
    ]
    row = {
        "world": world,
        "promise": promise,
        "seed": seed,
        "selected": last["selected"] if made else 0,
        "open": sum(n > 0 for n in last["above"].values()) if made else 0,
        "related": last["related"] if made else None,
        "said": said[0] if said else None,
    }
    shutil.rmtree(folder)
    return [row]


def summary(rows: list[dict[str, Any]]) -> list[list[str]]:
    """A line for each world and promise. An empty selection counts as kept."""
    lines = []
    for world, promise in dict.fromkeys((row["world"], row["promise"]) for row in rows):
        own = [row for row in rows if (row["world"], row["promise"]) == (world, promise)]
        shares = [1.0 if row["related"] is None else row["related"] for row in own]
        some = [row["related"] for row in own if row["related"] is not None]
        lines.append([
            world, f"{100 * promise:.0f}", str(len(own)), f"{100 * np.mean(shares):.1f}",
            f"{100 * min(some):.1f}" if some else "–", f"{sum(share < promise for share in shares)} of {len(own)}",
            f"{sum(row['open'] > 0 for row in own)} of {len(own)}", f"{np.mean([row['open'] for row in own]):.1f}",
            f"{np.mean([row['selected'] for row in own]):,.0f}",
        ])  # fmt: skip
    return lines
