"""What is run, and how one run becomes rows of results.json."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from odst.files import write_json
from odst.method.labelling import infer
from odst.run.config import read_config
from odst.run.directory import RunDir
from odst.run.execution import execute
from odst.run.preparation import prepare
from odst.training.schedule import Phase

SMOKE = {
    "training.phases": [{"steps": 3, "lr": 0.05}],
    "training.students": [],
    "model.name": "tiny",
    "method.alpha": 0.05,
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
    yield Job("33", "bound", "supervised", changes=bound(schedule()))
    yield Job("33", "supervised+val_in", "supervised", changes={"data.join_val_in": True})
    # House numbers: a third of the steps, and only crops, since a flipped digit is another one
    digits = schedule(shorter=3, augment=["crop:4"])
    yield Job("svhn", "odst", "odst", changes=digits)
    yield Job("svhn", "st-cw", "st-cw", changes=digits)
    yield Job("svhn", "bound", "supervised", changes=bound(digits))


def schedule(**changes: Any) -> dict[str, Any]:
    """The preset's schedule, with fewer steps or another augmentation."""
    training = read_config("open-world-cpu", {}).training

    def changed(phases: Iterable[Phase], shorter: int = 1, **others: Any) -> list[dict[str, Any]]:
        return [asdict(p) | {"steps": (p.steps or 0) // shorter, **others} for p in phases]

    return {
        "training.phases": changed(training.phases, **changes),
        "training.students": [{"phases": changed(student.phases or (), **changes)} for student in training.students],
    }


def bound(schedule: dict[str, Any]) -> dict[str, Any]:
    """What a third student could reach: T and all related images with their true labels, for as many steps."""
    last = schedule["training.students"][-1]["phases"]
    return {"data.labelled": ["labelled.npz", "related.npz"], "training.phases": last}


def run(job: Job, out: Path, smoke: bool) -> list[dict[str, Any]]:
    """The rows of results.json of one run, a round each. Runs lie side by side, so that they share bases across worlds."""
    world = out / f"world-{job.world}"
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
    folder = out / "runs" / f"{job.world}-{job.name}-seed-{job.seed}"
    folder.parent.mkdir(exist_ok=True)
    execute(config, folder)
    done = RunDir(folder)
    corrupted = corruption_errors(done, world)
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


def corruption_errors(done: RunDir, world: Path) -> list[float]:
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
