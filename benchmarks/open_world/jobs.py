"""What is run, and how one run becomes rows of results.json."""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.open_world.world import SIDES, SWEEP, sets_in
from benchmarks.peers.runs import sets_of
from odst.few_labels import LABELLED_COPIES, SPARE_IMAGES, alphas_for
from odst.files import digest, write_json
from odst.method.labelling import infer
from odst.run.config import Config, read_config
from odst.run.directory import RunDir
from odst.run.execution import execute
from odst.run.preparation import prepare

SEEDS = (0, 1, 2)
SMOKE = {
    "training.phases": [{"steps": 3, "lr": 0.05}],
    "training.students": [],
    "model.name": "tiny",
    "method.alpha": 0.05,
    "training.batch": 16,
}
KEYS = (
    "round", "error", "od_auroc", "od_auroc_by_set", "selected", "repeats", "related", "correct", "val_error", "val_od_auroc",
)  # fmt: skip

# The method as `odst init` writes it, its two alphas by the sizes of the world's sets
AUTO = {
    "method.rest_weight": "auto",
    "method.spare": SPARE_IMAGES,
    "method.labelled_copies": LABELLED_COPIES,
    "run.labels_alone": True,
}
ONCE = 1 / LABELLED_COPIES  # of the epochs: as many passes over T as where it stands once in T ∪ I
BOUND = {"data.labelled": ["labelled.npz", "related.npz"]}


@dataclass(frozen=True)
class Job:
    """One run: a method in a world, from a seed."""

    world: str
    name: str  # of the row in the tables
    method: str
    seed: int = 0
    changes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.world}/{self.name}/{self.seed}"


def jobs() -> Iterator[Job]:
    """The most telling first: what is cut short still says something."""
    for seed in SEEDS:
        for method in ("odst", "st", "st-ot"):
            yield Job("33", method, method, seed)
        yield Job("33", "odst-auto", "odst", seed, AUTO | schedule(student=ONCE))
        yield Job("33", "bound", "supervised", seed, BOUND)
    for seed in SEEDS:
        yield from sweep(seed)
    for seed in SEEDS:
        for method in ("uniform-rest", "soft-rest"):
            yield Job("33", method, method, seed)
    yield Job("33", "one-shot", "one-shot")
    yield Job("33", "supervised+val_in", "supervised", changes={"data.join_val_in": True})
    for world in SIDES:
        for name, method, own in (("odst", "odst", few()), ("odst-auto", "odst", few_auto()), ("st", "st", few())):
            yield Job(world, name, method, changes=own)
    # House numbers: only crops, since a flipped digit is another one
    digits = schedule(augment=["crop:4"])
    yield Job("svhn", "odst", "odst", changes=digits)
    yield Job("svhn", "st-cw", "st-cw", changes=digits)
    yield Job("svhn", "bound", "supervised", changes=BOUND | digits)


def sweep(seed: int) -> Iterator[Job]:
    """1,000 labelled and 3,000 related images, among ever more unrelated ones. The labels alone (the base of st) and the bound
    see none of these, so one world is enough for them."""
    yield Job("sweep-0", "bound", "supervised", seed, BOUND | schedule(FEW_STUDENT))
    for world in SWEEP:
        yield Job(world, "odst", "odst", seed, few())
        yield Job(world, "odst-auto", "odst", seed, few_auto())
        yield Job(world, "st", "st", seed, few())
        yield Job(world, "st-ot", "st-ot", seed, few())


# Times as many epochs with 1,000 labelled images: a base has as many steps as with 4,000; a student, whose T ∪ I is larger, half its epochs
FEW_BASE, FEW_STUDENT = 4, 2


def few() -> dict[str, Any]:
    return schedule(FEW_BASE, FEW_STUDENT)


def few_auto() -> dict[str, Any]:
    return AUTO | schedule(FEW_BASE, FEW_STUDENT * ONCE)


def schedule(base: float = 1, student: float = 1, **others: Any) -> dict[str, Any]:
    """The preset's phases for a base and for students, so many times longer, or with other augmentation."""
    phases = read_config("open-world-cpu", {}).training.phases

    def changed(times: float) -> list[dict[str, Any]]:
        return [asdict(phase) | {"epochs": (phase.epochs or 0) * times} | others for phase in phases]

    return {"training.phases": changed(base), "training.students": [{"phases": changed(student)}]}


def identity(job: Job) -> str:
    """What tells this run from one of the same name with other settings. The worlds are taken to be the same."""
    own = {name: value for name, value in job.changes.items() if not name.startswith("data.")}
    config = read_config("open-world-cpu", own | {"method.name": job.method, "run.seed": job.seed})
    sections = config.model_dump(mode="json", include={"method", "model", "training", "run"})
    return digest([sections, sorted(set(job.changes) - set(own))])


def configured(job: Job, out: Path, smoke: bool) -> Config:
    world = out / f"world-{job.world}"
    own = dict(job.changes)
    if isinstance(own.get("data.labelled"), list):
        own["data.labelled"] = [str(world / name) for name in own["data.labelled"]]
    if own.get("method.rest_weight") == "auto" and not smoke:
        own |= {f"method.{name}": alpha for name, alpha in alphas_for(sets_of(world)).items()}
    changes = sets_in(world) | own | (SMOKE if smoke else {}) | {"method.name": job.method, "run.seed": job.seed}
    return read_config("open-world-cpu", changes)


def run(job: Job, out: Path, smoke: bool, how: dict[str, Any]) -> list[dict[str, Any]]:
    """The rows of results.json of one run, a round each. Runs lie side by side, so that they share bases across worlds."""
    config = configured(job, out, smoke)
    folder = out / "runs" / str(job).replace("/", "-")
    folder.parent.mkdir(exist_ok=True)
    execute(config, folder)
    done = RunDir(folder)
    corrupted = corruption_errors(done, out / f"world-{job.world}")
    lines = (folder / "timings.jsonl").read_text().splitlines()
    spent = sum(json.loads(line)["seconds"] for line in lines) * torch.get_num_threads()  # of a core
    about = {"share": job.world, "method": job.name, "seed": job.seed}
    how = {"config": identity(job), "images": images_seen(config, done), "seconds": round(spent)} | noted(
        folder / "how.json", how
    )
    rows = [
        about | {key: one[key] for key in KEYS} | {"corruption_error": corrupted[one["round"]]} | how
        for one in done.metrics()
    ]
    if config.run.labels_alone:
        final = done.final()
        assert final is not None
        taken = next(one.rest_weight for one in done.bases() if one.taken)
        rows = [row | {"rest_weight": taken, "use": row["round"] == final["use"]} for row in rows]
    return rows


def noted(note: Path, how: dict[str, Any]) -> dict[str, Any]:
    """How a run was made, and the load at its end: a later call that finds it finished does not say otherwise."""
    if not note.exists():
        write_json(note, how | {"load": round(os.getloadavg()[2], 1)})
    found: dict[str, Any] = json.loads(note.read_text())
    return found


def images_seen(config: Config, done: RunDir) -> int:
    """How many images went through the network in training, over the rounds: what peers may use, too. Trials of other
    weights count as far as they went."""
    first, *students = config.schedules()
    total, n, copies = 0, done.info()["sets"]["labelled"]["images"], config.recipe().labelled_copies
    bases = [one.rest_weight for one in done.bases()] or [config.recipe().weight]
    for weight in bases:
        total += first.plan(n).steps * first.batch * (2 if weight else 1)
    for line in done.metrics()[1:]:
        schedule = students[min(line["round"], len(students)) - 1] if students else first
        steps = schedule.plan(copies * n + line["selected"] + line["repeats"]).steps
        total += steps * schedule.batch * (2 if bases[-1] else 1)
    return total


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
