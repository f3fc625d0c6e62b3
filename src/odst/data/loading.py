"""The [data] section of a config, and the sets it names."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import BaseModel, ConfigDict

from odst.data.images import Data, Labelled
from odst.data.worlds import load_world


class DataSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    world: str | None = None  # a built-in open world: digits or photos
    pool_size: int | None = None  # of a built-in world
    join_val_in: bool = False  # T ∪ val_in as the labelled set: the reference for what val_in's labels are worth
    selection: str | None = None  # selection.parquet of the method given-selection


def load_data(section: DataSection, *, seed: int, workspace: Path) -> Data:
    """The sets a config names. What has to be packed first goes into `workspace`, the run directory."""
    assert section.world is not None
    data = load_world(section.world, seed, section.pool_size)
    return joined(data) if section.join_val_in else data


def joined(data: Data) -> Data:
    T, val_in = data.labelled, data.val_in
    both = Labelled(np.concatenate([T.x[:], val_in.x[:]]), np.concatenate([T.y, val_in.y]))
    return replace(data, labelled=both)
