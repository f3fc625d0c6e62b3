"""Recipe: one point of the method, and the paper's named points."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal

from odst.errors import UserError

MOST = 10**12  # images a class, or times the labelled ones: far more than there are pictures


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One point in the space of methods the paper compares. The defaults are ODST on CIFAR-10."""

    alpha: float = 0.998  # in-precision and out-quantile of the two thresholds
    alpha_in: float | None = None  # C: overrides alpha for the in-threshold
    alpha_out: float | None = None  # C: overrides alpha for the out-threshold
    in_threshold: bool = True  # C
    out_threshold: bool = True  # C
    promise: float | None = (
        None  # C: share of the images above the threshold that is to be related, instead of alpha_out
    )
    pick: Literal["top", "spread"] = "top"  # C: the k most confident above the threshold, or any k of those above
    rest_weight: float | Literal["auto"] = 1.0  # E: weight of the loss on U \ I; 0 is blind to the out-distribution
    spare: float | None = None  # E: the base's rest without what labels alone find as confident as this share of val_in
    damping: float = 0.5  # D: v = (1 - damping) p + damping / K
    ratio: tuple[float, ...] = (5, 10, 15)  # C: k = ratio[t] n / K, one entry per round
    k: tuple[int, ...] | None = None  # C: k outright, one entry per round (the paper's SVHN)
    max_copies: int | None = None  # C: cap on how often one image is repeated
    labelled_copies: int = 1  # E: how often each labelled image stands among a student's, so that few do not drown in I
    calibrate: Literal["ece", "nll", "none"] = "ece"  # A
    warm_start: bool = False  # E: start the student from its teacher
    closed_world: bool = False  # U holds task images only
    given_selection: bool = False  # C: I and its labels come from a file instead of a teacher

    def __post_init__(self) -> None:
        for name in ("alpha", "alpha_in", "alpha_out"):
            value = getattr(self, name)
            if value is not None and not 0 < value < 1:
                way_out = (
                    f"The paper's {value:g} % is {name} = {value / 100:g}."
                    if value > 1
                    else "The paper uses 0.998 and 0.98."
                )
                raise UserError(f"{name} is a fraction between 0 and 1, got {value:g}. {way_out}")
        if not 0 <= self.damping <= 1:
            raise UserError(
                f"damping is between 0 (soft labels) and 1 (uniform), got {self.damping:g}. The paper uses 0.5."
            )
        copies = self.labelled_copies
        if not isinstance(copies, Integral) or not 1 <= copies <= MOST:
            raise UserError(f"labelled_copies is a whole number from 1 to {MOST:,}, got {copies}. The paper uses 1.")
        check_weight(self.rest_weight)
        if self.spare is not None and not 0 < self.spare < 1:
            raise UserError(f"spare is a share of val_in between 0 and 1, such as 0.9, got {self.spare:g}.")
        if self.pick not in ("top", "spread"):
            raise UserError(f'pick is "top" (the k most confident) or "spread" (any k above), got {self.pick!r}.')
        self._check_promise()
        if any(not 0 < r <= MOST for r in self.ratio):
            raise UserError(
                f"ratio has one positive number per round, got {list(self.ratio)}. The paper uses [5, 10, 15]."
            )
        if self.k is not None and any(not 1 <= k <= MOST for k in self.k):
            raise UserError(
                f"k is from 1 to {MOST:,} in every round, got {list(self.k)}. Leave it out to use ratio · n / K."
            )
        if self.max_copies is not None and self.max_copies < 1:
            raise UserError(
                f"max_copies is at least 1, got {self.max_copies}. Leave it out for the paper's unlimited repeats."
            )

    def _check_promise(self) -> None:
        if self.promise is None:
            return
        if not 0 < self.promise < 1:
            percent = f" {self.promise:g} % is promise = {self.promise / 100:g}." if 1 < self.promise < 100 else ""
            raise UserError(
                f"promise is a share of related images between 0 and 1, such as 0.9, got {self.promise:g}.{percent}"
            )
        if self.alpha_out is not None:
            raise UserError(
                f"promise and alpha_out both set the out-threshold, got {self.promise:g} and {self.alpha_out:g}. Leave one out."
            )
        if self.pick == "top":
            raise UserError(
                f'promise is of all images above the threshold, and pick = "top" takes the most confident of them, got '
                f'promise = {self.promise:g}. Set pick = "spread".'
            )

    @property
    def weight(self) -> float:
        """rest_weight as the number that it is once `settle` has seen to "auto"."""
        if self.rest_weight == "auto":
            raise UserError(
                'rest_weight: "auto" is settled with the base. Go on from a round with the recipe that odst.settle gave.'
            )
        return self.rest_weight

    @property
    def needs_labels_alone(self) -> bool:
        """Whether the base is made with the help of a model that has seen the labelled images alone."""
        return self.rest_weight == "auto" or (self.spare is not None and self.rest_weight > 0)

    @property
    def rounds(self) -> int:
        return len(self.ratio if self.k is None else self.k)

    def of_full_run(self, rounds: Sequence) -> tuple:
        """Of one entry for each round of a full run, this method's: one-shot takes the last, supervised and oe none."""
        return tuple(rounds)[{0: slice(0), 1: slice(-1, None)}.get(self.rounds, slice(None))]

    def alphas(self, val_out: bool) -> tuple[float | None, float | None]:
        """Of the in- and the out-threshold; None for one that the method, or a run without val_out, does without."""
        alpha_in = (self.alpha_in or self.alpha) if self.in_threshold else None
        alpha_out = (self.alpha_out or self.alpha) if self.out_threshold and val_out else None
        return alpha_in, alpha_out

    def per_class(self, t: int, n: int, K: int) -> int:
        """k of round t: the most images one class may take."""
        k = self.k[t] if self.k is not None else round(self.ratio[t] * n / K)
        if k < 1:
            raise UserError(
                f"k = ratio[{t}]·n/K = {self.ratio[t]:g}·{n}/{K} rounds to 0 images a class. Raise method.ratio or set method.k."
            )
        return k


def check_weight(weight: object) -> None:
    """What rest_weight may be."""
    if weight != "auto" and (
        isinstance(weight, bool) or not isinstance(weight, Real) or not 0 <= float(weight) < math.inf
    ):
        raise UserError(
            f'rest_weight is a number from 0 up, or "auto", got {weight!r}. The paper uses 1, and 0 for st; "auto" is for few '
            "labels."
        )


ODST = Recipe()
ST = Recipe(out_threshold=False, rest_weight=0.0)
ST_OT = Recipe(rest_weight=0.0)
ST_CW = Recipe(out_threshold=False, rest_weight=0.0, closed_world=True)
UNIFORM_REST = Recipe(damping=1.0)
SOFT_REST = Recipe(damping=0.0)
ONE_SHOT = Recipe(ratio=(15,))
SUPERVISED = Recipe(rest_weight=0.0, ratio=())
OE = Recipe(damping=1.0, ratio=())
GIVEN = Recipe(rest_weight=0.0, ratio=(10,), given_selection=True)

METHODS: dict[str, tuple[Recipe, str]] = {
    "odst": (ODST, "both thresholds, damped soft labels on the rest: the paper's method"),
    "st": (ST, "plain self-training: no out-threshold, no loss on the rest, base trained on the labelled images alone"),
    "st-ot": (ST_OT, "st with the out-threshold"),
    "st-cw": (ST_CW, "st on a closed-world pool: only task images in it"),
    "uniform-rest": (UNIFORM_REST, "odst with uniform targets on the rest ('hard labels' in the paper's ablation)"),
    "soft-rest": (SOFT_REST, "odst with undamped soft labels on the rest ('no label smoothing')"),
    "one-shot": (ONE_SHOT, "odst in one round with the last ratio ('non-iterative')"),
    "supervised": (SUPERVISED, "the labelled images only; with labelled extra data it is the upper bound"),
    "oe": (OE, "the base of odst alone: an Outlier Exposure classifier"),
    "given-selection": (GIVEN, "the selected images and their labels come from a file (the paper's 500k-TI)"),
}
