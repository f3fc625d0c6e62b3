"""Out-distribution aware self-training in an open world."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odst.classifier.load import load
    from odst.data.images import Data, Labelled, Pool
    from odst.data.pool import open_pool
    from odst.estimator import ODSTClassifier
    from odst.evaluation.scoring import score
    from odst.few_labels import settle
    from odst.recipe import METHODS, ODST, ST, ST_OT, Recipe
    from odst.rounds import Round
    from odst.self_training import self_train
    from odst.training.schedule import Phase, Schedule
    from odst.vision.networks import make_network

_HOMES = {
    "odst.classifier.load": ("load",),
    "odst.data.images": ("Data", "Labelled", "Pool"),
    "odst.data.pool": ("open_pool",),
    "odst.estimator": ("ODSTClassifier",),
    "odst.evaluation.scoring": ("score",),
    "odst.recipe": ("METHODS", "ODST", "ST", "ST_OT", "Recipe"),
    "odst.few_labels": ("settle",),
    "odst.rounds": ("Round",),
    "odst.self_training": ("self_train",),
    "odst.training.schedule": ("Phase", "Schedule"),
    "odst.vision.networks": ("make_network",),
}

__all__ = [
    "METHODS", "ODST", "ST", "ST_OT", "Data", "Labelled", "ODSTClassifier", "Phase", "Pool", "Recipe", "Round", "Schedule",
    "load", "make_network", "open_pool", "score", "self_train", "settle",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    """Public names are imported when they are asked for: `odst --help` must not wait for torch."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'odst' has no attribute {name!r}")
