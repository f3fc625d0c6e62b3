"""Out-distribution aware self-training in an open world."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odst.data.images import Data, Labelled, Pool
    from odst.method.schedule import Phase, Schedule
    from odst.recipe import METHODS, ODST, ST, ST_OT, Recipe
    from odst.self_training import Round, self_train

__all__ = [
    "METHODS",
    "ODST",
    "ST",
    "ST_OT",
    "Data",
    "Labelled",
    "Phase",
    "Pool",
    "Recipe",
    "Round",
    "Schedule",
    "self_train",
]

_HOMES = {
    "odst.data.images": ("Data", "Labelled", "Pool"),
    "odst.method.schedule": ("Phase", "Schedule"),
    "odst.recipe": ("METHODS", "ODST", "ST", "ST_OT", "Recipe"),
    "odst.self_training": ("Round", "self_train"),
}


def __getattr__(name: str) -> Any:
    """The public names, imported when first used: `odst --help` and a decoding process do without torch."""
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(home), name)
    raise AttributeError(f"module 'odst' has no attribute {name!r}")
