"""A run's classifier on any labelled or out-distribution set: its measures by name, with intervals."""

import logging
from pathlib import Path
from typing import Any

import numpy as np

from odst.classifier.load import Classifier
from odst.data.decoding import Fit
from odst.data.images import Images, Labelled, is_image
from odst.data.items import label_text
from odst.data.reading import ReadSet, read_set
from odst.errors import UserError
from odst.evaluation.corruptions import corruption_errors, published_corruption_errors, published_labels
from odst.evaluation.metrics import classifier_measures, detector_measures
from odst.run.execution import sets_of
from odst.vision.corruptions import CORRUPTIONS

log = logging.getLogger("odst")


def assess(
    classifier: Classifier,
    on: Labelled,
    outs: dict[str, Images],
    *,
    seed: int,
    corruptions: bool = False,
    published: Path | None = None,
) -> dict[str, Any]:
    """Error, calibration, detection and, where asked for, corruption error; ready for JSON.

    `published` is a folder of CIFAR-10-C or CIFAR-100-C; `corruptions` makes the same 15 on the images of `on`.
    """
    logits = classifier.logits(on.x, "the labelled images")
    temperature = classifier.temperature
    found: dict[str, Any] = {
        "round": classifier.round,
        "temperature": temperature,
        "images": len(on),
        **classifier_measures(logits, on.y, temperature, seed=seed),
    }
    if outs:
        found["out"] = {
            name: {
                "images": len(x),
                **detector_measures(logits, classifier.logits(x, f"--out {name}"), temperature, seed=seed),
            }
            for name, x in outs.items()
        }
        found["od_auroc"] = float(np.mean([one["auroc"] for one in found["out"].values()]))

    def predict(x: np.ndarray) -> np.ndarray:
        return classifier.logits(x, "the corrupted images").argmax(axis=1)

    if corruptions or published is not None:
        if not is_image(on.x):
            raise UserError("--corruptions: corruptions are made on images, and this run works on features.")
        if published is not None:
            published_labels(published, len(classifier.classes))
        errors = (
            corruption_errors(predict, on.x, on.y, seed=seed)
            if published is None
            else published_corruption_errors(predict, published)
        )
        found["corruption_error"] = float(errors.mean())
        found["corruption_errors"] = dict(zip(CORRUPTIONS, errors.tolist(), strict=True))
    return found


def labelled_source(classifier: Classifier, spec: str, fit: Fit) -> Labelled:
    """A labelled source whose classes are the run's, by name."""
    read = _read(classifier, spec, fit, labelled=True)
    assert read.labels is not None
    number = {label_text(name): c for c, name in enumerate(classifier.classes)}
    strange = sorted({name for name in read.labels if name not in number})
    if strange:
        raise UserError(
            f"{spec}: {', '.join(map(repr, strange[:3]))} {'is' if len(strange) == 1 else 'are'} no class of this run. "
            f"Its classes: {', '.join(classifier.classes[:12])}{', …' if len(classifier.classes) > 12 else ''}. "
            "Unrelated images go in with --out NAME=SOURCE."
        )
    return Labelled(read.x, np.array([number[name] for name in read.labels], np.int64))


def out_sources(classifier: Classifier, texts: list[str], fit: Fit) -> dict[str, Images]:
    """Each NAME=SOURCE of images of none of the classes, by name."""
    outs: dict[str, Images] = {}
    for text in texts:
        name, sign, spec = text.partition("=")
        if not (name and sign and spec):
            raise UserError(f"--out takes NAME=SOURCE, got {text!r}. For example: --out flowers=flowers.parquet")
        if name in outs:
            raise UserError(f"--out: the name {name!r} is given twice. Give each set a name of its own.")
        outs[name] = _read(classifier, spec, fit).x
    return outs


def _read(classifier: Classifier, spec: str, fit: Fit, *, labelled: bool = False) -> ReadSet:
    read = read_set(spec, classifier.shape[0], fit, labelled=labelled)
    if read.rejected:
        first = read.rejected[0]
        log.warning(
            "%s: %d images could not be used; the first: %s: %s", spec, len(read.rejected), first.uri, first.reason
        )
    return read


def own_sets(classifier: Classifier) -> tuple[str, Labelled, dict[str, Images]]:
    """The run's own test sets; its val_in and val_out where it has none."""
    data = sets_of(classifier.run)
    if data.test is not None:
        return "test", data.test, data.out_tests
    return "val_in", data.val_in, {} if data.val_out is None else {"val_out": data.val_out}
