"""The loop A to F of the paper's section 3.2."""

import logging
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path

import numpy as np
from torch import nn

from odst.data.checks import check_data
from odst.data.images import Data, Pool
from odst.few_labels import settle
from odst.method.labelling import Predictions
from odst.method.promise import promised
from odst.method.selection import CLOSED, Selection, select, shortages
from odst.method.stored import label, logits_folder
from odst.method.targets import Examples
from odst.recipe import Recipe
from odst.rounds import Round, calibrated, seeded
from odst.seeds import key
from odst.training.schedule import Schedule
from odst.training.steps import train

log = logging.getLogger("odst")


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

    `schedules` has one entry per round, the last one serving all later rounds. `start` is the round to go on from: with it
    rest_weight is a number, as `settle` gave it with the base. Fewer rounds come where nothing in the pool lies above the
    thresholds.
    """
    check_data(recipe, data, given)
    T, U, K = data.labelled, data.pool, data.K
    last = start

    if last is None:
        # The base classifier, eq. (1); it settles the weight of the rest where the recipe leaves that to val_in
        recipe, last = settle(
            recipe, data, make_model, schedules[0], seed=seed, device=device, scratch=scratch, checkpoint_seconds=checkpoint_seconds
        )  # fmt: skip
        yield last

    for t in range(last.t, recipe.rounds):
        # A) the teacher was calibrated on val_in when it was made: every round has its own temperature and thresholds
        teacher, temperature = last.model, last.temperature
        k = recipe.per_class(t, len(T), K)
        assert U is not None  # check_data has seen to it
        if given is None:
            # B) pseudo-label all of U
            folder = logits_folder(scratch, t) if scratch else None
            p = Predictions(
                label(teacher, U.x, folder, device=device, name=f"label pool {t}", identity=U.id), temperature
            )
            # C) per class, the k most confident samples above both thresholds
            tau, why = admission(recipe, p, last, U)
            I = select(
                p, tau, k, recipe.pick, excluded=U.excluded, max_copies=recipe.max_copies, seed=seed, t=t, closed=why,
                barred=U.barred,
            )  # fmt: skip
        else:
            p, I = None, given
        if not announce(I, recipe, data, last):
            return
        # D) q on I, v on the rest
        examples = Examples(T, U, p, I, recipe.damping, K, recipe.labelled_copies)
        # E) train the student, eq. (3)
        student = deepcopy(teacher) if recipe.warm_start else seeded(make_model, key(seed, "init", t + 1))
        student = train(
            student, examples, schedules[min(t + 1, len(schedules) - 1)], data.val_in, rest_weight=recipe.weight, seed=seed,
            t=t + 1, device=device, scratch=scratch, checkpoint_seconds=checkpoint_seconds,
        )  # fmt: skip
        # F) the student becomes the teacher
        yield (last := calibrated(recipe, data, t + 1, student, I, device))


def admission(recipe: Recipe, p: Predictions, teacher: Round, U: Pool) -> tuple[np.ndarray, dict[int, str]]:
    """What a pool image's log-odds must exceed, class by class, and why a class is closed where val_in does not close it."""
    if recipe.promise is None or not recipe.out_threshold:
        return teacher.thresholds.tau, {}
    assert teacher.logits_out is not None  # check_data has seen to it
    return promised(p, teacher.thresholds.inside, teacher.logits_out, recipe.promise, U.excluded, U.barred)


def announce(I: Selection, recipe: Recipe, data: Data, teacher: Round) -> bool:
    """Say which classes are closed and what would open them; False where no class has an image to offer."""
    t = teacher.t
    inside, alpha = teacher.thresholds.inside, recipe.alphas(val_out=True)[0]
    short = shortages(data.classes, inside, teacher.logits_in, data.val_in.y, teacher.temperature, alpha)
    if short and CLOSED in I.stop:
        log.warning("round %d: closed, no threshold reaches the precision on val_in: %s", t + 1, "; ".join(short))
    for name, stop in zip(data.classes, I.stop, strict=True):
        if stop.startswith("closed") and stop != CLOSED:
            log.warning("round %d: %s is %s", t + 1, name, stop)
    if len(I) == 0:
        log.warning(
            "round %d: no pool image lies above its class's threshold; the run ends with round %d as its last", t + 1, t
        )
    return len(I) > 0
