"""One peer in one world -> its rows, resumed where it was killed."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from benchmarks.open_world.world import sets_in
from benchmarks.peers.scoring import row_of
from benchmarks.peers.settings import Settings, steps_of
from benchmarks.peers.training import train
from odst.data.images import Data
from odst.data.loading import load_data
from odst.errors import UserError
from odst.files import write_json
from odst.locks import lock
from odst.run.config import read_config


def run(world: Path, s: Settings, out: Path, *, checkpoint_seconds: float = 60) -> list[dict[str, Any]]:
    """The rows of this peer, which are then in the file `out`; where they are already, they are read.

    The state of the training lies in a folder beside `out` until that is whole.
    """
    if out.exists():
        rows: list[dict[str, Any]] = json.loads(out.read_text())
        if rows[0]["settings"] != asdict(s):
            raise UserError(f"{out}: these are the rows of other settings. Choose another --out, or delete it.")
        return rows
    folder = out.with_name(f"{out.stem}.training")
    with lock(folder, "benchmarks.peers"):
        data = sets_of(world)
        assert data.pool is not None
        model, seconds = train(data, s, folder, checkpoint_seconds)
        steps = steps_of(s)
        rows = [row_of(model, data, s, world) | {"steps": steps, "seconds": round(seconds * torch.get_num_threads())}]
        write_json(out, rows)
    shutil.rmtree(folder)
    return rows


def sets_of(world: Path) -> Data:
    """The sets of a world's folder, with the truth of its pool."""
    return load_data(read_config("open-world-cpu", sets_in(world)).data, seed=0, workspace=None)
