"""A run directory and its sets -> what a page tells: numbers with intervals, thresholds with their contract, the verdict."""

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from odst.data.images import Data
from odst.errors import UserError
from odst.evaluation.contract import ClassContract, contract, shortfalls
from odst.evaluation.metrics import confidence_log_odds, error_interval
from odst.evaluation.paired import Change, Placements, auroc_change, error_change, placements
from odst.method.labelling import Predictions
from odst.method.selection import Thresholds
from odst.recipe import Recipe
from odst.run.directory import RunDir, thresholds_from_json


@dataclass(frozen=True)
class RoundFindings:
    """One round: its line of metrics.jsonl, its logits, and what they say."""

    t: int
    metrics: dict[str, Any]
    selection: dict[str, Any] | None  # of round.json
    thresholds: Thresholds
    logits: dict[str, np.ndarray]
    contract: list[ClassContract] | None  # None where a validation set cannot be split
    shortfalls: list[str]
    error_interval: tuple[float, float]
    placements: Placements | None  # of OD-AUROC

    @property
    def temperature(self) -> float:
        return self.metrics["temperature"]


@dataclass(frozen=True)
class Findings:
    run: RunDir
    info: dict[str, Any]
    recipe: Recipe
    data: Data
    rounds: list[RoundFindings]
    final: dict[str, Any] | None  # final.json; None for an unfinished run

    @property
    def tested(self) -> bool:
        """Whether error and OD-AUROC are of test images; otherwise of the validation images."""
        return self.data.test is not None

    @property
    def labels(self) -> np.ndarray:
        return self.data.test.y if self.data.test is not None else self.data.val_in.y

    @property
    def set_name(self) -> str:
        return "test" if self.tested else "val_in"

    @property
    def best(self) -> RoundFindings:
        """The round to use; of an unfinished run the last one there is."""
        return self.rounds[self.final["round"] if self.final else -1]

    @cached_property
    def error(self) -> Change:
        return self.error_from_base(self.best)

    def error_from_base(self, to: RoundFindings) -> Change:
        base = self.rounds[0].logits[self.set_name]
        return error_change(base, to.logits[self.set_name], self.labels, seed=self.info["seed"])

    @cached_property
    def auroc(self) -> Change | None:
        return self.auroc_from_base(self.best)

    def auroc_from_base(self, to: RoundFindings) -> Change | None:
        if to.placements is None or self.rounds[0].placements is None:
            return None
        return auroc_change(self.rounds[0].placements, to.placements)


def gather(run: RunDir, data: Data, recipe: Recipe) -> Findings:
    info = run.info()
    if not run.rounds():
        raise UserError(f"{run.path}: no round of this run is finished yet. Go on with `odst run {run.path}`.")
    rounds = [_round(run, t, data, recipe, info["seed"]) for t in run.rounds()]
    return Findings(run, info, recipe, data, rounds, run.final())


def _round(run: RunDir, t: int, data: Data, recipe: Recipe, seed: int) -> RoundFindings:
    note = run.note(t)
    logits = load_file(run.round(t) / "logits.safetensors")
    temperature = note["temperature"]
    rows, short = None, []
    alpha_in, alpha_out = alphas(recipe, "val_out" in logits)
    if len(logits["val_in"]) > 1 and len(logits.get("val_out", "ab")) > 1:
        y = data.val_in.y
        rows = contract(logits["val_in"], y, logits.get("val_out"), temperature, alpha_in, alpha_out, seed=seed)
        short = shortfalls(rows, alpha_in, alpha_out)
    else:
        short = ["val_in or val_out has a single image: nothing can be said of how well the thresholds hold."]
    name, labels = ("test", data.test.y) if data.test is not None else ("val_in", data.val_in.y)
    outs = [key for key in logits if key.startswith("out/")] if name == "test" else ["val_out"]
    scores = {key: confidence_log_odds(z, temperature) for key, z in logits.items()}
    outs = [key for key in outs if key in scores]
    return RoundFindings(
        t=t,
        metrics=note["metrics"],
        selection=note["selection"],
        thresholds=thresholds_from_json(note["thresholds"]),
        logits=logits,
        contract=rows,
        shortfalls=short,
        error_interval=error_interval(logits[name], labels, seed=seed),
        placements=placements(scores[name], [scores[key] for key in outs]) if outs else None,
    )


def alphas(recipe: Recipe, val_out: bool) -> tuple[float | None, float | None]:
    """Of the in- and the out-threshold; None for one that the method does without."""
    alpha_in = (recipe.alpha_in or recipe.alpha) if recipe.in_threshold else None
    alpha_out = (recipe.alpha_out or recipe.alpha) if recipe.out_threshold and val_out else None
    return alpha_in, alpha_out


def pool_logits(run: RunDir, t: int) -> np.ndarray | None:
    """The logits that teacher t gave the pool, mapped from disk; None where there are none, or not all."""
    file = run.scratch / f"pool-logits-{t}.npy"
    try:
        note = json.loads(file.with_suffix(".json").read_text())
        logits = np.load(file, mmap_mode="r")
    except (OSError, ValueError):
        return None
    whole = isinstance(note, dict) and note.get("done") == note.get("rows") == len(logits)
    return logits if whole else None


def pool_predictions(run: RunDir, round_: RoundFindings) -> Predictions | None:
    logits = pool_logits(run, round_.t)
    return None if logits is None else Predictions(logits, round_.temperature)


def timings(run: RunDir) -> list[tuple[str, float, int]]:
    """Seconds and images per stage, in the order in which they first began."""
    file = run.path / "timings.jsonl"
    stages: dict[str, tuple[float, int]] = {}
    if file.exists():
        for line in file.read_text(encoding="utf-8").splitlines():
            try:
                one = json.loads(line)
            except ValueError:
                continue  # a killed run may leave half a line
            seconds, images = stages.get(one["stage"], (0.0, 0))
            stages[one["stage"]] = seconds + one["seconds"], images + one["images"]
    return [(name, seconds, images) for name, (seconds, images) in stages.items()]
