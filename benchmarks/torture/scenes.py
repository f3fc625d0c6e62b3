"""For every command of odst, how it is called here and what it leaves behind; and the small world that they work in."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from odst.holders import FILE
from odst.seeds import stream

SIDE = 12
CONFIG = """
[data]
labelled = "labelled.npz"
val_in = "val_in.npz"
val_out = "val_out.npy"
pool = "{pool}"
test = "val_in.npz"
size = {side}

[method]
alpha = 0.6
ratio = [2, 3]

[model]
name = "tiny"

[training]
batch = 12
phases = [{{ steps = 6, lr = 0.1 }}]

[run]
checkpoint_seconds = 0
labels_alone = false
"""
ENCODER = """
from torch import nn

def make():
    return nn.Sequential(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(12, 4))
"""


@dataclass(frozen=True)
class Scene:
    words: tuple[str, ...]
    leaves: tuple[str, ...] = ()  # files and folders, equal to the bit however often it was disturbed; none: only reads
    alone: bool = True  # whether a second process is refused; else both may write, and the files are equal all the same
    named: bool = False  # only the names of what it leaves are equal: it writes the time, too


RUN = ("run", "odst.toml", "--out", "new")
SCENES = {
    "init": Scene(("init", "project", "--labelled", "labelled", "--pool", "pictures", "--size", "12", "--backbone", "none"), ("project",)),
    "forecast": Scene(("forecast", "odst.toml", "--scan", "30", "--out", "new")),
    "run": Scene(RUN, ("new",)),
    "report": Scene(("report", "done"), ("done",), alone=False),
    "review": Scene(("review", "done", "--draws", "4"), ("done",), alone=False),
    "audit": Scene(("audit", "done", "--plan")),
    "predict": Scene(("predict", "done", "pictures", "--csv", "answers.csv", "--parquet", "answers.parquet"), ("answers.csv", "answers.parquet"), alone=False),
    "evaluate": Scene(("evaluate", "done", "--save", "measures.json"), ("measures.json",), alone=False),
    "compare": Scene(("compare", "done", "--out", "comparison.html"), ("comparison.html",), alone=False),
    "export": Scene(("export", "done", "--tensorboard", "board"), ("board",), alone=False, named=True),
    "selection": Scene(("selection", "done", "--to", "csv", "--out", "selected", "--round", "1"), ("selected",), alone=False),
    "pool build": Scene(("pool", "build", "pictures", "more.npz", "--out", "built", "--size", "12"), ("built",)),
    "pool embed": Scene(("pool", "embed", "packed", "--embed", "torch:encoder.pt#torture_encoder:make@16", "--from-pixels"), ("packed",)),
    "pool join": Scene(("pool", "join", "packed", "packed2", "--out", "joined"), ("joined",)),
    "pool info": Scene(("pool", "info", "packed"), ("packed",), alone=False),
    "pool verify": Scene(("pool", "verify", "packed")),
    "dedup": Scene(("dedup", "packed", "--against", "val_in.npz", "--lpips", "none", "--radius", "2", "--l2", "1"), ("packed",)),
    "status": Scene(("status", "done")),
    "methods": Scene(("methods",)),
    "doctor": Scene(("doctor",)),
    "data list": Scene(("data", "list")),
}  # fmt: skip
LEFT_OUT = {
    "demo": "three runs of minutes over a built-in world, and a page: `run` and `compare`",
    "data get": "fetches over the network",
}
CHANGING = {"log.txt", "timings.jsonl", ".checked.json", FILE}


def commands() -> list[str]:
    """Every command and sub-command that odst offers."""
    from importlib import import_module

    from typer.main import get_command

    from odst.cli import COMMANDS, app

    for name in COMMANDS:
        import_module(f"odst.cli.{name}")
    found = []
    for name, one in get_command(app).commands.items():  # type: ignore[attr-defined]
        below = getattr(one, "commands", None)
        found += [f"{name} {sub}" for sub in below] if below else [name]
    return found


def missing() -> list[str]:
    """Commands that nobody has thought of here."""
    return [name for name in commands() if name not in SCENES and name not in LEFT_OUT]


def writing() -> Iterator[tuple[str, Scene]]:
    yield from ((name, scene) for name, scene in SCENES.items() if scene.leaves)


def bars(rng: np.random.Generator, y: np.ndarray) -> np.ndarray:
    """Small pictures: a bright row, column or corner for the classes 0, 1 and 2, noise for -1."""
    x = rng.integers(0, 90, (len(y), SIDE, SIDE, 3))
    for i, c in enumerate(y.tolist()):
        at = int(rng.integers(1, SIDE - 3))
        if c == 0:
            x[i, at : at + 2] += 150
        elif c == 1:
            x[i, :, at : at + 2] += 150
        elif c == 2:
            x[i, :5, :5] += 150
    return x.astype(np.uint8)


def make_world(folder: Path, seed: int) -> None:
    """What every scene begins with, but for what commands make: arrays, pictures, configs, an encoder."""
    import torch
    from PIL import Image

    folder.mkdir(parents=True)
    rng = stream(seed, "torture")
    names = np.array(["row", "column", "corner"])
    for name, n in (("labelled", 24), ("val_in", 45)):
        y = np.arange(n) % 3
        np.savez(folder / f"{name}.npz", x=bars(rng, y), labels=names[y])
    np.save(folder / "val_out.npy", bars(rng, np.full(40, -1)))
    truth = rng.integers(-1, 3, 160)
    np.savez(folder / "pool.npz", x=bars(rng, truth))
    np.savez(folder / "more.npz", x=bars(rng, rng.integers(-1, 3, 30)))
    for name, n, known in (("pictures", 60, False), ("labelled", 60, True)):
        y = np.arange(n) % 3
        for i, row in enumerate(bars(rng, y if known else rng.integers(-1, 3, n))):
            file = folder / name / (str(names[y[i]]) if known else "") / f"{i:03d}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(row).save(file)
    (folder / "odst.toml").write_text(CONFIG.format(pool="pool.npz", side=SIDE))
    (folder / "torture_encoder.py").write_text(ENCODER)
    weight = stream(seed, "encoder").normal(size=(4, 12)).astype(np.float32)
    torch.save({"2.weight": torch.from_numpy(weight), "2.bias": torch.zeros(4)}, folder / "encoder.pt")


# what commands make of it, before the scenes begin
PREPARATION = (
    ("run", "odst.toml", "--out", "done"),
    ("pool", "build", "pictures", "--out", "packed", "--size", "12"),
    ("pool", "build", "more.npz", "--out", "packed2", "--size", "12"),
)


def fingerprint(folder: Path, scene: Scene) -> dict[str, str]:
    """By name, a hash of every file that a scene leaves. What a killed process was just writing does not count."""
    found = {}
    for name in scene.leaves:
        place = folder / name
        for file in sorted(place.rglob("*")) if place.is_dir() else [place]:
            if file.is_file() and file.name not in CHANGING and file.suffix != ".part":
                text = "" if scene.named else hashlib.sha256(file.read_bytes()).hexdigest()
                found[str(file.parent.relative_to(folder) if scene.named else file.relative_to(folder))] = text
    return found
