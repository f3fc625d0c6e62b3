"""The scheme as a scikit-learn classifier: fit on labelled rows, a pool and rows of none of the classes, all in memory."""

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from numbers import Integral
from typing import Any, Literal

import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d, validate_data
from torch import nn

from odst.data.checks import check_data, check_finite
from odst.data.images import Data, Images, Labelled, Pool, check_images
from odst.data.sets import hold_back
from odst.errors import UserError
from odst.evaluation.choice import choose
from odst.evaluation.scoring import score
from odst.few_labels import LABELLED_COPIES, SPARE, SPARE_IMAGES, WIDE, alphas_for, schedules, settled, trials
from odst.method.calibration import probabilities, top_log_odds
from odst.method.labelling import infer
from odst.recipe import METHODS, Recipe
from odst.rounds import Round
from odst.self_training import self_train
from odst.training.precision import pick_device
from odst.training.schedule import Phase, Schedule
from odst.vision.networks import make_network

POOL, OUT = -1, -2  # in y: a row of the pool, a row of none of the classes
STEPS, PASSES = 300, 20  # on images a training is at least so many steps, and so many passes over the labelled rows
REPORTED = ("round", "val_error", "val_od_auroc", "temperature", "selected", "above", "repeats")


class ODSTClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Out-distribution aware self-training on features (float, n×D) or images (uint8, n×H×W×3).

    Parameters
    ----------
    method : one of `odst methods`; st, supervised and oe need no out rows
    alpha : in-precision and out-quantile of the two thresholds; None: one for each, from the sizes of the sets
    ratio : images a class may take, as a multiple of the labelled rows a class, one entry per round; None: the method's own
    max_copies : how often one selected row may be repeated; None: no cap
    labelled_copies : how often each labelled row stands beside the selected ones
    rest_weight : of the pool's push to uniform confidence; auto: the largest that val_in shows to be harmless
    labels_alone : also learn the labelled rows alone, and keep that where no round is as good on val_in
    model : a network's name; auto: small for images, head for more than 100 features, else mlp
    val_fraction : share of each class's labelled rows that becomes val_in, where fit is given none
    steps : of each training; None: from the number of rows it learns
    batch : labelled and selected rows of a step, beside as many of the rest
    lr : learning rate at the start, which falls to 0 along a cosine; None: 0.01 for head, else 0.03
    augment : of images, for example ("crop:4", "flip")
    device : auto, cpu, cuda or mps
    random_state : the same int gives the same classifier

    Attributes
    ----------
    classes_, n_features_in_, feature_names_in_ : as everywhere in scikit-learn; images have H·W·3 features
    model_ : the network of the chosen round
    rounds_ : one dict per round: val_error, val_od_auroc, temperature, and of its selection selected, above, repeats
    round_ : the chosen one: the latest that does no harm and is as good as the best on val_in; or "labels-alone"
    labels_alone_ : the same of the labelled rows alone, and the verdict on the best round beside them; None without
    rest_weight_ : the weight that was taken
    temperature_ : that divides the chosen round's logits
    thresholds_ : (K,) calibrated probability a prediction must exceed to be trusted; 1: no threshold is precise enough
    selected_ : per student the pool rows it was trained on: rows of `unlabelled`, or of X where y = -1 marks them
    """

    def __init__(
        self,
        *,
        method: str = "odst",
        alpha: float | None = None,
        ratio: Sequence[float] | None = None,
        max_copies: int | None = 1,
        labelled_copies: int = LABELLED_COPIES,
        rest_weight: float | Literal["auto"] = "auto",
        labels_alone: bool = True,
        model: str = "auto",
        val_fraction: float = 0.25,
        steps: int | None = None,
        batch: int = 64,
        lr: float | None = None,
        augment: Sequence[str] = (),
        device: str = "auto",
        random_state: int | np.random.RandomState | None = None,
    ):
        self.method = method
        self.alpha = alpha
        self.ratio = ratio
        self.max_copies = max_copies
        self.labelled_copies = labelled_copies
        self.rest_weight = rest_weight
        self.labels_alone = labels_alone
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
        make_model, plans = self._network(data), self._schedules(data, recipe)
        check_data(recipe, data)
        beside = self.labels_alone and bool(recipe.rounds or recipe.rest_weight)
        tried = list(trials(recipe, data, make_model, plans[0], seed=seed, device=device, labels_alone=beside))
        base, recipe = tried[-1].base, settled(recipe, tried[-1].rest_weight)
        rounds = [base, *self_train(recipe, data, make_model, plans, seed=seed, start=base, device=device)]
        scores = [score(one, data, device) for one in rounds]
        alone = score(tried[0].base, data, device) if beside else None
        choice = choose(scores, alone, data.val_in.y, holds=tried[-1].holds)
        self._keep(tried[0].base if choice.alone else rounds[choice.round])
        self.round_ = tried[0].name if choice.alone else choice.round
        self.selected_ = [one.selection.ids for one in rounds if one.selection is not None]
        self.rounds_ = [{name: one.metrics[name] for name in REPORTED} for one in scores]
        self.labels_alone_ = None
        if alone is not None:
            self.labels_alone_ = {name: alone.metrics[name] for name in REPORTED[1:4]} | {"verdict": choice.verdict}
        self.rest_weight_ = recipe.weight
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
        alphas = alphas_for(data) if self.alpha is None else {"alpha": self.alpha}
        copies: dict[str, Any] = {"max_copies": self.max_copies, "labelled_copies": self.labelled_copies}
        recipe = replace(METHODS[self.method][0], **copies, **alphas)
        if recipe.rest_weight != 0:
            images = len(data.labelled.x.shape) == 4
            spare = None if self.rest_weight != "auto" else SPARE_IMAGES if images else SPARE
            recipe = replace(recipe, rest_weight=self.rest_weight, spare=spare)
        if self.ratio is not None:
            recipe = replace(recipe, ratio=recipe.of_full_run(self.ratio))
        if data.pool is None and (recipe.rounds or recipe.rest_weight):
            warnings.warn("no pool rows: the labelled rows alone are learned", UserWarning, stacklevel=3)
            return replace(recipe, ratio=(), rest_weight=0.0, spare=None)
        if recipe.rounds and recipe.out_threshold and data.val_out is None:
            raise UserError(
                f"out: {self.method} sets its out-threshold on rows of none of the classes, and there are none. "
                "Give fit(..., out=rows), mark such rows of X with y = -2, or take method='st'."
            )
        return recipe

    def _schedules(self, data: Data, recipe: Recipe) -> list[Schedule]:
        """One for the base, and one for each student; the last serves those for which there is none."""
        n, lr = len(data.labelled), self.lr
        if lr is None:
            lr = 0.01 if self._network_name() == "head" else 0.03
        if self.steps is None and len(self._shape) == 1 and self.batch > 0:
            m = 0 if data.pool is None else len(data.pool)
            return schedules(recipe, n, data.K, m, self.batch, lr)
        steps = self.steps if self.steps is not None else max(STEPS, math.ceil(PASSES * n / max(1, self.batch)))
        phase = Phase(steps=steps, lr=lr, shape="cosine", augment=tuple(self.augment))
        return [Schedule(phases=(phase,), batch=self.batch)]

    def _network_name(self) -> str:
        if self.model != "auto":
            return self.model
        return "small" if len(self._shape) == 3 else "head" if self._shape[0] > WIDE else "mlp"

    def _network(self, data: Data) -> Callable[[], nn.Module]:
        return partial(make_network, self._network_name(), data.K, data.labelled.x)

    # from what the loop yields to what the user asks for

    def _keep(self, round_: Round) -> None:
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
