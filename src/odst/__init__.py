"""Out-distribution aware self-training in an open world."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odst.classifier.load import load
    from odst.data.images import Data, Labelled, Pool
    from odst.estimator import ODSTClassifier
    from odst.recipe import METHODS, ODST, ST, ST_OT, Recipe
    from odst.self_training import Round, self_train
    from odst.training.schedule import Phase, Schedule

_HOMES = {
    "odst.data.images": ("Data", "Labelled", "Pool"),
    "odst.estimator": ("ODSTClassifier",),
    "odst.training.schedule": ("Phase", "Schedule"),
    "odst.recipe": ("METHODS", "ODST", "ST", "ST_OT", "Recipe"),
    "odst.self_training": ("Round", "self_train"),
    "odst.classifier.load": ("load",),
}

__all__ = [
    "METHODS", "ODST", "ST", "ST_OT", "Data", "Labelled", "ODSTClassifier", "Phase", "Pool", "Recipe", "Round", "Schedule",
    "load", "self_train",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Public names are imported when they are asked for: `odst --help` must not wait for torch."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'odst' has no attribute {name!r}")
