"""The [data] section of a config, and the sets it names."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from odst.data.images import Data
from odst.data.worlds import load_world


class DataSection(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    world: str | None = None  # a built-in open world: digits or photos
    pool_size: int | None = None  # of a built-in world
    selection: str | None = None  # selection.parquet of the method given-selection


def load_data(section: DataSection, *, seed: int, workspace: Path) -> Data:
    """The sets a config names. What has to be packed first goes into `workspace`, the run directory."""
    assert section.world is not None
    return load_world(section.world, seed, section.pool_size)
