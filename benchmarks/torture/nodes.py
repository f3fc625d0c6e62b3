"""Every stage on two Ray nodes of this machine, one of which is killed when both have made parts, with its workers: the files must
be those of one process. Only when asked for, `--part nodes`: it needs odst[ray] and some minutes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cluster import NODE, cluster
from benchmarks.torture.calls import ENVIRONMENT, PATIENCE
from benchmarks.torture.cases import Verdict
from benchmarks.torture.scenes import ENCODER, Scene, fingerprint
from odst.seeds import stream

ROWS, SOURCES = 8000, 20
CONFIG = """
[data]
labelled = "labelled.npz"
val_in = "labelled.npz"
val_out = "0.npy"
pool = "pool"
size = 32
[method]
alpha = 0.05
ratio = [2]
[model]
name = "tiny"
[training]
batch = 16
phases = [{ steps = 3, lr = 0.05 }]
[run]
labels_alone = false
"""
STAGES = {
    "pool build": Scene(("pool", "build", "*.npy", "--out", "built", "--size", "32"), ("built",)),
    "pool embed": Scene(
        ("pool", "embed", "pool", "--embed", "torch:encoder.pt#torture_encoder:make@16", "--from-pixels"), ("pool",)
    ),
    "dedup": Scene(("dedup", "pool", "--against", "labelled.npz", "--lpips", "none"), ("pool",)),
    "run": Scene(("run", "odst.toml", "--out", "run"), ("run",)),
}


def nodes(place: Path, seed: int) -> Iterator[Verdict]:
    kept, folder = place / "nodes-kept", place / "nodes"
    _make(kept, seed)
    with cluster() as made:
        for name, scene in STAGES.items():
            wanted = None
            for kill in (False, True):
                shutil.rmtree(folder, ignore_errors=True)
                shutil.copytree(kept, folder)
                killed, ended = _disturbed(scene, folder, made) if kill else (True, _begin(scene.words, folder).wait())
                if not kill and ended:
                    raise SystemExit(f"{name}: exit code {ended} without any disturbance")
                wanted = wanted or fingerprint(folder, scene)
            if ended or not killed:
                yield Verdict(f"{name}, a node killed", "stuck", f"exit code {ended}, killed: {killed}")
            else:
                same = fingerprint(folder, scene) == wanted
                yield Verdict(f"{name}, a node killed", "survived" if same else "wrong")


def _make(folder: Path, seed: int) -> None:
    import torch

    folder.mkdir()
    rng = stream(seed, "nodes")
    for i in range(SOURCES):
        np.save(folder / f"{i}.npy", rng.integers(256, size=(ROWS, 32, 32, 3), dtype=np.uint8))
    x = rng.integers(256, size=(40, 32, 32, 3), dtype=np.uint8)
    np.savez(folder / "labelled.npz", x=x, labels=np.array(["a", "b"])[np.arange(40) % 2])
    (folder / "odst.toml").write_text(CONFIG)
    (folder / "torture_encoder.py").write_text(ENCODER)
    torch.save({"2.weight": torch.ones(4, 12), "2.bias": torch.zeros(4)}, folder / "encoder.pt")
    assert _begin(("pool", "build", "*.npy", "--out", "pool", "--size", "32"), folder).wait() == 0


def _begin(words: tuple[str, ...], folder: Path) -> "subprocess.Popen[bytes]":
    call = [sys.executable, "-c", "from odst.cli import main; main()", *words]
    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    return subprocess.Popen(
        call, cwd=folder, stdout=subprocess.DEVNULL, env=os.environ | ENVIRONMENT | {"PYTHONPATH": paths}
    )


def _disturbed(scene: Scene, folder: Path, made: Any) -> tuple[bool, int]:
    """Whether the second node could be killed in time, and how the command ended."""
    node = made.add_node(**NODE, env_vars={"PYTHONPATH": os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])})
    raylets = {info.process.pid for info in node.all_processes["raylet"]}
    driver = _begin((*scene.words, "--engine", "ray", "--address", made.address), folder)
    seen: dict[int, int] = {}  # worker -> raylet
    deadline = time.monotonic() + PATIENCE
    while driver.poll() is None and time.monotonic() < deadline:
        seen |= {pid: _parent(pid) for pid in _makers(folder) - seen.keys()}
        there = set(seen.values())
        if there & raylets and there - raylets - {0}:
            for pid in (*raylets, *(pid for pid, raylet in seen.items() if raylet in raylets)):
                os.kill(pid, signal.SIGKILL)  # workers too: left alone they would end their parts
            return True, driver.wait(PATIENCE)
        time.sleep(0.02)
    driver.kill()
    made.remove_node(node)
    return False, driver.wait()


def _makers(folder: Path) -> set[int]:
    """The processes that have made parts."""
    found = set()
    for file in folder.rglob("[0-9]*.json"):
        try:
            by = json.loads(file.read_text()).get("by", "")
        except (OSError, ValueError):
            continue
        found |= {int(by.rpartition(":")[2])} if by else set()
    return found


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return 0
