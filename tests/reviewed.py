"""A run over a pool of bars on disk, and reviewers who know the truth."""

from pathlib import Path
from typing import Any

import numpy as np

from odst.data.packing import build_pool
from odst.data.pool import open_labels
from odst.run.audit import drawn_ranks, ranked
from odst.run.config import parse_config
from odst.run.directory import RunDir
from odst.run.execution import execute
from odst.run.marks import AUDIT, RIGHT, WRONG, Mark, run_hash
from runs import SIDE, bar_world


def bar_folder(folder: Path, pool: int = 900) -> dict[str, Any]:
    """The sets of bar_world as files, the pool packed with its truth; what a config's [data] says of them."""
    data = bar_world(pool=pool)
    folder.mkdir(parents=True, exist_ok=True)
    names = np.array(data.classes)
    for name, one in (("labelled", data.labelled), ("val_in", data.val_in), ("test", data.test)):
        np.savez(folder / f"{name}.npz", x=one.x, labels=names[one.y])
    np.save(folder / "val_out.npy", data.val_out)
    np.save(folder / "blobs.npy", data.out_tests["blobs"])
    truth = np.array([data.classes[c] if c >= 0 else "other" for c in data.pool.truth])
    np.savez(folder / "pool.npz", x=data.pool.x, labels=truth)
    build_pool(folder / "pool.npz", folder / "pool", size=SIDE, workers=1)
    sets = {name: str(folder / f"{name}.npz") for name in ("labelled", "val_in", "test")}
    sets |= {"val_out": str(folder / "val_out.npy"), "pool": str(folder / "pool")}
    return {**sets, "out_test": {"blobs": str(folder / "blobs.npy")}, "size": SIDE, "pool_truth": True}


def bar_run(folder: Path, pool: int = 900, **method: Any) -> RunDir:
    values = {
        "data": bar_folder(folder / "sets", pool),
        "method": {"name": "odst", "alpha": 0.9, "k": [60, 150], "max_copies": 3, **method},
        "model": {"name": "tiny"},
        "training": {"batch": 24, "phases": [{"steps": 40, "lr": 0.1, "shape": "cosine"}]},
    }
    execute(parse_config(values, "test"), folder / "run")
    return RunDir(folder / "run")


def truth_of(run: RunDir) -> list[str]:
    labels = open_labels(Path(run.config().data.pool))  # type: ignore[arg-type]
    return labels[np.arange(run.info()["sets"]["pool"]["images"])]


def truthful(run: RunDir, t: int, draws: int = 150, who: str = "anna") -> list[Mark]:
    """What a reviewer who knows the truth exports when all draws are seen."""
    sets, truth, hash_ = ranked(run, t), truth_of(run), run_hash(run, t)
    return [
        Mark(int(one.ids[at]), one.hashes[at], hash_, t, AUDIT, one.name, verdict, None, draws, who, "today")
        for one, places in zip(sets, drawn_ranks(run, t, sets, draws), strict=True)
        for at in places
        if (verdict := RIGHT if truth[one.ids[at]] == one.name else WRONG)
    ]
