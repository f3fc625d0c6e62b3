"""A round: a model with its own temperature and thresholds, and the selection it was trained on."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import nn

from odst.data.images import Data
from odst.method.calibration import fit_temperature
from odst.method.labelling import infer
from odst.method.selection import Selection, Thresholds, thresholds
from odst.recipe import Recipe


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


def calibrated(recipe: Recipe, data: Data, t: int, model: nn.Module, I: Selection | None, device: str) -> Round:
    """Step A and the thresholds of step C, for every round, the last included."""
    logits_in = infer(model, data.val_in.x, device=device)
    logits_out = None if data.val_out is None else infer(model, data.val_out, device=device)
    temperature = fit_temperature(logits_in, data.val_in.y, recipe.calibrate)
    tau = thresholds(logits_in, data.val_in.y, logits_out, temperature, *recipe.alphas(logits_out is not None))
    return Round(t, model, temperature, tau, I, logits_in, logits_out)


def seeded(make_model: Callable[[], nn.Module], seed: int) -> nn.Module:
    with torch.random.fork_rng(devices=[]):  # weights are drawn on the CPU
        torch.manual_seed(seed)
        return make_model()
