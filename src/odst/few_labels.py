"""The base classifier, eq. (1), and with few labels the weight of its rest.

Eq. (1) gives the rest of the pool the weight of the labelled images. With few of these a network tells each labelled image
from its own kind in the pool, and the push to uniform wins. So the weight may be left to val_in, and the rest may spare the
pool images that the labelled images alone find as sure as most of val_in: many of those are of the classes.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import ceil, log10
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from odst.data.images import Data, Images, Pool
from odst.method.calibration import calibrated_losses, top_log_odds
from odst.method.labelling import Predictions
from odst.method.stored import label, logits_folder
from odst.method.targets import Examples
from odst.recipe import Recipe
from odst.rounds import Round, calibrated, seeded
from odst.seeds import key
from odst.training.schedule import Phase, Schedule
from odst.training.steps import train

log = logging.getLogger("odst")

WEIGHTS = (1.0, 0.3, 0.1, 0.03)  # what "auto" tries, the most aware first
WIDE = 100  # numbers a row: with more they are taken for a backbone's vectors
SLACK = 1.1  # of the NLL: awareness may cost a tenth of it, which is less than the students win back (docs/log.md)


# What `odst init` and ODSTClassifier begin with, as measured (docs/method.md, Few labels)
SPARE = 0.9  # of vectors and other rows
SPARE_IMAGES = 0.5  # a network that learns images from few labels is sure of most of the pool: 0.9 would spare it all
LABELLED_COPIES = 5
PASSES, STUDENT_PASSES = 16, 8  # over T, and over T with its copies and I
FEWEST_STEPS, FEWEST_STUDENT_STEPS, MOST_STEPS = 300, 600, 2000


def alpha_in(n_in: int, K: int) -> float:
    """0.9; where val_in has fewer than ten images a class, so much that one of them may be wrong."""
    return min(0.9, max(0.5, round(1 - K / n_in, 3)))


def leak(n: int, K: int) -> float:
    """Unrelated pool images that may pass a class's out-threshold: twice its labelled ones, and at most 50."""
    return min(2 * n / K, 50)


def alpha_out(n: int, K: int, m: int, n_out: int) -> float:
    """About (1 - alpha) m unrelated images pass each class's out-threshold: the leak, and no fewer than val_out can see."""
    rest = max(leak(n, K) / m, 1 / n_out)
    return max(0.5, round(1 - rest, max(3, ceil(2 - log10(rest)))))


def alphas_for(data: Data) -> dict[str, Any]:
    """Both, as far as the sets have what it takes."""
    alphas = {"alpha_in": alpha_in(len(data.val_in), data.K)}
    if data.val_out is not None and data.pool is not None and len(data.val_out):
        m = max(1, len(data.pool) - len(data.pool.excluded))
        alphas["alpha_out"] = alpha_out(len(data.labelled), data.K, m, len(data.val_out))
    return alphas


def base_steps(n: int, batch: int) -> int:
    """Of a base on n labelled vectors."""
    return min(max(ceil(PASSES * n / batch), FEWEST_STEPS), MOST_STEPS)


def student_steps(n: int, batch: int, ratio: float, m: int) -> int:
    """Of a student that takes up to ratio · n of the pool's m vectors."""
    rows = LABELLED_COPIES * n + min(ratio * n, m)
    return min(max(ceil(STUDENT_PASSES * rows / batch), FEWEST_STUDENT_STEPS), MOST_STEPS)


def schedules(recipe: Recipe, n: int, K: int, m: int, batch: int, lr: float) -> list[Schedule]:
    """Of the base and of each student on vectors."""
    taken = [min(recipe.per_class(t, n, K) * K, m) for t in range(recipe.rounds)]
    lengths = [base_steps(n, batch), *(student_steps(n, batch, k / n, m) for k in taken)]
    return [Schedule(phases=(Phase(steps=steps, lr=lr, shape="cosine"),), batch=batch) for steps in lengths]


def weights_for(x: Images) -> tuple[float, ...]:
    """What "auto" tries on such rows. Of a backbone's vectors not the paper's 1: there few labels drowned in every world."""
    return WEIGHTS[1:] if len(x.shape) == 2 and x.shape[1] > WIDE else WEIGHTS


@dataclass(frozen=True)
class Trial:
    """A base classifier, and whether it is as good on val_in as the labels alone: within the slack and a standard error."""

    name: str  # labels-alone, weight-0.3; empty for the only base of a fixed weight
    rest_weight: float
    base: Round
    losses: np.ndarray  # of each val_in image: the NLL, calibrated for it
    holds: bool = True


def settle(
    recipe: Recipe, data: Data, make_model: Callable[[], nn.Module], schedule: Schedule, *, seed: int = 0,
    device: str = "cpu", scratch: Path | None = None, checkpoint_seconds: float = 30,
) -> tuple[Recipe, Round]:  # fmt: skip
    """The base classifier, to be handed to `self_train` as its start, and the recipe with a number for rest_weight.

    `schedule` is that of the base. With a scratch folder an interrupted training goes on.
    """
    tried = list(
        trials(
            recipe, data, make_model, schedule, seed=seed, device=device, scratch=scratch, checkpoint_seconds=checkpoint_seconds
        )
    )  # fmt: skip
    return settled(recipe, tried[-1].rest_weight), tried[-1].base


def settled(recipe: Recipe, rest_weight: float) -> Recipe:
    """The recipe for the students of a base of this weight."""
    return replace(recipe, rest_weight=rest_weight, spare=None)


def trials(
    recipe: Recipe, data: Data, make_model: Callable[[], nn.Module], schedule: Schedule, *, seed: int = 0,
    device: str = "cpu", scratch: Path | None = None, checkpoint_seconds: float = 30, labels_alone: bool = False,
    known: Mapping[float, Round] | None = None,
) -> Iterator[Trial]:  # fmt: skip
    """Yield the base classifiers that a recipe wants to see; the last one is taken.

    A recipe with a fixed weight has one. Where it is to spare a part of the pool, where its weight is "auto", or where
    `labels_alone` asks for it, the labels alone come first. "auto" goes on with the weights from the largest down, each with
    the full schedule, to the first that holds, or to the smallest. `known` are those that an earlier call has made, by weight.
    """
    T, U, K, y = data.labelled, data.pool, data.K, data.val_in.y
    auto = recipe.rest_weight == "auto"
    weights = weights_for(T.x)
    made = dict(known or {})

    def fit(name: str, weight: float, U: Pool | None) -> Trial:
        if weight not in made:
            # eq. (1) is eq. (3) with I empty and the rest pushed to 1/K
            examples = Examples(T, U, p=None, I=None, damping=1.0, K=K)
            model = train(
                seeded(make_model, key(seed, "init", 0)), examples, schedule, data.val_in, rest_weight=weight, seed=seed, t=0,
                device=device, scratch=scratch and scratch / name, checkpoint_seconds=checkpoint_seconds,
                name=f"train {name or 'round 0'}",
            )  # fmt: skip
            made[weight] = calibrated(recipe, data, 0, model, None, device)
        return Trial(name, weight, made[weight], calibrated_losses(made[weight].logits_in, y))

    alone = None
    if labels_alone or recipe.needs_labels_alone:
        yield (alone := fit(trial_name(0), 0.0, U))
    for weight in weights if auto else (recipe.weight,):
        if alone is not None and recipe.spare is not None and weight not in made and U is data.pool:
            U = _without(alone.base, U, recipe.spare, device, scratch and scratch / alone.name)
        trial = fit(trial_name(weight) if auto else "", weight, U)
        yield (trial := replace(trial, holds=not auto or alone is None or not_worse(trial.losses, alone.losses)))
        if trial.holds:
            return
    log.warning(
        "rest_weight: at none of %s is the base as good on val_in as your labels alone; going on with %g",
        ", ".join(f"{weight:g}" for weight in weights), weights[-1],
    )  # fmt: skip


def trial_name(weight: float) -> str:
    """Of its folder."""
    return "labels-alone" if weight == 0 else f"weight-{weight:g}"


def _without(alone: Round, U: Pool | None, share: float, device: str, scratch: Path | None) -> Pool:
    """The pool whose rest a base is pushed on."""
    assert U is not None  # check_data has seen to it
    ids = spared(alone, U, share, device, scratch)
    log.info("the base's rest spares %d of %d pool images, which look like a class", len(ids), len(U) - len(U.excluded))
    return replace(U, excluded=np.union1d(U.excluded, ids), identity=U.id)


def spared(alone: Round, U: Pool, share: float, device: str = "cpu", scratch: Path | None = None) -> np.ndarray:
    """The pool ids that the labels alone find as confident as this share of val_in."""
    folder = None if scratch is None else logits_folder(scratch, 0)
    logits = label(alone.model, U.x, folder, device=device, name="label pool by labels alone", identity=U.id)
    inside = np.sort(top_log_odds(alone.logits_in, alone.temperature)[1])
    bar = inside[len(inside) - ceil(round(share * len(inside), 6))]  # the highest that this share of val_in reaches
    parts = [ids[odds >= bar] for ids, _, odds in Predictions(logits, alone.temperature).top()]
    return np.setdiff1d(np.concatenate(parts), U.excluded)


def not_worse(losses: np.ndarray, alone: np.ndarray) -> bool:
    """Whether these losses of val_in are at most one paired standard error above the slack that the labels alone give them."""
    worse = losses - SLACK * alone
    error = worse.std(ddof=1) / np.sqrt(len(worse)) if len(worse) > 1 else 0.0
    return bool(worse.mean() <= error)
