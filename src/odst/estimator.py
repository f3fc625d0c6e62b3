"""The scheme as a scikit-learn classifier: fit on labelled rows, a pool and rows of none of the classes, all in memory."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data
from torch import nn

from odst.data.checks import check_finite
from odst.data.images import Data, Images, Labelled, Pool, check_images
from odst.data.sets import hold_out, share_of_classes
from odst.errors import UserError
from odst.evaluation.scoring import best_round, score
from odst.method.calibration import probabilities, top_log_odds
from odst.method.labelling import infer
from odst.recipe import METHODS, Recipe
from odst.rounds import Round
from odst.seeds import stream
from odst.self_training import self_train
from odst.training.precision import pick_device
from odst.training.schedule import Phase, Schedule
from odst.vision.networks import make_network

POOL, OUT = -1, -2  # in y: a row of the pool, a row of none of the classes
STEPS, PASSES = 300, 20  # a training is at least so many steps, and at least so many passes over the labelled rows
REPORTED = ("round", "val_error", "val_od_auroc", "temperature", "selected", "above", "repeats")


class ODSTClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Out-distribution aware self-training on features (float, n×D) or images (uint8, n×H×W×3).

    Parameters
    ----------
    method : one of `odst methods`; st, supervised and oe need no out rows
    alpha : in-precision and out-quantile of the two thresholds
    ratio : images a class may take, as a multiple of the labelled rows a class, one entry per round; None: the method's own
    max_copies : how often one selected row may be repeated; None: no cap
    model : a network's name; auto: mlp for features, small for images
    val_fraction : share of each class's labelled rows that becomes val_in, where fit is given none
    steps : of each training; None: 300, or 20 passes over the labelled rows if that is more
    batch : labelled and selected rows of a step, beside as many of the rest
    lr : learning rate at the start; it falls to 0 along a cosine
    augment : of images, for example ("crop:4", "flip")
    device : auto, cpu, cuda or mps
    random_state : the same int gives the same classifier

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_ : as everywhere in scikit-learn; images have H·W·3 features
    model_ : the network of the chosen round
    rounds_ : one dict per round: val_error, val_od_auroc, temperature, and of its selection selected, above, repeats
    round_ : the chosen one: the lowest val_error that does not give up val_od_auroc
    temperature_ : that divides the chosen round's logits
    thresholds_ : (K,) calibrated probability a prediction must exceed to be trusted; 1: no threshold is precise enough
    selected_ : per student the pool rows it was trained on: rows of `unlabelled`, or of X where y = -1 marks them
    """

    def __init__(
        self,
        *,
        method: str = "odst",
        alpha: float = 0.98,
        ratio: Sequence[float] | None = None,
        max_copies: int | None = 3,
        model: str = "auto",
        val_fraction: float = 0.25,
        steps: int | None = None,
        batch: int = 64,
        lr: float = 0.03,
        augment: Sequence[str] = (),
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
    ):
        self.method = method
        self.alpha = alpha
        self.ratio = ratio
        self.max_copies = max_copies
        self.model = model
        self.val_fraction = val_fraction
        self.steps = steps
        self.batch = batch
        self.lr = lr
        self.augment = augment
        self.device = device
        self.random_state = random_state

    def fit(
        self, X: Any, y: Any, *, unlabelled: Any = None, out: Any = None, val_in: tuple[Any, Any] | None = None
    ) -> "ODSTClassifier":
        """Run the scheme and keep its best round.

        The pool is `unlabelled` (an array, or an `odst.Pool` on disk) or the rows of X with y = -1; rows of none of the
        classes are `out` or the rows of X with y = -2. `val_in` is a pair (rows, labels); without it a part of the labelled
        rows is held back. Without a pool the labelled rows alone are learned, with a warning.
        """
        seed = _seed(self.random_state)
        y = validate_data(self, y=y)
        X = self._rows("X", X, reset=True)
        check_consistent_length(X, y)
        data = self._data(X, y, unlabelled, out, val_in, seed)
        recipe = self._recipe(data)
        device = pick_device(self.device)
        make_model = self._network(data)
        metrics: list[dict[str, Any]] = []
        self.selected_ = []
        for round_ in self_train(recipe, data, make_model, [self._schedule(data)], seed=seed, device=device):
            metrics.append(score(round_, data, device).metrics)
            if round_.selection is not None:
                self.selected_.append(round_.selection.ids)
            if best_round(metrics) == round_.t:
                self._keep(round_)
        self.rounds_ = [{name: one[name] for name in REPORTED} for one in metrics]
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """Calibrated probabilities, (n, K) in the order of `classes_`."""
        return probabilities(self._logits(X), self.temperature_)

    def predict(self, X: Any, unknown: Any = None) -> np.ndarray:
        """The most probable class; with `unknown`, that label for rows where it is not above its threshold."""
        c, odds = top_log_odds(self._logits(X), self.temperature_)
        labels: np.ndarray = self.classes_[c]
        if unknown is None:
            return labels
        alike = np.asarray(unknown).dtype.kind == labels.dtype.kind
        trusted: np.ndarray = np.where(odds > self._tau[c], labels if alike else labels.astype(object), unknown)
        return trusted

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy over the rows that have a label: those with y = -1 or -2 are left out, so that X may hold the pool."""
        y = column_or_1d(y)
        known = ~(_marked(y, POOL) | _marked(y, OUT))
        if not known.any():
            raise UserError(
                f"y: all {len(y)} rows are marked -1 or -2, none has a label to compare with. Add labelled rows."
            )
        weight = None if sample_weight is None else np.asarray(sample_weight)[known]
        return float(accuracy_score(y[known], self.predict(X)[known], sample_weight=weight))

    # from what the user gives to what the loop takes

    def _rows(self, name: str, X: Any, reset: bool = False) -> Images:
        """Images as they are, features as floats; of the shape that fit saw."""
        if getattr(X, "ndim", 2) == 4:
            check_images(name, X)
            rows: Images = np.asarray(X)
            if reset:
                self.n_features_in_ = math.prod(rows.shape[1:])
        else:
            with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, and is told of
                rows = validate_data(self, X, reset=reset, dtype=[np.float32, np.float16], ensure_all_finite=False)
            check_finite(name, rows)
        if reset:
            self._shape = tuple(rows.shape[1:])
        if tuple(rows.shape[1:]) != self._shape:
            raise UserError(
                f"{name}: its rows have shape {tuple(rows.shape[1:])}, and the classifier was fitted on rows of {self._shape}. "
                "Bring them to that shape."
            )
        return rows

    def _data(
        self, X: Images, y: np.ndarray, unlabelled: Any, out: Any, val_in: tuple[Any, Any] | None, seed: int
    ) -> Data:
        in_pool, is_out = _marked(y, POOL), _marked(y, OUT)
        labelled = np.flatnonzero(~(in_pool | is_out))
        if len(labelled) == 0:
            raise UserError("y: every row is marked -1 (pool) or -2 (none of the classes). Label at least two classes.")
        check_classification_targets(y[labelled])
        self.classes_, codes = np.unique(y[labelled], return_inverse=True)
        for name, rows, marker in (("unlabelled", unlabelled, in_pool), ("out", out, is_out)):
            if rows is not None and marker.any():
                raise UserError(
                    f"{name}: given, and {marker.sum()} rows of X are marked {POOL if marker is in_pool else OUT} as well. Do one."
                )
        if in_pool.any():
            pool: Pool | None = Pool(X, excluded=np.flatnonzero(~in_pool))  # row j of X keeps its number
        elif unlabelled is None or isinstance(unlabelled, Pool):
            pool = unlabelled
        else:
            pool = Pool(self._rows("unlabelled", unlabelled))
        if is_out.any():
            val_out: Images | None = X[is_out]
        else:
            val_out = None if out is None else self._rows("out", out)
        if val_in is None:
            held = hold_back(codes, self.val_fraction, seed)
            inside = Labelled(X[labelled[held]], codes[held])
            labelled, codes = np.delete(labelled, held), np.delete(codes, held)
        else:
            inside = Labelled(self._rows("val_in", val_in[0]), self._codes(val_in[1]))
        return Data(Labelled(X[labelled], codes), pool, inside, val_out, classes=tuple(map(str, self.classes_)))

    def _codes(self, y: Any) -> np.ndarray:
        y = column_or_1d(y)
        foreign = [label for label in np.unique(y).tolist() if label not in set(self.classes_.tolist())]
        if foreign:
            raise UserError(
                f"val_in: class {foreign[0]!r} has no labelled row in X. Label some, or leave it out of val_in."
            )
        codes: np.ndarray = np.searchsorted(self.classes_, y)
        return codes

    def _recipe(self, data: Data) -> Recipe:
        if self.method not in METHODS or METHODS[self.method][0].given_selection:
            names = [name for name, (recipe, _) in METHODS.items() if not recipe.given_selection]
            raise UserError(f"method: {self.method!r} is not one of {', '.join(names)}.")
        recipe = replace(METHODS[self.method][0], alpha=self.alpha, max_copies=self.max_copies)
        if self.ratio is not None:
            recipe = replace(recipe, ratio=recipe.of_full_run(self.ratio))
        if data.pool is None and (recipe.rounds or recipe.rest_weight):
            warnings.warn("no pool rows: the labelled rows alone are learned", UserWarning, stacklevel=3)
            return replace(recipe, ratio=(), rest_weight=0.0)
        if recipe.rounds and recipe.out_threshold and data.val_out is None:
            raise UserError(
                f"out: {self.method} sets its out-threshold on rows of none of the classes, and there are none. "
                "Give fit(..., out=rows), mark such rows of X with y = -2, or take method='st'."
            )
        return recipe

    def _schedule(self, data: Data) -> Schedule:
        steps = self.steps
        if steps is None:
            steps = max(STEPS, math.ceil(PASSES * len(data.labelled) / self.batch))
        phase = Phase(steps=steps, lr=self.lr, shape="cosine", augment=tuple(self.augment))
        return Schedule(phases=(phase,), batch=self.batch)

    def _network(self, data: Data) -> Callable[[], nn.Module]:
        name = ("mlp" if len(self._shape) == 1 else "small") if self.model == "auto" else self.model
        return partial(make_network, name, data.K, data.labelled.x)

    # from what the loop yields to what the user asks for

    def _keep(self, round_: Round) -> None:
        self.round_ = round_.t
        self.model_ = round_.model.to("cpu")
        self.temperature_ = round_.temperature
        self._tau = round_.thresholds.tau
        with np.errstate(over="ignore"):
            self.thresholds_ = 1 / (1 + np.exp(-self._tau))

    def _logits(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return infer(self.model_, self._rows("X", X), device=pick_device(self.device))


def _marked(y: np.ndarray, marker: int) -> np.ndarray:
    """Where y is the mark, as a number or as text: scikit-learn's splitters cannot sort an array that mixes the two."""
    y = y.astype(object)
    return np.asarray((y == marker) | (y == str(marker)), bool)


def _seed(random_state: int | np.random.RandomState | None) -> int:
    if isinstance(random_state, Integral):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def hold_back(y: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """The rows of val_in, class by class: at least one of each class that has two; a class's only row stays in T."""
    if not 0 < fraction < 1:
        raise UserError(
            f"val_fraction is between 0 and 1, got {fraction:g}. It is the share of the labelled rows for val_in."
        )
    counts, sizes = share_of_classes(y, fraction, K := int(y.max()) + 1)
    rows = hold_out(y, np.minimum(counts, sizes - 1).tolist(), [stream(seed, "val_in", c) for c in range(K)])
    if len(rows) == 0:
        raise UserError(
            f"y: {len(y)} labelled rows of {K} classes, one each: none is left for val_in. Label more, or give val_in."
        )
    return rows
