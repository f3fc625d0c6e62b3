"""A finished run over files of one's own, read again: on another machine, and after its files have changed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from commands import fails, odst
from odst.files import sha256, write_json
from odst.run.config import parse_config
from odst.run.execution import execute
from runs import bar_world


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, world = tmp_path_factory.mktemp("own"), bar_world(pool=150)
    for name, one in (("labelled", world.labelled), ("val_in", world.val_in), ("test", world.test)):
        np.save(place / f"{name}.npy", one.x)
        np.save(place / f"{name}-y.npy", one.y)
    np.save(place / "pool.npy", world.pool.x)
    np.save(place / "val_out.npy", world.val_out)
    labelled = {name: f"{place / name}.npy?labels={name}-y.npy" for name in ("labelled", "val_in", "test")}
    values = {
        "data": {**labelled, "pool": f"{place}/pool.npy", "val_out": f"{place}/val_out.npy", "size": 12},
        "method": {"alpha": 0.9, "ratio": [2]},
        "model": {"name": "tiny"},
        "training": {"batch": 18, "phases": [{"steps": 10, "lr": 0.1}]},
    }
    execute(parse_config(values, "test"), place / "run")
    return place / "run"


def test_the_error_under_corruptions_is_a_number_of_every_round_where_asked_for(run: Path, tmp_path: Path) -> None:
    corrupted = tmp_path / "corrupted"
    assert odst("run", run, "--set", "data.corruptions=true", "--out", corrupted).code == 0
    metrics = [json.loads(line) for line in (corrupted / "metrics.jsonl").read_text().splitlines()]
    final = json.loads((corrupted / "final.json").read_text())["round"]
    assert odst("evaluate", corrupted, "--corruptions", "--json", tmp_path / "e.json").code == 0
    again = json.loads((tmp_path / "e.json").read_text())
    assert metrics[final]["corruption_error"] == pytest.approx(again["corruption_error"], abs=1e-12)
    table = odst("compare", corrupted, run, "--format", "markdown").out
    assert "corrupted % 1st" in table and all(f"{100 * one['corruption_error']:.2f}" in table for one in metrics)
    assert odst("report", corrupted).code == 0
    page = (corrupted / "report.html").read_text()
    assert f'data-metric="corruption_error" data-round="1" data-value="{metrics[1]["corruption_error"]}"' in page
    assert "corrupted" not in odst("compare", run).out


def test_corruptions_that_cannot_be_measured_are_refused_before_the_run(run: Path, tmp_path: Path) -> None:
    config = ("run", run, "--out", tmp_path / "new", "--set")
    assert "16 of the 16 files" in fails(*config, f"data.corruptions='{tmp_path}'")
    assert not (tmp_path / "new" / "run.json").exists()


def test_a_run_made_on_a_gpu_is_reported_where_there_is_none(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    config = copy / "config.toml"
    config.write_text(config.read_text().replace('device = "auto"', 'device = "cuda"'))
    write_json(copy / "run.json", json.loads((copy / "run.json").read_text()) | {"config_hash": sha256(config)})
    page = tmp_path / "page.html"
    for command in (("report", copy, "--out", page), ("compare", copy, "--out", page), ("evaluate", copy)):
        result = odst(*command)
        assert result.code == 0, result.err
    assert odst("predict", copy, run.parent / "val_out.npy", "--alpha", "0.9").code == 0


def test_numbers_of_other_images_than_the_runs_are_refused(run: Path, tmp_path: Path) -> None:
    labels = run.parent / "val_in-y.npy"
    before = labels.read_bytes()
    np.save(labels, np.load(labels)[::-1])  # as many as before: only their hash tells
    try:
        for command in (("report", run), ("compare", run, "--out", tmp_path / "c.html"), ("evaluate", run)):
            assert "the images of val_in have changed" in fails(*command)
    finally:
        labels.write_bytes(before)
    assert odst("report", run).code == 0
