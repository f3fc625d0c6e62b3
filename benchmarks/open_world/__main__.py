"""The open-world benchmark: python -m benchmarks.open_world [--data FOLDER] [--out DIR] [--only NAME] [--smoke]

Builds the worlds, runs every method, and writes results.json and the tables. Interrupted, the same command goes on.
FOLDER holds the benchmark's parquet files (cifar10_train.parquet, ...; default $ODST_TEST_DATA); without one the sets of
`odst data get cifar10 cifar100 svhn` are used. --smoke is a few steps of everything, in minutes: on the folder where it is
there, on the built-in world otherwise.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.open_world.tables import write_tables
from benchmarks.open_world.world import build, cifar_sets, svhn_sets
from odst.cli.screen import bars
from odst.config import read_config
from odst.files import write_json
from odst.method.labelling import infer
from odst.run import execute, prepare
from odst.rundir import RunDir

SMOKE = {
    "training.phases": [{"steps": 3, "lr": 0.05}],
    "model.name": "tiny",
    "method.alpha": 0.3,
    "training.batch": 16,
}


@dataclass(frozen=True)
class Job:
    """One run: a method in a world, from a seed."""

    world: str
    name: str  # of the row in the tables
    method: str
    seed: int = 0
    changes: dict[str, Any] = field(default_factory=dict)


def jobs() -> Iterator[Job]:
    """The most telling first: what is cut short still says something."""
    for seed in (0, 1, 2):
        for method in ("odst", "st", "st-ot"):
            yield Job("33", method, method, seed)
    for share in ("2", "10"):
        for method in ("odst", "st"):
            yield Job(share, method, method)
    for method in ("uniform-rest", "soft-rest", "one-shot", "supervised"):
        yield Job("33", method, method)
    yield Job("33", "bound", "supervised", changes={"data.labelled": ["labelled.npz", "related.npz"]})
    yield Job("33", "supervised+val_in", "supervised", changes={"data.join_val_in": True})
    no_flip = {"training.phases": [{"steps": 150, "lr": 0.02, "end": 0.2, "shape": "linear", "augment": ["crop:4"]},
                                   {"steps": 850, "lr": 0.2, "shape": "linear", "augment": ["crop:4"]}]}  # fmt: skip
    yield Job("svhn", "odst", "odst", changes=no_flip)
    yield Job("svhn", "st-cw", "st-cw", changes=no_flip)
    yield Job("svhn", "bound", "supervised", changes=no_flip | {"data.labelled": ["labelled.npz", "related.npz"]})


def run(job: Job, world: Path, out: Path, smoke: bool) -> list[dict[str, Any]]:
    """The rows of results.json of one run, a round each."""
    names = [file.stem for file in world.glob("out_*.npz")]
    there = {key: str(world / f"{key}.npz") for key in ("labelled", "val_in", "val_out", "test")}
    changes: dict[str, Any] = {f"data.{key}": value for key, value in there.items()} | {
        "data.pool": str(world / "pool")
    }
    changes |= {"data.out_test": {name.removeprefix("out_"): str(world / f"{name}.npz") for name in names}}
    own = dict(job.changes)
    if isinstance(own.get("data.labelled"), list):
        own["data.labelled"] = [str(world / name) for name in own["data.labelled"]]
    changes |= own | (SMOKE if smoke else {}) | {"method.name": job.method, "run.seed": job.seed}
    config = read_config("open-world-cpu", changes)
    folder = out / f"world-{job.world}-seed-{job.seed}" / job.name
    execute(config, folder)
    done = RunDir(folder)
    corrupted = corruption_errors(done, world, out)
    spent = sum(json.loads(line)["seconds"] for line in (folder / "timings.jsonl").read_text().splitlines())
    keys = (
        "round",
        "error",
        "od_auroc",
        "od_auroc_by_set",
        "selected",
        "repeats",
        "related",
        "correct",
        "val_error",
        "val_od_auroc",
    )
    return [
        {"share": job.world, "method": job.name, "seed": job.seed}
        | {key: one[key] for key in keys}
        | {"corruption_error": corrupted[one["round"]], "seconds": round(spent)}
        for one in done.metrics()
    ]


def corruption_errors(done: RunDir, world: Path, out: Path) -> list[float]:
    """The mean error on the corrupted images, by round; kept beside the run, since it takes a while."""
    note = done.path / "corruption.json"
    errors = json.loads(note.read_text()) if note.exists() else []
    if len(errors) < len(done.rounds()):
        prepared = prepare(done.config(), done.path)
        with np.load(world / "corrupted.npz") as file:
            x, labels = file["x"], file["labels"]
        y = np.searchsorted(prepared.data.classes, labels)
        for t in done.rounds()[len(errors) :]:
            logits = infer(done.load_model(t, prepared.make_model()), x, device=prepared.device, name=f"corrupted {t}")
            errors.append(float((logits.argmax(1) != y).mean()))
        write_json(note, errors)
    return errors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("ODST_TEST_DATA"))
    parser.add_argument("--out", type=Path, default=Path("runs/open_world"))
    parser.add_argument("--only", default="", help="jobs whose WORLD/NAME/SEED holds this text")
    parser.add_argument("--smoke", "--quick", action="store_true", dest="smoke")
    options = parser.parse_args()
    data = Path(options.data) if options.data else None
    out = options.out / "smoke" if options.smoke else options.out
    weights = data / "weights" / "lpips_alexnet.npz" if data and (data / "weights").is_dir() else None
    if options.smoke and data is None:
        from odst.cli import main as odst

        sys.argv = ["odst", "demo", "--out", str(out), "--methods", "odst,st", "--quiet"]
        odst()
        return
    sets: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    with bars():
        for job in jobs():
            if options.only not in f"{job.world}/{job.name}/{job.seed}" or (
                options.smoke and (job.seed or job.world == "10")
            ):
                continue
            kind = "svhn" if job.world == "svhn" else "cifar"
            if kind not in sets and not (out / f"world-{job.world}" / "whole").exists():
                if kind == "svhn" and data is None:
                    continue
                sets[kind] = svhn_sets(data) if kind == "svhn" and data else cifar_sets(data)
                if options.smoke:
                    sets[kind] = {
                        name: one.sample(40 if name == "related" else 8, "smoke") for name, one in sets[kind].items()
                    }
            share = {"33": 1 / 3, "10": 0.1, "2": 0.02}.get(job.world)
            world = build(out / f"world-{job.world}", sets.get(kind, {}), share, weights)
            rows += run(job, world, out, options.smoke)
            write_json(out / "results.json", rows)
    write_tables(rows, out / "tables.md")
    print((out / "tables.md").read_text())
    gap = difference(rows)
    print(f"open_world ratio={gap:.3g} anchor=st-error-of-the-third-round")


def difference(rows: list[dict[str, Any]]) -> float:
    """odst's last error at 33 %, as a ratio to st's."""

    def last(method: str) -> float:
        own = [row for row in rows if (row["share"], row["method"]) == ("33", method)]
        return (
            float(np.mean([row["error"] for row in own if row["round"] == max(r["round"] for r in own)]))
            if own
            else np.nan
        )

    return last("odst") / last("st")


if __name__ == "__main__":
    main()
