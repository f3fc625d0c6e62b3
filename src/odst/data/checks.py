"""What must hold before a run spends an hour: each fault is one line with the way out."""

import numpy as np

from odst.data.images import Data, Images, check_images, is_counted, is_image
from odst.errors import UserError
from odst.recipe import Recipe

UNKNOWN = "unknown"  # the answer for an image that lies below its class's threshold


def check_data(recipe: Recipe, data: Data, given: object | None = None) -> None:
    T, K = data.labelled, data.K
    check_images("labelled", T.x)
    if K < 2:
        raise UserError(f"labelled: found {K} class ({', '.join(data.classes)}). A classifier needs at least two.")
    if UNKNOWN in data.classes:
        raise UserError(
            f"labelled: a class is called {UNKNOWN!r}, which is what odst calls an image of no class. "
            "Rename it; images of none of the classes go into data.val_out."
        )
    if len(T) < K:
        raise UserError(f"labelled: {len(T)} images for {K} classes. Every class needs at least one labelled image.")
    _check_labels("labelled", T.y, len(T), data.classes, every_class=True)
    if len(data.val_in) == 0:
        raise UserError(
            "val_in: it is empty. It calibrates the teacher and sets the thresholds: give a path or a fraction."
        )
    _check_labels("val_in", data.val_in.y, len(data.val_in), data.classes)
    others: dict[str, Images | None] = {"val_in": data.val_in.x, "val_out": data.val_out}
    others["pool"] = None if data.pool is None else data.pool.x
    others["test"] = None if data.test is None else data.test.x
    for name, x in {**others, **{f"out_test.{name}": x for name, x in data.out_tests.items()}}.items():
        if x is not None:
            check_images(name, x, like=T.x)
            check_finite(name, x)
    check_finite("labelled", T.x)
    if data.test is not None:
        _check_labels("test", data.test.y, len(data.test), data.classes)
    empty = data.pool is None or len(data.pool) == len(data.pool.excluded)
    if empty and (recipe.rounds or recipe.rest_weight):
        raise UserError(
            "pool: there is no image in it, and this method learns from one. Set data.pool, or use --method supervised."
        )
    if (
        recipe.rounds
        and recipe.out_threshold
        and not recipe.given_selection
        and (data.val_out is None or len(data.val_out) == 0)
    ):
        raise UserError(
            "val_out: this method sets its out-threshold on images of none of the classes, and there are none. "
            "Set data.val_out (`odst init` can make one from the pool), or use --method st."
        )
    if recipe.given_selection and given is None:
        raise UserError(
            "selection: this method takes the selected images from a file. Set data.selection to a selection.parquet."
        )
    for t in range(recipe.rounds):
        recipe.per_class(t, len(T), K)


def _check_labels(name: str, y: np.ndarray, n: int, classes: tuple[str, ...], every_class: bool = False) -> None:
    if len(y) != n:
        raise UserError(f"{name}: {n} images but {len(y)} labels. Give one label per image.")
    K = len(classes)
    bad = np.unique(y[(y < 0) | (y >= K)])
    if len(bad):
        raise UserError(
            f"{name}: label {bad[0]} is none of the {K} classes 0 to {K - 1}. Correct the label or add the class to labelled."
        )
    empty = np.flatnonzero(np.bincount(y, minlength=K) == 0)
    if every_class and len(empty):
        raise UserError(
            f"{name}: no image of class {classes[empty[0]]!r}. Every class needs at least one, in labelled as in val_in's classes."
        )


def check_finite(name: str, x: Images, block: int = 65536) -> None:
    if is_image(x) or is_counted(x):
        return
    for start in range(0, len(x), block):
        bad = ~np.isfinite(x[start : start + block]).all(axis=1)
        if bad.any():
            raise UserError(
                f"{name}: row {start + int(bad.argmax())} holds NaN or infinity. Remove or repair such rows."
            )
