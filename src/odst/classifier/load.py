"""A run's classifier at work: calibrated probabilities, and `unknown` for what lies below its class's threshold."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple, cast, get_args

import numpy as np
from safetensors.numpy import load_file
from torch import nn

from odst.data.checks import UNKNOWN
from odst.data.decoding import Fit
from odst.data.images import Images, check_images
from odst.data.items import Files, Part
from odst.data.sources import open_sources
from odst.data.workers import Batch, Decoder, decode_parts, decoder_for, processes_for
from odst.errors import UserError
from odst.method.calibration import probabilities, top_log_odds
from odst.method.labelling import infer
from odst.method.selection import thresholds
from odst.progress import stage
from odst.recipe import Recipe
from odst.run.directory import RunDir, thresholds_from_json
from odst.run.execution import sets_of
from odst.training.precision import pick_device
from odst.vision.networks import make_network

log = logging.getLogger("odst")

PICTURES = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".avif", ".ppm"}


@dataclass(frozen=True)
class Classifier:
    """One round of a run. Images are uint8 (n, height, width, 3) of the run's size, features float (n, d)."""

    run: RunDir
    round: int
    classes: tuple[str, ...]
    shape: tuple[int, ...]  # of one row
    temperature: float
    tau: np.ndarray  # (K,) log-odds a prediction must exceed; +inf: the class is closed
    model: nn.Module
    device: str

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

    def logits(self, x: Images, name: str = "x") -> np.ndarray:
        """Of every row of x, float32 (n, K). `name` is what an error calls x."""
        check_images(name, x)
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
        logits = self.logits(x)
        c, odds = top_log_odds(logits, self.temperature)
        confidence = probabilities(logits, self.temperature).max(axis=1, initial=0)
        return [
            Judgement(self.classes[k] if known else UNKNOWN, float(p), self.classes[k])
            for k, p, known in zip(c, confidence, odds > self.tau[c], strict=True)
        ]

    def at(self, alpha: float) -> "Classifier":
        """The same classifier with the thresholds of another alpha. It needs the run's validation labels."""
        Recipe(alpha=alpha)
        recipe = self.run.config().recipe()
        y = sets_of(self.run).val_in.y
        logits = load_file(self.run.round(self.round) / "logits.safetensors")
        out = logits.get("val_out")
        tau = thresholds(
            logits["val_in"], y, out, self.temperature,
            alpha if recipe.in_threshold else None,
            alpha if recipe.out_threshold and out is not None else None,
        ).tau  # fmt: skip
        return replace(self, tau=tau)


class Judgement(NamedTuple):
    label: str  # a class, or unknown
    confidence: float  # the calibrated probability of the nearest class
    nearest: str  # the most probable class


def load(run: str | Path, *, round: int | None = None, device: str = "auto") -> Classifier:
    """The classifier of a run: of its final round, or of the one asked for. The run's images are not needed."""
    folder = RunDir(Path(run))
    info = folder.info()
    there = folder.rounds()
    if not there:
        raise UserError(f"{folder.path}: no round of this run is finished yet. Go on with `odst run {folder.path}`.")
    if round is None:
        round = _final_round(folder, there)
    if round not in there:
        raise UserError(f"{folder.path}: there is no round {round}. It has {', '.join(map(str, there))}.")
    note = folder.note(round)
    classes, shape = tuple(info["classes"]), tuple(info["shape"])
    channels = shape[-1]
    model = make_network(folder.config().model.name, len(classes), shape, [0.0] * channels, [1.0] * channels)
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


def _final_round(folder: RunDir, there: list[int]) -> int:
    if (final := folder.final()) is not None:
        return final["round"]
    log.warning("%s is not finished: taking round %d, the last there is", folder.path, there[-1])
    return there[-1]


# whole sources ---------------------------------------------------------------------------------------------------------------


class Answer(NamedTuple):
    """One row per item of a source, whatever became of it."""

    source: str
    label: str  # a class, unknown, or empty where it could not be read
    confidence: float | None
    nearest: str
    reason: str  # why it could not be read


def answer(classifier: Classifier, specs: list[str], fit: Fit) -> Iterator[list[Answer]]:
    """Every item of every source, single pictures first, a few hundred at a time; memory does not grow with their number.

    Sources that cannot be read are refused at once, before the first answer is asked for.
    """
    singles = [spec for spec in specs if Path(spec).is_file() and Path(spec).suffix.lower() in PICTURES]
    sources = open_sources([spec for spec in specs if spec not in singles]) if len(singles) < len(specs) else []
    features = len(classifier.shape) == 1
    for source in sources:
        if (source.width is not None) != features or (features and source.width != classifier.shape[0]):
            takes = f"features of length {classifier.shape[0]}" if features else "images"
            gives = "images" if source.width is None else f"features of length {source.width}"
            raise UserError(f"{source.name}: this run's classifier takes {takes}, and this source holds {gives}.")
    if not features and classifier.shape[0] != classifier.shape[1]:
        raise UserError(
            f"{classifier.run.path}: sources are read as squares, and this run has {classifier.shape[:2]} images. Use odst.load()."
        )
    decoder = decoder_for(sources, classifier.shape[0], fit) if sources else Decoder(classifier.shape[0], fit)
    parts: list[Part] = [Files(b"", "", [(str(Path(spec).absolute()).encode(), None, "")]) for spec in singles]
    total = len(singles) + sum(source.count() for source in sources)

    def every() -> Iterator[Part]:
        yield from parts
        for source in sources:
            yield from source.parts(0, decoder.part_length)

    def answers() -> Iterator[list[Answer]]:
        workers = processes_for(total, decoder)
        with stage("predict", total, "images") as advance:
            for batch in decode_parts(every(), decoder, workers):
                yield _answers(classifier, batch)
                advance(batch.items)

    return answers()


def _answers(classifier: Classifier, batch: Batch) -> list[Answer]:
    rows: dict[int, Answer] = {}
    for record, one in zip(batch.records, classifier.judge(batch.rows), strict=True):
        rows[record.place] = Answer(record.uri, one.label, one.confidence, one.nearest, "")
    for refusal in batch.rejected:
        reason = f"{refusal.reason}: {refusal.detail}" if refusal.detail else refusal.reason
        rows[refusal.place] = Answer(refusal.uri, "", None, "", reason)
    return [rows[place] for place in sorted(rows)]
