"""Where labels are not that few and the network sees pixels: what does `auto` cost there against the paper's weight 1?

The digits of `odst demo`, and the 33 % world of benchmarks.open_world (4,000 labels) with 10 epochs for a base and 5 for a student."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.few_labels.runs import AUTO, PAPER
from benchmarks.open_world.jobs import AUTO as AS_INIT_WRITES
from benchmarks.open_world.jobs import schedule
from benchmarks.open_world.world import Set, cifar_sets, cut
from odst.run.config import read_config
from odst.run.directory import RunDir
from odst.run.execution import execute
from odst.seeds import stream

DIGITS, OPEN = "digits", "open-world"
KEYS = ("error", "od_auroc", "val_error", "selected", "repeats")
BASE, STUDENT = 1 / 4, 1 / 8  # of the preset's epochs
METHODS: dict[str, dict[str, Any]] = {PAPER: {}, AUTO: AS_INIT_WRITES}


def run_costs(world: str, seed: int, *, data: Path, features: Path, out: Path) -> list[dict[str, Any]]:
    """The rows of both weights, a round each."""
    folder = out / f"costs-{world}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    changes: dict[str, Any] = {"run.seed": seed}
    if world == OPEN:
        changes |= schedule(BASE, STUDENT) | write_open_world(folder, data)
    rows = []
    for method, own in METHODS.items():
        config = read_config("digits" if world == DIGITS else "open-world-cpu", changes | own)
        execute(config, folder / "runs" / method)
        run = RunDir(folder / "runs" / method)
        use = json.loads((run.path / "final.json").read_text())["use"]
        weight = next((one.rest_weight for one in run.bases() if one.taken), config.recipe().rest_weight)
        for line in run.metrics():
            row = {"world": world, "seed": seed, "method": method, "round": line["round"], "rest_weight": weight}
            rows.append(row | {"use": line["round"] == use} | {key: line[key] for key in KEYS})
    shutil.rmtree(folder)
    return rows


def write_open_world(folder: Path, data: Path) -> dict[str, Any]:
    """The sets as .npz; returns where they are, as changes of the config."""
    sets = cut("33", cifar_sets(data))
    related, unrelated = sets["related"], sets["unrelated"]
    pool = Set(np.concatenate([related.x, unrelated.x]), np.concatenate([related.names, unrelated.names]))
    sets["pool"] = pool.where(stream(0, "pool").permutation(len(pool.x)))
    folder.mkdir(parents=True)
    for name in ("labelled", "val_in", "val_out", "test", "pool", "out_cifar100"):
        np.savez(folder / f"{name}.npz", x=sets[name].x, labels=sets[name].names)
    changes: dict[str, Any] = {
        f"data.{key}": str(folder / f"{key}.npz") for key in ("labelled", "val_in", "val_out", "test", "pool")
    }
    return changes | {"data.out_test": {"cifar100": str(folder / "out_cifar100.npz")}}
