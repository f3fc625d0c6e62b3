"""A run's classifier on any labelled or out-distribution set: its measures by name, with intervals."""

import logging
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from odst.classifier.model import Classifier
from odst.classifier.scanning import decoder_of, is_large, look
from odst.data.decoding import Fit
from odst.data.images import Images
from odst.data.part_files import reopening
from odst.data.pool import is_packed
from odst.data.reading import check_read
from odst.data.sets import class_numbers
from odst.data.sources import open_sources
from odst.errors import UserError
from odst.evaluation.corruptions import corruption_errors, published_corruption_errors, published_labels
from odst.evaluation.metrics import classifier_measures, detector_measures
from odst.run.preparation import labels_of, sets_of
from odst.vision.corruptions import CORRUPTIONS

log = logging.getLogger("odst")


def assess(
    classifier: Classifier,
    logits: np.ndarray,
    y: np.ndarray,
    outs: dict[str, np.ndarray],
    *,
    corrupted: Images | Path | None = None,
) -> dict[str, Any]:
    """Error, calibration, detection and, where asked for, corruption error; ready for JSON.

    `logits` and `outs` are the classifier's. `corrupted` is the images of y, for the 15 corruptions to be made on, or a
    folder of CIFAR-10-C or CIFAR-100-C.
    """
    temperature = classifier.temperature
    seed = 0 if classifier.run is None else classifier.run.info()["seed"]
    found: dict[str, Any] = {
        "round": classifier.round,
        "temperature": temperature,
        "images": len(y),
        **classifier_measures(logits, y, temperature, seed=seed),
    }
    if outs:
        found["out"] = {
            name: {"images": len(out), **detector_measures(logits, out, temperature, seed=seed)}
            for name, out in outs.items()
        }
        found["od_auroc"] = float(np.mean([one["auroc"] for one in found["out"].values()]))

    def predict(x: np.ndarray) -> np.ndarray:
        return classifier.logits(x, "the corrupted images").argmax(axis=1)

    if corrupted is not None:
        if len(classifier.shape) == 1:
            raise UserError("--corruptions: corruptions are made on images, and this run works on features.")
        if isinstance(corrupted, Path):
            published_labels(corrupted, len(classifier.classes))
            errors = published_corruption_errors(predict, corrupted)
        else:
            errors = corruption_errors(predict, corrupted, y, seed=seed)
        found["corruption_error"] = float(errors.mean())
        found["corruption_errors"] = dict(zip(CORRUPTIONS, errors.tolist(), strict=True))
    return found


class Scored(NamedTuple):
    """A source seen by a classifier."""

    logits: np.ndarray
    labels: list[str] | None
    x: Images | None  # where it fits in memory


def labelled_source(
    classifier: Classifier, spec: str, fit: Fit, folder: Path | None = None, *, images: bool = True
) -> tuple[np.ndarray, np.ndarray, Images | None]:
    """Logits, class numbers and images of a labelled source whose classes are the run's, by name. A large one is seen where
    the engine is, its parts in `folder`, and its images are not kept, unless `images` are needed."""
    found = _score(classifier, spec, fit, folder, "the labelled images", labelled=True, images=images)
    advice = "Those are the run's; unrelated images go in with --out NAME=SOURCE."
    return found.logits, class_numbers(spec, found.labels or (), classifier.classes, advice=advice), found.x


def _score(
    classifier: Classifier,
    spec: str,
    fit: Fit,
    folder: Path | None,
    name: str,
    *,
    labelled: bool = False,
    images: bool = False,
) -> Scored:
    sources = open_sources(spec)
    # the rows of a packed pool have their vectors beside them, where the classifier is to see vectors
    stored = len(classifier.shape) == 1 and any(is_packed(Path(source.name)) for source in sources)
    if images or stored or not is_large(sources):
        read = classifier.read(spec, fit, labelled=labelled)
        return Scored(classifier.logits(read.x, name), read.labels, read.x)
    reopen, decoder = reopening([spec]), decoder_of(classifier, sources, fit)
    batches = list(look(classifier, sources, [spec], decoder, reopen, folder, f"see {name}"))
    records = [record for batch in batches for record in batch.records]
    labels = check_read(sources, records, [no for batch in batches for no in batch.rejected], labelled)
    return Scored(np.concatenate([batch.rows for batch in batches]), labels, None)


def out_sources(
    classifier: Classifier, texts: list[str], fit: Fit, folder: Path | None = None
) -> dict[str, np.ndarray]:
    """Each NAME=SOURCE of images of none of the classes, by name: the classifier's logits of them."""
    outs: dict[str, np.ndarray] = {}
    for text in texts:
        name, sign, spec = text.partition("=")
        if not (name and sign and spec):
            raise UserError(f"--out takes NAME=SOURCE, got {text!r}. For example: --out flowers=flowers.parquet")
        if name in outs:
            raise UserError(f"--out: the name {name!r} is given twice. Give each set a name of its own.")
        place = None if folder is None else folder / f"out-{len(outs)}"
        outs[name] = _score(classifier, spec, fit, place, f"--out {name}").logits
    return outs


class OwnSets(NamedTuple):
    """The run's test sets, or its val_in and val_out where it has none: what it kept of them when it scored them."""

    name: str
    logits: np.ndarray
    y: np.ndarray
    outs: dict[str, np.ndarray]  # logits


def own_sets(classifier: Classifier) -> OwnSets:
    run = classifier.of_run("evaluate on")
    labels, logits = labels_of(run, classifier.round), run.logits(classifier.round)
    if "test" in labels:
        outs = {name.removeprefix("out/"): z for name, z in logits.items() if name.startswith("out/")}
        return OwnSets("test", logits["test"], labels["test"], outs)
    outs = {"val_out": logits["val_out"]} if "val_out" in logits else {}
    return OwnSets("val_in", logits["val_in"], labels["val_in"], outs)


def own_images(classifier: Classifier) -> Images:
    """The images of `own_sets`, read again."""
    data = sets_of(classifier.of_run("evaluate on"))
    return data.val_in.x if data.test is None else data.test.x
