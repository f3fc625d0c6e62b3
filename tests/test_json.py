"""With --json every command prints exactly one JSON document on standard output, and nothing else there."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.main import get_command

import tiny_encoder
from commands import fails, odst
from odst.cli import app
from odst.cli.results import plain
from odst.run.marks import write_marks
from reviewed import bar_run, truthful
from runs import SIDE


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("json")
    run = bar_run(folder)
    write_marks(folder / "marks.json", truthful(run, 2))
    pool = folder / "sets" / "pool"
    shutil.copytree(pool, folder / "packed")
    odst("pool", "build", folder / "sets" / "val_out.npy", "--out", folder / "packed2", "--size", SIDE)
    tiny_encoder.save(folder / "encoder.pt")
    rng = np.random.default_rng(0)
    np.save(folder / "pictures.npy", rng.integers(0, 256, (5, SIDE, SIDE, 3), dtype=np.uint8))
    return folder


def cases(place: Path) -> dict[str, tuple[Any, ...]]:
    """A real call of every command."""
    run, sets = place / "run", place / "sets"
    return {
        "demo": ("--methods", "supervised", "--pool", "200", "--out", place / "demo"),
        "init": (place / "new", "--labelled", sets / "labelled.npz", "--pool", sets / "pool", "--val-out", sets / "val_out.npy"),
        "forecast": (run, "--scan", "100", "--out", place / "seen"),
        "run": (run,),
        "report": (run,),
        "review": (run, "--out", place / "review.html"),
        "audit": (run, "--marks", place / "marks.json"),
        "predict": (run, place / "pictures.npy"),
        "evaluate": (run,),
        "compare": (run,),
        "export": (run, "--hub-folder", place / "model"),
        "selection": (run, "--to", "csv", "--out", place / "selected.csv"),
        "pool build": (place / "pictures.npy", "--out", place / "built", "--size", SIDE),
        "pool embed": (place / "packed", "--embed", f"torch:{place}/encoder.pt#tiny_encoder:make@24", "--from-pixels"),
        "pool join": (place / "packed", place / "packed2", "--out", place / "both"),
        "pool info": (place / "packed",),
        "pool verify": (place / "packed",),
        "dedup": (place / "packed2", "--against", sets / "test.npz", "--lpips", "none"),
        "status": (run,),
        "data list": (),
        "data get": ("backbones-are-not-fetched-here",),
        "methods": (),
        "doctor": (),
    }  # fmt: skip


def leaves(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from leaves(command, (*words, name))
        else:
            yield " ".join((*words, name)), command


def test_every_command_takes_json_and_is_called_below() -> None:
    odst("--help")  # registers the commands
    found = dict(leaves(get_command(app)))
    without = [name for name, one in found.items() if not any("--json" in p.opts and p.is_flag for p in one.params)]
    assert without == []
    assert found.keys() == cases(Path("x")).keys()


@pytest.mark.parametrize("name", [name for name in cases(Path("x")) if name != "data get"])
def test_the_whole_of_standard_output_is_one_document(place: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odst.project.val_out.STEPS", 20)
    monkeypatch.setattr("odst.run.forecast.TRIAL", 0.01)
    monkeypatch.setenv("ODST_DATA", str(place / "data"))
    end = odst(*name.split(), *cases(place)[name], "--json")
    assert end.code == 0, end.err
    found = json.loads(end.out, parse_constant=pytest.fail)
    assert CHECKS[name](found), found


CHECKS = {
    "demo": lambda found: list(found["runs"]) == ["supervised"] and Path(found["page"]).is_file(),
    "init": lambda found: Path(found["config"]).is_file() and any("written: " in line for line in found["says"]),
    "forecast": lambda found: found["scanned"] == 100 and found["seconds"] > 0 and found["disk_bytes"] > 0,
    "run": lambda found: len(found["metrics"]) == 3 and found["use"] in (0, 1, 2) and "report" in found["next"][0],
    "report": lambda found: Path(found["page"]).is_file(),
    "review": lambda found: Path(found["page"]).name == "review.html",
    "audit": lambda found: len(found["words"]) == 3 and Path(found["file"]).is_file(),
    "predict": lambda found: (
        [sorted(row) for row in found["rows"]] == [["class", "confidence", "nearest", "path", "reason", "source"]] * 5
    ),
    "evaluate": lambda found: found["on"] == "test" and found["images"] == 150 and 0 <= found["error"] <= 1,
    "compare": lambda found: [len(one) for one in found["runs"].values()] == [3],
    "export": lambda found: Path(found["hub_folder"], "README.md").is_file(),
    "selection": lambda found: found["images"] == sum(found["classes"].values()) and Path(found["path"]).is_file(),
    "pool build": lambda found: (found["images"], found["rejected"]) == (5, {}),
    "pool embed": lambda found: [one["encoder"]["dimension"] for one in found["vectors"]] == [216],
    "pool join": lambda found: found["images"] == 900 + 120,
    "pool info": lambda found: (found["rows"], found["row"]) == (900, [SIDE, SIDE, 3]),
    "pool verify": lambda found: found["unchanged"],
    "dedup": lambda found: set(found["excluded"]) == {"test"},
    "status": lambda found: found == [],
    "data list": lambda found: found["sets"]["cifar10"]["here"] is None,
    "methods": lambda found: found["odst"]["changes"] == {} and found["st"]["changes"]["out_threshold"] is False,
    "doctor": lambda found: {"torch", "disk"} <= {one["name"] for one in found},
}


def test_a_mistake_leaves_standard_output_empty(place: Path) -> None:
    end = odst("data", "get", "backbones-are-not-fetched-here", "--json")
    assert (end.code, end.out) == (2, "")
    assert "no such" in fails("evaluate", place / "run", "--on", place / "nowhere", "--json")


def test_other_ways_through_a_command_are_one_document_too(place: Path) -> None:
    for words in (
        ("audit", place / "run", "--plan"),
        ("run", place / "run", "--dry-run"),
        ("compare", place / "run", "--out", place / "comparison.html"),
        ("predict", place / "run", place / "pictures.npy", "--csv", place / "labels.csv"),
        ("pool", "verify", place / "packed", "--shard", "0/2"),
    ):
        end = odst(*words, "--json")
        assert end.code == 0, end.err
        assert isinstance(json.loads(end.out), dict)


def test_what_json_cannot_hold_becomes_what_it_can() -> None:
    found = {
        "a": np.float32(np.inf),
        1: [Path("x"), np.arange(2), (np.nan, 0.5)],
        "b": np.int64(3),
        "c": np.bool_(True),
    }
    assert plain(found) == {"a": None, "1": ["x", [0, 1], [None, 0.5]], "b": 3, "c": True}
