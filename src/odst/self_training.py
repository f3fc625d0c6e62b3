"""The loop A to F of the paper's section 3.2."""

import logging
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from odst.data.checks import check_data
from odst.data.images import Data
from odst.method.calibration import fit_temperature
from odst.method.labelling import Predictions, infer
from odst.method.selection import CLOSED, Selection, Thresholds, select, thresholds
from odst.method.stored import label, logits_folder
from odst.method.targets import Examples
from odst.recipe import Recipe
from odst.seeds import key
from odst.training.schedule import Schedule
from odst.training.steps import train

log = logging.getLogger("odst")


@dataclass(frozen=True)
class Round:
    """A model with its own temperature and thresholds, and the selection it was trained on (none in round 0)."""

    t: int  # 0 for the base
    model: nn.Module  # pixels or vectors in, K logits out
    temperature: float  # by which its logits are divided
    thresholds: Thresholds  # per class, in log-odds
    selection: Selection | None  # I, chosen by the teacher before it
    logits_in: np.ndarray  # of val_in
    logits_out: np.ndarray | None  # of val_out


def self_train(
    recipe: Recipe,
    data: Data,
    make_model: Callable[[], nn.Module],
    schedules: Sequence[Schedule],
    *,
    seed: int = 0,
    start: Round | None = None,
    given: Selection | None = None,
    device: str = "cpu",
    scratch: Path | None = None,
    checkpoint_seconds: float = 30,
) -> Iterator[Round]:
    """Yield the base classifier, then one student per entry of `recipe.ratio`.

    `schedules` has one entry per round, the last one serving all later rounds. `start` is the round to go on from. Fewer
    rounds come where nothing in the pool lies above the thresholds.
    """
    check_data(recipe, data, given)
    T, U, K = data.labelled, data.pool, data.K
    last = start

    def fit(t: int, examples: Examples, teacher: nn.Module | None) -> nn.Module:
        model = seeded(make_model, key(seed, "init", t)) if teacher is None else deepcopy(teacher)
        schedule = schedules[min(t, len(schedules) - 1)]
        return train(
            model, examples, schedule, data.val_in, rest_weight=recipe.rest_weight, seed=seed, t=t,
            device=device, scratch=scratch, checkpoint_seconds=checkpoint_seconds,
        )  # fmt: skip

    if last is None:
        # The base classifier, eq. (1): eq. (3) with I empty and the rest pushed to 1/K
        base = fit(0, Examples(T, U, p=None, I=None, damping=1.0, K=K), None)
        yield (last := calibrated(recipe, data, 0, base, None, device))

    for t in range(last.t, recipe.rounds):
        # A) the teacher was calibrated on val_in when it was made: every round has its own temperature and thresholds
        teacher, temperature, tau = last.model, last.temperature, last.thresholds.tau
        k = recipe.per_class(t, len(T), K)
        assert U is not None  # check_data has seen to it
        if given is None:
            # B) pseudo-label all of U
            folder = logits_folder(scratch, t) if scratch else None
            p = Predictions(
                label(teacher, U.x, folder, device=device, name=f"label pool {t}", identity=U.id), temperature
            )
            # C) per class, the k most confident samples above both thresholds
            I = select(p, tau, k, excluded=U.excluded, max_copies=recipe.max_copies, seed=seed, t=t)
        else:
            p, I = None, given
        if not announce(I, data.classes, t):
            return
        # D) q on I, v on the rest
        examples = Examples(T, U, p, I, recipe.damping, K)
        # E) train the student, eq. (3)
        student = fit(t + 1, examples, teacher if recipe.warm_start else None)
        # F) the student becomes the teacher
        yield (last := calibrated(recipe, data, t + 1, student, I, device))


def calibrated(recipe: Recipe, data: Data, t: int, model: nn.Module, I: Selection | None, device: str) -> Round:
    """Step A and the thresholds of step C, for every round, the last included."""
    logits_in = infer(model, data.val_in.x, device=device)
    logits_out = None if data.val_out is None else infer(model, data.val_out, device=device)
    temperature = fit_temperature(logits_in, data.val_in.y, recipe.calibrate)
    tau = thresholds(logits_in, data.val_in.y, logits_out, temperature, *recipe.alphas(logits_out is not None))
    return Round(t, model, temperature, tau, I, logits_in, logits_out)


def announce(I: Selection, classes: Sequence[str], t: int) -> bool:
    """Say which classes are closed; False where no class has an image to offer."""
    closed = [name for name, stop in zip(classes, I.stop, strict=True) if stop == CLOSED]
    if closed:
        log.warning("round %d: closed, no threshold reaches the precision on val_in: %s", t + 1, ", ".join(closed))
    if len(I) == 0:
        log.warning(
            "round %d: no pool image lies above its class's threshold; the run ends with round %d as its last", t + 1, t
        )
    return len(I) > 0


def seeded(make_model: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU
        torch.manual_seed(seed)
        return make_model()
