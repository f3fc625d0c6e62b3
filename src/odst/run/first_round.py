"""The first round of a run: its base, taken over from a run beside this one, or settled among several and kept with them."""

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from odst.errors import UserError
from odst.evaluation.corruptions import mean_corruption_error, published_corruption_errors
from odst.evaluation.scoring import Scored, score
from odst.few_labels import Trial, settled, trial_name, trials, weights_for
from odst.method.labelling import infer
from odst.recipe import Recipe
from odst.rounds import Round, calibrated
from odst.run.bases import ALONE, Base, write_bases
from odst.run.directory import RunDir, Which
from odst.run.preparation import Prepared, base_key
from odst.run.round_folder import is_whole, read_model, read_round, write_round

log = logging.getLogger("odst")


def write_first_round(run: RunDir, prepared: Prepared, sets: dict[str, Any]) -> None:
    """Train the base of a run, or take one over, and write it as round 0; labels alone and what "auto" has tried beside it.

    Models that an earlier call has finished are taken as they are, so that a killed run goes on.
    """
    config, data, recipe = prepared.config, prepared.data, prepared.config.recipe()
    weights = list(weights_for(data.labelled.x)) if recipe.rest_weight == "auto" else [recipe.weight]
    if config.run.labels_alone or recipe.needs_labels_alone:
        weights.append(0.0)
    keys = {weight: base_key(prepared, sets, weight) for weight in weights}
    known = {weight: base for weight in keys if (base := _known(run, prepared, weight, keys[weight])) is not None}
    tried: list[Trial] = []
    for trial in trials(
        recipe, data, prepared.make_model, config.schedules()[0], seed=config.run.seed, device=prepared.device,
        scratch=run.scratch, checkpoint_seconds=config.run.checkpoint_seconds, labels_alone=config.run.labels_alone, known=known,
    ):  # fmt: skip
        tried.append(trial)
        if trial.name and not is_whole(folder := run.round(trial.name)):
            # what was only tried is judged on validation images alone
            seen = prepared if trial.name == ALONE else replace(prepared, data=replace(data, test=None, out_tests={}))
            write_round(folder, trial.base, score_round(seen, trial.base), data, None, run=run.bond())
    taken = tried[-1]
    scored = score_round(prepared, taken.base)
    if len(tried) > 1:
        metrics = {one.name: run.note(one.name)["metrics"] if one.name else scored.metrics for one in tried}
        write_bases(run.path, [_base(one, keys[one.rest_weight], metrics[one.name], one is taken) for one in tried])
    run.save_round(taken.base, scored, data)


def _base(trial: Trial, key: str, metrics: dict[str, Any], taken: bool) -> Base:
    error, auroc = metrics["val_error"], metrics["val_od_auroc"]
    return Base(trial.name, key, trial.rest_weight, error, float(trial.losses.mean()), auroc, trial.holds, taken)


def settled_recipe(run: RunDir, recipe: Recipe) -> Recipe:
    """The recipe for the students of the run's base."""
    taken = [one.rest_weight for one in run.bases() if one.taken]
    return settled(recipe, taken[0] if taken else recipe.weight)


def _known(run: RunDir, prepared: Prepared, weight: float, key: str) -> Round | None:
    """A base that this run has finished already, or one that a run beside it has."""
    own = run.round(trial_name(weight))
    if is_whole(own):
        run.note(own.name)
        return read_round(own, prepared.make_model())[0]
    if (found := find_base(run, key)) is None:
        return None
    donor, folder = found
    log.info("the base of %s is the same: taking it over", donor.path.name)
    model = read_model(folder, prepared.make_model())
    return calibrated(prepared.config.recipe(), prepared.data, 0, model, None, prepared.device)


def find_base(run: RunDir, key: str) -> tuple[RunDir, Path] | None:
    """A run in the same folder that has an equal base: T, val_in, network, schedule, seed and rest_weight (and pool) agree."""
    for beside in run.runs_beside():
        try:
            there: dict[str, Which] = {one.key: one.name for one in beside.bases() if one.name}
            if beside.rounds():
                there[str(beside.info().get("base"))] = 0
            if key in there and beside.note(there[key]):
                return beside, beside.round(there[key])
        except (UserError, OSError) as error:  # somebody else's folder, or a damaged run: train the base here
            log.debug("not taking over a base: %s", error)
    return None


def score_round(prepared: Prepared, round_: Round) -> Scored:
    """The numbers of a round; where the config asks for it, the mean corruption error among them."""
    config, test = prepared.config, prepared.data.test
    scored = score(round_, prepared.data, prepared.device)

    def predict(x: np.ndarray) -> np.ndarray:
        return infer(round_.model, x, device=prepared.device).argmax(axis=1)

    if test is None:
        return scored
    if isinstance(config.data.corruptions, str):
        errors = published_corruption_errors(predict, config.data.corruptions)
        scored.metrics["corruption_error"] = float(errors.mean())
    elif config.data.corruptions:
        scored.metrics["corruption_error"] = mean_corruption_error(predict, test.x, test.y, seed=config.run.seed)
    return scored
