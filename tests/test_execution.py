"""One run and the runs beside it: which base is taken over, what --fresh and --dry-run do, where a run goes."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from commands import fails, odst
from odst.errors import UserError
from odst.run.config import Config, parse_config
from odst.run.directory import RunDir
from odst.run.execution import execute
from odst.run.forecast import forecast
from odst.vision.networks import make_network
from odst.vision.weights import network_key
from runs import bar_world

NETWORK = """
from torch import nn

def build(K):
    # {note}
    return nn.Sequential(nn.Flatten(), nn.Linear(12 * 12 * 3, {width}), Activation(), nn.Linear({width}, K))

class Activation(nn.Module):
    def forward(self, x):
        return x.{activation}()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    world = bar_world(pool=150)
    for name, one in (("labelled", world.labelled), ("val_in", world.val_in)):
        np.save(tmp_path / f"{name}.npy", one.x)
        np.save(tmp_path / f"{name}-y.npy", one.y)
    np.savez(tmp_path / "pool.npz", x=world.pool.x, labels=np.maximum(world.pool.truth, -1))
    np.save(tmp_path / "val_out.npy", world.val_out)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def own(place: Path, **changes: dict) -> Config:
    sets = {name: f"{place / name}.npy?labels={name}-y.npy" for name in ("labelled", "val_in")}
    values = {
        "data": {**sets, "pool": f"{place}/pool.npz", "val_out": f"{place}/val_out.npy", "size": 12},
        "method": {"alpha": 0.9, "ratio": [2]},
        "model": {"name": "tiny"},
        "training": {"batch": 18, "phases": [{"steps": 10, "lr": 0.1}]},
    }
    return parse_config({key: value | changes.get(key, {}) for key, value in values.items()}, "test")


def write_network(place: Path, width: int, activation: str, note: str = "") -> None:
    (place / "mine.py").write_text(NETWORK.format(width=width, activation=activation, note=note))
    sys.modules.pop("mine", None)


def log_of(run: Path) -> str:
    return (run / "log.txt").read_text()


def test_fresh_trains_the_base_anew_instead_of_taking_that_of_the_run_it_moved_aside(place: Path) -> None:
    execute(own(place), place / "runs" / "one")
    execute(own(place), place / "runs" / "one", fresh=True)
    assert "taking it over" not in log_of(place / "runs" / "one")
    execute(own(place, method={"name": "uniform-rest"}), place / "runs" / "two")
    assert "the base of one is the same: taking it over" in log_of(place / "runs" / "two")


@pytest.mark.parametrize(
    "change", [(9, "relu"), (8, "tanh"), (8, "relu", "begins otherwise")], ids=["wider", "part", "factory"]
)
def test_a_changed_network_of_ones_own_is_another_base(place: Path, change: tuple) -> None:
    mine = own(place, model={"name": "mine:build"})
    write_network(place, 8, "relu")
    execute(mine, place / "runs" / "one")
    write_network(place, *change)
    execute(mine, place / "runs" / "two")
    assert "taking it over" not in log_of(place / "runs" / "two")


def test_the_key_of_a_network_is_the_same_for_the_same_network() -> None:
    networks = [make_network(name, 3, shape=(12, 12, 3)) for name in ("tiny", "tiny")]
    assert len({network_key("tiny", one) for one in networks}) == 1


def test_a_folder_with_a_picture_in_it_is_no_run_directory(place: Path) -> None:
    (place / "pictures").mkdir()
    (place / "pictures" / "cat.jpg").write_bytes(b"\xff\xd8\xff\xe0 no text")
    with pytest.raises(UserError, match="not empty and holds no run"):
        execute(own(place), place / "pictures")


def given(place: Path) -> dict[str, dict]:
    """The selection that a first run made, for a run that takes it from the file."""
    execute(own(place), place / "runs" / "first")
    selection = str(RunDir(place / "runs" / "first").round(1) / "selection.parquet")
    return {"method": {"name": "given-selection"}, "data": {"selection": selection}}


def closed(place: Path) -> dict[str, dict]:
    return {"method": {"name": "st-cw"}, "data": {"pool_truth": True}}


@pytest.mark.parametrize("method", [given, closed])
def test_a_pool_that_is_still_to_be_packed_is_forecast_and_begun_anew_with_every_method(place: Path, method) -> None:
    config = own(place, **method(place))
    assert "pool        150 images" in forecast(config, place / "new").lines[2]
    execute(config, place / "new")
    execute(config, place / "new", fresh=True)
    assert json.loads((place / "new" / "final.json").read_text())["last_round"] == 1


def test_a_folder_with_the_name_of_a_preset_is_not_taken_for_its_run(place: Path) -> None:
    (place / "digits").mkdir()
    (place / "digits" / "mine.txt").write_text("mine")
    quick = ("--method", "supervised", "--set", "training.phases=[{steps=3, lr=0.1}]", "-q")
    assert odst("run", "digits", *quick).code == 0
    assert (place / "runs" / "digits-supervised-0" / "final.json").exists()
    assert [file.name for file in (place / "digits").iterdir()] == ["mine.txt"]
    assert "no run directory" in fails("run", place / "runs", "-q")
