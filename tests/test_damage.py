"""A run that somebody has changed: it is noticed where it is used, and never gives other answers with exit code 0."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from commands import fails, odst
from odst.classifier.load import load
from odst.errors import UserError
from odst.files import digest, write_json
from odst.report.findings import gather
from odst.run.directory import RunDir
from runs import bar_world, config, make_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return make_run(tmp_path_factory.mktemp("runs") / "run", bar_world(pool=200), config(method={"ratio": [4, 8]}))


@pytest.fixture
def run(finished: RunDir, tmp_path: Path) -> RunDir:
    return RunDir(Path(shutil.copytree(finished.path, tmp_path / "run")))


def change(file: Path, **values: Any) -> None:
    before = json.loads(file.read_text())
    write_json(file, {key: value for key, value in (before | values).items() if value != "gone"})


def unseal(run: RunDir) -> None:
    """Make it a run of an odst that sealed round.json only, and did not say in it where it belongs."""
    for name in ("run.json", "final.json"):
        change(run.path / name, digest="gone", **({"format": 1} if name == "run.json" else {}))
    for t in run.rounds():
        file = run.round(t) / "round.json"
        note = json.loads(file.read_text())
        note = {key: value for key, value in note.items() if key not in ("digest", "folder", "before", "run")}
        write_json(file, note | {"digest": digest(note)})


def refuse(run: RunDir, says: str, round: int | None = None) -> None:
    """By everything that reads a run, or this round of it."""
    with pytest.raises(UserError, match=says):
        load(run.path, round=round)
    assert says in fails("compare", run.path)
    assert says in fails("evaluate", run.path, *(() if round is None else ("--round", round)))
    with pytest.raises(UserError, match=says):
        gather(run, None)


def test_a_run_as_it_was_written_is_read(run: RunDir) -> None:
    assert load(run.path).classes == tuple(run.info()["classes"])
    assert odst("evaluate", run.path).code == 0


@pytest.mark.parametrize("changes", [
    {"shape": [8, 8, 3]}, {"seed": 5}, {"seed": "gone"}, {"method": "st"}, {"recipe": {}}, {"digest": "gone"}, {"digest": 0},
])  # fmt: skip
def test_an_edited_run_json_is_noticed(run: RunDir, changes: dict[str, Any]) -> None:
    change(run.path / "run.json", **changes)
    refuse(run, "has changed since it was written")


def test_swapped_class_names_are_noticed(run: RunDir) -> None:
    change(run.path / "run.json", classes=run.info()["classes"][::-1])
    refuse(run, "has changed since it was written")


@pytest.mark.parametrize("changes", [
    {"round": "1"}, {"round": 99}, {"round": None}, {"round": -1}, {"round": True}, {"round": "gone"}, {"round": 0}, {"round": 1},
    {"round": 2}, {"model_hash": "0"}, {"last_round": 1}, {"val_error": 0.5}, {"digest": "gone"},
])  # fmt: skip
def test_an_edited_final_json_is_noticed_and_written_again(run: RunDir, changes: dict[str, Any]) -> None:
    final = run.final()
    assert final is not None
    if changes == {"round": final["round"]}:
        pytest.skip("that is its round")
    change(run.path / "final.json", **changes)
    with pytest.raises(UserError, match=r"does not fit the rounds of this run\. `odst run"):
        load(run.path)
    assert "does not fit" in fails("compare", run.path)
    run.finish(final["round"], final["planned_rounds"], final["stopped"])
    assert run.final() == final


@pytest.mark.parametrize(("source", "target"), [(2, 1), (1, 2), (0, 1), (1, 0)])
def test_a_round_copied_over_another_is_noticed(run: RunDir, source: int, target: int) -> None:
    shutil.rmtree(run.round(target))
    shutil.copytree(run.round(source), run.round(target))
    refuse(run, f"this is round-{source} under another name", target)


def test_a_round_of_another_run_is_noticed(run: RunDir, tmp_path: Path) -> None:
    other = make_run(
        tmp_path / "other", bar_world(pool=200), config(method={"ratio": [4, 8]}, run={"seed": 1}), rounds=1
    )
    shutil.rmtree(run.round(0))
    shutil.copytree(other.round(0), run.round(0))
    refuse(run, "was not made here", 0)


@pytest.mark.parametrize("name", ["model.safetensors", "logits.safetensors", "selection.parquet"])
def test_a_file_swapped_with_another_rounds_is_noticed(run: RunDir, name: str) -> None:
    if name != "selection.parquet":
        shutil.copy(run.round(1) / name, run.round(2) / name)
    else:
        run.round(2).joinpath(name).write_bytes(run.round(1).joinpath(name).read_bytes())
    with pytest.raises(UserError, match=f"{name}: this file has changed"):
        run.note(2)
    if name == "selection.parquet":
        with pytest.raises(UserError, match="has changed"):
            run.selection(2)
    if name == "logits.safetensors":
        with pytest.raises(UserError, match="has changed"):
            run.logits(2)


def test_a_missing_round_is_not_passed_over_in_a_finished_run(run: RunDir) -> None:
    (run.round(2) / "round.json").unlink()
    with pytest.raises(UserError, match="does not fit the rounds"):
        load(run.path)


def test_a_run_of_an_older_odst_is_read_with_what_it_has(run: RunDir) -> None:
    final = run.final()
    assert final is not None
    best = final["round"]
    unseal(run)
    assert load(run.path).round == best
    change(run.path / "final.json", round=(best + 1) % 3)
    with pytest.raises(UserError, match="does not fit"):
        load(run.path)
    change(run.path / "final.json", round=best)
    change(run.path / "run.json", classes=run.info()["classes"][::-1])
    with pytest.raises(UserError, match="was not made here"):
        load(run.path)
    change(run.path / "run.json", classes="gone", sets="gone")
    with pytest.raises(UserError, match="it has no classes and no sets"):
        load(run.path)


def test_a_run_of_a_later_odst_is_one_line(run: RunDir) -> None:
    change(run.path / "run.json", format=3)
    refuse(run, "this odst reads formats 1 and 2")


def test_deep_json_is_damaged_json(run: RunDir) -> None:
    (run.path / "run.json").write_text("[" * 100_000)
    refuse(run, "is damaged")


def test_lines_of_timings_that_are_none_are_passed_over(run: RunDir) -> None:
    (run.path / "timings.jsonl").write_bytes(
        b'{"stage": 3}\n[]\n\xff\n{"stage": "x", "seconds": 1.5, "images": 2}\n{"sta'
    )
    assert run.timings() == [("x", 1.5, 2)]
