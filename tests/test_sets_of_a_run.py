"""A finished run over files of one's own, read again: on another machine, and after its files have changed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save

from commands import fails, odst
from odst.files import digest, sha256, write_json
from odst.run.config import parse_config
from odst.run.directory import RunDir
from odst.run.execution import execute
from odst.run.sealed import read_sealed, write_sealed
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
    assert odst("evaluate", corrupted, "--corruptions", "--save", tmp_path / "e.json").code == 0
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


def bind_again(run: Path) -> None:
    """Make a copy with another config a run of its own: as if it had been made so."""
    write_sealed(run / "run.json", read_sealed(run / "run.json") | {"config_hash": sha256(run / "config.toml")})
    for file in sorted(run.glob("*/round.json")):
        note = read_sealed(file)
        note.pop("before", None)
        write_sealed(file, note | {"run": RunDir(run).bond()})


def test_a_run_made_on_a_gpu_is_reported_where_there_is_none(run: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    config = copy / "config.toml"
    config.write_text(config.read_text().replace('device = "auto"', 'device = "cuda"'))
    bind_again(copy)
    page = tmp_path / "page.html"
    for command in (("report", copy, "--out", page), ("compare", copy, "--out", page), ("evaluate", copy)):
        result = odst(*command)
        assert result.code == 0, result.err
    assert odst("predict", copy, run.parent / "val_out.npy", "--alpha", "0.9").code == 0


def without_labels(run: Path) -> None:
    """As an older odst wrote it: the labels are not beside the logits."""
    for note in run.glob("round-*/round.json"):
        file = note.with_name("logits.safetensors")
        arrays = {name: array for name, array in load_file(file).items() if not name.startswith("labels/")}
        file.write_bytes(save(arrays))
        told = json.loads(note.read_text())
        told.pop("digest")
        told["files"][file.name] = sha256(file)
        write_json(note, told | {"digest": digest(told)})


@pytest.fixture
def alone(run: Path, tmp_path: Path) -> Path:
    """A copy of the run whose labelled, validation and test images are gone; its packed pool goes with it."""
    copy = tmp_path / "alone"
    shutil.copytree(run.parent, copy)
    config = copy / "run" / "config.toml"
    config.write_text(config.read_text().replace(str(run.parent), str(copy)))
    bind_again(copy / "run")
    return copy


def test_what_comes_after_a_run_reads_none_of_its_images_again(run: Path, alone: Path, tmp_path: Path) -> None:
    before = odst("evaluate", alone / "run", "--save", tmp_path / "before.json")
    for file in alone.glob("*.npy"):
        file.unlink()
    after = odst("evaluate", alone / "run", "--save", tmp_path / "after.json")
    assert (before.code, after.code) == (0, 0), before.err + after.err
    assert (tmp_path / "before.json").read_text() == (tmp_path / "after.json").read_text()
    for command in (("report",), ("compare", alone / "run", "--out", tmp_path / "c.html")):
        result = odst(*command, *([alone / "run"] if len(command) == 1 else []))
        assert result.code == 0, result.err
    assert odst("predict", alone / "run", run.parent / "val_out.npy", "--alpha", "0.9").code == 0


def test_a_run_without_labels_beside_its_logits_has_them_decoded_again(alone: Path, tmp_path: Path) -> None:
    assert odst("evaluate", alone / "run", "--save", tmp_path / "kept.json").code == 0
    without_labels(alone / "run")
    assert odst("evaluate", alone / "run", "--save", tmp_path / "decoded.json").code == 0
    assert (tmp_path / "kept.json").read_text() == (tmp_path / "decoded.json").read_text()
    labels = alone / "val_in-y.npy"
    np.save(labels, np.load(labels)[::-1])  # as many as before: only their hash tells
    for command in ("report", "evaluate"):
        assert "the images of val_in have changed" in fails(command, alone / "run")


def test_an_image_more_in_the_folder_of_the_pool_does_not_touch_a_run_that_has_packed_it(alone: Path) -> None:
    more = np.load(alone / "pool.npy")
    np.save(alone / "pool.npy", np.concatenate([more, more[:1] // 2]))
    for command in (("report",), ("evaluate",), ("predict", alone / "val_out.npy", "--alpha", "0.9")):
        result = odst(command[0], alone / "run", *command[1:])
        assert result.code == 0, result.err
