"""A run directory and its sets -> what a page tells: numbers with intervals, thresholds with their contract, the verdict."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from odst.data.images import Pool
from odst.evaluation.contract import ClassContract, contract, shortfalls
from odst.evaluation.metrics import confidence_log_odds, error_interval
from odst.evaluation.paired import Change, Placements, auroc_change, error_change, placements
from odst.method.selection import Thresholds, shortages
from odst.recipe import Recipe
from odst.run.bases import ALONE
from odst.run.directory import RunDir, Which
from odst.run.preparation import labels_of
from odst.run.round_folder import is_whole
from odst.run.round_note import thresholds_from_json


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
    pool: Pool | None
    labels_in: np.ndarray  # of val_in
    labels: np.ndarray  # of the set that error and OD-AUROC are of: test, or val_in where there is none
    tested: bool
    rounds: list[RoundFindings]
    final: dict[str, Any] | None  # final.json; None for an unfinished run
    alone: RoundFindings | None = None  # the model of the labelled images alone, where the run has made it

    @property
    def use_alone(self) -> bool:
        """Whether labels alone are to be used, and not the best round."""
        return self.final is not None and self.final.get("use") == ALONE

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.info["classes"])

    @property
    def K(self) -> int:
        return len(self.info["classes"])

    @property
    def labelled(self) -> int:
        """How many labelled images the run was given."""
        return self.info["sets"]["labelled"]["images"]

    @property
    def set_name(self) -> str:
        return "test" if self.tested else "val_in"

    @property
    def best(self) -> RoundFindings:
        """The best round, which is to be used unless labels alone are; of an unfinished run the last one there is."""
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


def gather(run: RunDir, pool: Pool | None) -> Findings:
    info, recipe, there = run.info(), run.config().recipe(), run.finished_rounds()
    labels = labels_of(run)
    name = "test" if "test" in labels else "val_in"
    rounds = [_round(run, t, labels, name, recipe, info["seed"]) for t in there]
    alone = _round(run, ALONE, labels, name, recipe, info["seed"]) if is_whole(run.round(ALONE)) else None
    return Findings(run, info, recipe, pool, labels["val_in"], labels[name], name == "test", rounds, run.final(), alone)


def _round(run: RunDir, t: Which, labels: dict[str, np.ndarray], name: str, recipe: Recipe, seed: int) -> RoundFindings:
    note, logits = run.note(t), run.logits(t)
    temperature = note["temperature"]
    rows, short = None, []
    alpha_in, alpha_out = recipe.alphas("val_out" in logits)
    if len(logits["val_in"]) > 1 and len(logits.get("val_out", "ab")) > 1:
        y = labels["val_in"]
        rows = contract(logits["val_in"], y, logits.get("val_out"), temperature, alpha_in, alpha_out, seed=seed)
        short = shortfalls(rows, alpha_in, alpha_out)
        inside = thresholds_from_json(note["thresholds"]).inside
        closed = shortages(run.info()["classes"], inside, logits["val_in"], y, temperature, alpha_in)
        short += [f"Closed, no threshold reaches the precision on val_in: {one}." for one in closed]
    else:
        short = ["val_in or val_out has a single image: nothing can be said of how well the thresholds hold."]
    outs = [key for key in logits if key.startswith("out/")] if name == "test" else ["val_out"]
    scores = {key: confidence_log_odds(z, temperature) for key, z in logits.items()}
    outs = [key for key in outs if key in scores]
    return RoundFindings(
        t=note["round"],
        metrics=note["metrics"],
        selection=note["selection"],
        thresholds=thresholds_from_json(note["thresholds"]),
        logits=logits,
        contract=rows,
        shortfalls=short,
        error_interval=error_interval(logits[name], labels[name], seed=seed),
        placements=placements(scores[name], [scores[key] for key in outs]) if outs else None,
    )
