"""A classifier at work: calibrated probabilities, and `unknown` for what lies below its class's threshold."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, cast, get_args

import numpy as np
from torch import nn

from odst.data.checks import UNKNOWN
from odst.data.decoding import Fit
from odst.data.encoding import Encoding
from odst.data.images import Images, check_images, is_image
from odst.data.reading import ReadSet, read_set
from odst.data.sources import open_sources
from odst.errors import UserError
from odst.method.calibration import probabilities, top_log_odds
from odst.method.labelling import infer
from odst.method.selection import thresholds
from odst.run.bases import ALONE
from odst.run.directory import RunDir, Which
from odst.run.preparation import labels_of


@dataclass(frozen=True)
class Classifier:
    """One round of a run, or a model folder that was made of one. Images are uint8 (n, height, width, 3) of the run's size, features float (n, d).

    That of a run on embeddings takes images of any size, and vectors of its backbone.
    """

    path: Path  # of the run or the folder
    run: RunDir | None  # None for a model folder, which holds no sets
    round: Which  # or labels-alone
    classes: tuple[str, ...]
    shape: tuple[int, ...]  # of one row
    temperature: float
    tau: np.ndarray  # (K,) log-odds a prediction must exceed; +inf: the class is closed
    model: nn.Module
    device: str
    size: int  # of the pictures that sources are read at
    fit: Fit
    see: Callable[[], Encoding | None]  # opens its backbone, if it has one

    @property
    def name(self) -> str:
        return "labels alone" if self.round == ALONE else f"round {self.round}"

    @cached_property
    def encoding(self) -> Encoding | None:
        """How it sees, of a run on embeddings: its backbone, opened when the first picture comes."""
        return self.see()

    def of_run(self, what: str) -> RunDir:
        """The run, for `what` a model folder does not hold."""
        if self.run is None:
            raise UserError(f"{self.path}: a model folder has no images to {what}. Take the run that it was made of.")
        return self.run

    @property
    def thresholds(self) -> dict[str, float]:
        """Per class the calibrated probability that a prediction must exceed to be trusted; 1.0 for a closed class."""
        with np.errstate(over="ignore"):
            return dict(zip(self.classes, (1 / (1 + np.exp(-self.tau))).tolist(), strict=True))

    def fit_of(self, asked: str | None) -> Fit:
        """How pictures are brought to size: as asked for, or as the run did it."""
        if asked is None:
            return self.fit
        if asked not in get_args(Fit):
            raise UserError(f"--fit: {asked!r} is none of {', '.join(get_args(Fit))}.")
        return cast(Fit, asked)

    def read(self, spec: str, fit: Fit, *, labelled: bool = False) -> ReadSet:
        """A source, whole in memory, as `logits` takes it."""
        pictures = open_sources(spec)[0].width is None
        if pictures and len(self.shape) == 1 and self.encoding is not None:
            return self.encoding.read(spec, self.size, fit, labelled=labelled)
        return read_set(spec, self.shape[0], fit, labelled=labelled)

    def logits(self, x: Images, name: str = "x") -> np.ndarray:
        """Of every row of x, float32 (n, K). `name` is what an error calls x."""
        check_images(name, x)
        if is_image(x) and len(self.shape) == 1 and self.encoding is not None:
            x = self.encoding.embed(x, self.fit)
        if tuple(x.shape[1:]) != self.shape:
            raise UserError(
                f"{name}: its rows have shape {tuple(x.shape[1:])}, and this classifier takes {self.shape}. "
                "Give it rows like those that the run was made on."
            )
        if len(x) == 0:
            return np.empty((0, len(self.classes)), np.float32)
        return infer(self.model, x, device=self.device)

    def predict_proba(self, x: Images) -> np.ndarray:
        """Calibrated probabilities, float64 (n, K)."""
        return probabilities(self.logits(x), self.temperature)

    def predict(self, x: Images) -> list[str]:
        """A class name, or "unknown" where the most probable class is not above its threshold."""
        return [one.label for one in self.judge(x)]

    def judge(self, x: Images) -> list["Judgement"]:
        return self.judge_logits(self.logits(x))

    def judge_logits(self, logits: np.ndarray) -> list["Judgement"]:
        c, odds = top_log_odds(logits, self.temperature)
        confidence = probabilities(logits, self.temperature).max(axis=1, initial=0)
        return [
            Judgement(self.classes[k] if known else UNKNOWN, float(p), self.classes[k])
            for k, p, known in zip(c, confidence, odds > self.tau[c], strict=True)
        ]

    def at(self, alpha: float) -> "Classifier":
        """The same classifier with the thresholds of another alpha."""
        run = self.of_run("set the thresholds of another alpha on")
        recipe = replace(run.config().recipe(), alpha=alpha, alpha_in=None, alpha_out=None)
        y, logits = labels_of(run, self.round)["val_in"], run.logits(self.round)
        out = logits.get("val_out")
        tau = thresholds(logits["val_in"], y, out, self.temperature, *recipe.alphas(out is not None)).tau
        return replace(self, tau=tau)


class Judgement(NamedTuple):
    label: str  # a class, or unknown
    confidence: float  # the calibrated probability of the nearest class
    nearest: str  # the most probable class
