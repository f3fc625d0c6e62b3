"""A run's classifier at work: calibrated probabilities, and `unknown` for what lies below its class's threshold."""

import logging
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
from odst.run.preparation import encoding_of, labels_of
from odst.run.round_folder import is_whole
from odst.run.round_note import thresholds_from_json
from odst.run.trust import check_code
from odst.training.precision import pick_device
from odst.vision.networks import make_network

log = logging.getLogger("odst")


@dataclass(frozen=True)
class Classifier:
    """One round of a run. Images are uint8 (n, height, width, 3) of the run's size, features float (n, d).

    That of a run on embeddings takes images of any size, and vectors of its backbone.
    """

    run: RunDir
    round: Which  # or labels-alone
    classes: tuple[str, ...]
    shape: tuple[int, ...]  # of one row
    temperature: float
    tau: np.ndarray  # (K,) log-odds a prediction must exceed; +inf: the class is closed
    model: nn.Module
    device: str

    @property
    def name(self) -> str:
        return "labels alone" if self.round == ALONE else f"round {self.round}"

    @cached_property
    def encoding(self) -> Encoding | None:
        """How it sees, of a run on embeddings: its backbone, opened when the first picture comes."""
        return encoding_of(self.run)

    @property
    def thresholds(self) -> dict[str, float]:
        """Per class the calibrated probability that a prediction must exceed to be trusted; 1.0 for a closed class."""
        with np.errstate(over="ignore"):
            return dict(zip(self.classes, (1 / (1 + np.exp(-self.tau))).tolist(), strict=True))

    def fit_of(self, asked: str | None) -> Fit:
        """How pictures are brought to size: as asked for, or as the run did it."""
        if asked is None:
            return self.run.config().data.fit
        if asked not in get_args(Fit):
            raise UserError(f"--fit: {asked!r} is none of {', '.join(get_args(Fit))}.")
        return cast(Fit, asked)

    def read(self, spec: str, fit: Fit, *, labelled: bool = False) -> ReadSet:
        """A source, whole in memory, as `logits` takes it."""
        pictures = open_sources(spec)[0].width is None
        if pictures and len(self.shape) == 1 and self.encoding is not None:
            return self.encoding.read(spec, self.run.config().data.size, fit, labelled=labelled)
        return read_set(spec, self.shape[0], fit, labelled=labelled)

    def logits(self, x: Images, name: str = "x") -> np.ndarray:
        """Of every row of x, float32 (n, K). `name` is what an error calls x."""
        check_images(name, x)
        if is_image(x) and len(self.shape) == 1 and self.encoding is not None:
            x = self.encoding.embed(x, self.run.config().data.fit)
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
        recipe = replace(self.run.config().recipe(), alpha=alpha, alpha_in=None, alpha_out=None)
        y, logits = labels_of(self.run, self.round)["val_in"], self.run.logits(self.round)
        out = logits.get("val_out")
        tau = thresholds(logits["val_in"], y, out, self.temperature, *recipe.alphas(out is not None)).tau
        return replace(self, tau=tau)


class Judgement(NamedTuple):
    label: str  # a class, or unknown
    confidence: float  # the calibrated probability of the nearest class
    nearest: str  # the most probable class


def load(
    run: str | Path, *, round: int | str | None = None, device: str = "auto", trust_code: bool = False
) -> Classifier:
    """The classifier of a run: the one that its final.json says to use, or that of the round asked for, or "labels-alone".
    The run's images are not needed."""
    folder = RunDir(Path(run), trust_code)
    info = folder.info()
    there = folder.finished_rounds()
    models: list[Which] = [*there, *([ALONE] if is_whole(folder.round(ALONE)) else [])]
    if round is None:
        round = _final_round(folder, there)
    elif isinstance(round, str) and round.isdecimal():
        round = int(round)
    if round not in models:
        raise UserError(f"{folder.path}: there is no round {round}. It has {', '.join(map(str, models))}.")
    note = folder.note(round)
    classes, shape = tuple(info["classes"]), tuple(info["shape"])
    network = folder.config().model.network()
    check_code(folder, network["name"])
    model = make_network(K=len(classes), shape=shape, blank=True, **network)
    return Classifier(
        run=folder,
        round=round,
        classes=classes,
        shape=shape,
        temperature=note["temperature"],
        tau=thresholds_from_json(note["thresholds"]).tau,
        model=folder.load_model(round, model).eval(),  # mean and spread come with the weights
        device=pick_device(device),
    )


def _final_round(folder: RunDir, there: list[int]) -> Which:
    if (final := folder.final()) is not None:
        use: Which = final.get("use", final["round"])  # an older odst knew of rounds only
        return use
    log.warning("%s is not finished: taking round %d, the last there is", folder.path, there[-1])
    return there[-1]
