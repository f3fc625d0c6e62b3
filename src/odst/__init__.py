"""Out-distribution aware self-training in an open world."""

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
