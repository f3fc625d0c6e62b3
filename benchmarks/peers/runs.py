"""One peer in one world -> its rows, resumed where it was killed."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.peers.scoring import row_of
from benchmarks.peers.settings import settings_of, steps_of
from benchmarks.peers.training import train
from odst.data.images import Data
from odst.data.loading import load_data
from odst.errors import UserError
from odst.files import write_json
from odst.locks import lock
from odst.run.config import read_config


def run(
    world: Path, method: str, images: int, seed: int, out: Path, *, checkpoint_seconds: float = 60, **changes: Any
) -> list[dict[str, Any]]:
    """The rows of this peer, which are then in the file `out`; where they are already, they are read.

    `changes` are other values of Settings. The state of the training lies in a folder beside `out` until that is whole.
    """
    s = settings_of(method, images, seed, **changes)
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
        rows = [row_of(model, data, s, world) | {"steps": steps, "seconds": round(seconds)}]
        write_json(out, rows)
    shutil.rmtree(folder)
    return rows


def sets_of(world: Path) -> Data:
    """The sets of a world's folder, with the truth of its pool."""
    if not (world / "labelled.npz").exists():
        raise UserError(f"{world}: this is no world. python -m benchmarks.open_world makes some, as OUT/world-NAME.")
    sets = {f"data.{name}": str(world / f"{name}.npz") for name in ("labelled", "val_in", "val_out", "test")}
    outs = {file.stem.removeprefix("out_"): str(file) for file in sorted(world.glob("out_*.npz"))}
    config = read_config("open-world-cpu", {**sets, "data.out_test": outs, "data.pool": str(world / "pool")})
    return load_data(config.data, seed=0, workspace=None)
