"""The page of a run over a large pool: python -m benchmarks.report [--quick]

A short real run over photograph patches, then its pool made a million: each teacher's logits are drawn from those it gave,
with a little noise, and its selection is made anew from them. The anchor is one plain pass of numpy over the same logits.
"""

import json
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.measuring import conclude, peak_memory, table
from odst.data.worlds import load_world
from odst.files import digest, sha256, write_json, write_text
from odst.method.labelling import Predictions
from odst.method.selection import select
from odst.method.stored import logits_folder, read_logits
from odst.run.config import read_config
from odst.run.directory import RunDir
from odst.run.execution import execute
from odst.run.round_note import selection_summary, thresholds_from_json
from odst.run.selection_file import Teacher, write_selection
from odst.seeds import stream

PER_CLASS = (5_000, 10_000, 15_000)


def grow(run: RunDir, m: int) -> None:
    """Make the run look as if its pool had m images."""
    config = (run.path / "config.toml").read_text().replace("[data]\n", f"[data]\npool_size = {m}\n")
    ks = ", ".join(map(str, PER_CLASS))
    write_text(run.path / "config.toml", config.replace("[method]\n", f"[method]\nk = [{ks}]\n"))
    info = json.loads((run.path / "run.json").read_text())
    info["sets"]["pool"]["images"] = m
    write_json(run.path / "run.json", info | {"config_hash": sha256(run.path / "config.toml")})
    data = load_world("photos", 0, m)
    for t in run.rounds()[:-1]:
        folder = logits_folder(run.scratch, t)
        old, rng = read_logits(folder)[:], stream(0, "grow", t)
        logits = (old[rng.integers(len(old), size=m)] + rng.normal(0, 0.2, size=(m, old.shape[1]))).astype(np.float32)
        np.save(folder / "00000.npy", logits)
        write_json(folder / "manifest.json", {"parts": [{"file": "00000.npy"}]})
        note = run.note(t)
        tau = thresholds_from_json(note["thresholds"]).tau
        teacher, p = Teacher(t, note["model_hash"], tau), Predictions(logits, note["temperature"])
        I = select(p, tau, PER_CLASS[t], excluded=np.empty(0, np.int64), max_copies=3, seed=0, t=t)
        folder = run.round(t + 1)
        write_selection(folder / "selection.parquet", I, data, teacher)
        note = json.loads((folder / "round.json").read_text())
        note["selection"] = selection_summary(I, data.classes, teacher)
        note["files"]["selection.parquet"] = sha256(folder / "selection.parquet")
        note.pop("digest")
        write_json(folder / "round.json", note | {"digest": digest(note)})


def one_pass(run: RunDir) -> float:
    """Seconds to take the calibrated confidence of every image once, in float64."""
    begin = time.perf_counter()
    for file in sorted(run.scratch.glob("pool-logits-*/*.npy")):
        logits = np.load(file, mmap_mode="r")
        for start in range(0, len(logits), 1 << 17):
            z = logits[start : start + (1 << 17)].astype(np.float64)
            z -= z.max(axis=1, keepdims=True)
            (1 / np.exp(z).sum(axis=1)).max()
    return time.perf_counter() - begin


def main() -> None:
    m = 100_000 if "--quick" in sys.argv else 1_000_000
    with tempfile.TemporaryDirectory() as place:
        run = RunDir(Path(place) / "run")
        execute(read_config("photos", {"training.phases": [{"lr": 0.1, "steps": 60}]}), run.path)
        grow(run, m)
        anchor = one_pass(run)
        page = Path(place) / "report.html"
        command = ["-c", "from odst.cli import main; main()", "report", str(run.path), "--out", str(page)]
        before = os.times()
        peak, seconds = peak_memory(command)
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        size = page.stat().st_size
        row = (
            f"{m:,}",
            len(run.rounds()) - 1,
            f"{seconds:.1f}",
            f"{cpu:.1f}",
            f"{peak / 1e6:.0f}",
            f"{size / 1e6:.1f}",
        )
        print(table(("pool images", "teachers", "seconds", "CPU seconds", "private MB", "page MB"), [row]))
        conclude("report", seconds / anchor, f"one pass of numpy over the teachers' logits, {anchor:.2f} s")


if __name__ == "__main__":
    main()
