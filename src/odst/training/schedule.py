"""Schedules as plain data: a batch size and a few phases, each with its length, learning rate and augmentation."""

import math
from dataclasses import dataclass
from typing import Literal

from odst.errors import UserError

Precision = Literal["auto", "float32", "bfloat16", "float16"]


LARGEST = 10**6  # of an epoch, a batch or a decay
FASTEST = 1e38  # of a rate: beyond it float32 overflows


@dataclass(frozen=True, kw_only=True)
class Phase:
    """`epochs` or `steps` long; the learning rate goes from `lr` to `end` along a cosine or a line, or stays at `lr`."""

    lr: float  # the learning rate it begins with
    epochs: float | None = None  # its length in passes over T ∪ I
    steps: int | None = None  # its length in steps, instead of epochs
    shape: Literal["constant", "cosine", "linear"] = "constant"  # the way from lr to end
    end: float = 0.0  # the learning rate it ends with, but for "constant"
    augment: tuple[str, ...] = ()  # such as "crop:4", "flip", "cutout:16": docs/augmentation.md

    def __post_init__(self) -> None:
        if (self.epochs is None) == (self.steps is None) or not (self.epochs or self.steps or 0) > 0:
            raise UserError(
                f"training: a phase is either `epochs` or `steps` long, got epochs={self.epochs} steps={self.steps}."
            )
        for name, most in (("lr", FASTEST), ("end", FASTEST), ("epochs", LARGEST)):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= most:
                raise UserError(f"training: {name} of a phase is a number from 0 to {most:g}, got {value:g}.")
        if self.steps is not None and self.steps > LARGEST**2:
            raise UserError(f"training: steps of a phase are at most {LARGEST**2:g}, got {self.steps:g}.")

    def rate(self, progress: float) -> float:
        if self.shape == "constant":
            return self.lr
        weight = (1 + math.cos(math.pi * progress)) / 2 if self.shape == "cosine" else 1 - progress
        return self.end + (self.lr - self.end) * weight


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Nesterov SGD. Each step takes `batch` images of T ∪ I and as many of the rest."""

    batch: int = 128  # images of T ∪ I in a step, beside as many of the rest
    momentum: float = 0.9  # Nesterov's
    weight_decay: float = 5e-4  # on all weights
    backbone_lr: float = 1.0  # a factor on the learning rate of all layers but the last
    accumulate: int = 1  # parts that a step's batch goes through the network in: less memory, the same loss
    ema: float | None = None  # decay of a running mean of the weights, which is then what is judged and kept
    precision: Precision = "auto"  # of the forward and backward pass
    compile: bool = False  # torch.compile
    phases: tuple[Phase, ...]  # one after the other: what makes the training's length and rates

    def __post_init__(self) -> None:
        if not self.phases:
            raise UserError("training: a schedule needs at least one phase, got none.")
        if not 1 <= self.batch <= LARGEST:
            raise UserError(f"training.batch is from 1 to {LARGEST:g}, got {self.batch}.")
        if not 0 <= self.momentum < 1:
            raise UserError(f"training.momentum is at least 0 and below 1, got {self.momentum:g}. The paper uses 0.9.")
        if not 0 <= self.weight_decay <= LARGEST:
            raise UserError(
                f"training.weight_decay is from 0 to {LARGEST:g}, got {self.weight_decay:g}. The paper uses 5e-4."
            )
        if not 0 < self.backbone_lr <= LARGEST:
            raise UserError(
                f"training.backbone_lr is a factor above 0 on every phase's lr, such as 0.1, got {self.backbone_lr:g}. "
                'To keep the backbone as it is, set model.freeze = "backbone".'
            )
        if not 1 <= self.accumulate <= self.batch:
            raise UserError(f"training.accumulate is between 1 and the batch ({self.batch}), got {self.accumulate}.")
        if self.ema is not None and not 0 < self.ema < 1:
            raise UserError(f"training.ema is a decay between 0 and 1, such as 0.999, got {self.ema:g}.")

    def plan(self, examples: int) -> "Plan":
        return Plan(self, examples)


class Plan:
    """A schedule laid out in steps for a given number of images in T ∪ I."""

    def __init__(self, schedule: Schedule, examples: int):
        self.phases, self.batch, self.examples = schedule.phases, schedule.batch, examples
        self.ends: list[int] = []
        images = 0.0  # phases in epochs end where the epoch does: rounding each up to steps would drift
        for phase in self.phases:
            images += phase.steps * self.batch if phase.steps is not None else (phase.epochs or 0) * examples
            self.ends.append(math.ceil(round(images / self.batch, 6)))  # tenths of an epoch do not add up exactly
        self.steps = self.ends[-1]

    def at(self, step: int) -> tuple[Phase, float]:
        """The phase and the learning rate of a step."""
        i = next(i for i, end in enumerate(self.ends) if step < end)
        start = self.ends[i - 1] if i else 0
        return self.phases[i], self.phases[i].rate((step - start) / (self.ends[i] - start))

    def restart(self) -> int:
        """The step at which the learning rate last jumps up; 0 where it never does."""
        jumps = [i for i in range(1, len(self.phases)) if self.phases[i].lr > self.phases[i - 1].rate(1.0)]
        return self.ends[jumps[-1] - 1] if jumps else 0

    def checks(self) -> list[int]:
        """After how many steps val_in is asked which model to keep: within the last 20 % and after the last restart, at
        each epoch's end, or at five even points of a schedule in steps."""
        start = max(math.floor(0.8 * self.steps), self.restart())
        if self.phases[-1].epochs is None:
            points = [start + round((self.steps - start) * i / 5) for i in range(1, 6)]
        else:
            first, last = (steps * self.batch // self.examples for steps in (start, self.steps))
            points = [math.ceil(e * self.examples / self.batch) for e in range(first, last + 1)]
        return sorted({p for p in points if start < p <= self.steps} | {self.steps})
