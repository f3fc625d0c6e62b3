"""Marks fed back: right and relabelled images are learnt from, foreign ones join val_out, wrong ones do not come back."""

import shutil
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from commands import fails, odst
from odst.method.labelling import Predictions
from odst.method.selection import select
from odst.run.audit import certified_rows
from odst.run.directory import RunDir
from odst.run.marks import Mark, read_marks, settle, write_marks
from odst.run.preparation import pool_of, sets_of
from reviewed import bar_run, truth_of, truthful


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return bar_run(tmp_path_factory.mktemp("feedback"))


def corrected(run: RunDir) -> list[Mark]:
    """The truth in full: what it is where it is one of the classes, none where it is not; every tenth wrong one just wrong."""
    truth, classes, marks = truth_of(run), run.info()["classes"], []
    for i, mark in enumerate(truthful(run, 2)):
        what = truth[mark.pool_id]
        if mark.verdict == "right" or i % 10 == 0:
            marks.append(mark)
        elif what in classes:
            marks.append(replace(mark, verdict="relabelled", label=what))
        else:
            marks.append(replace(mark, verdict="none"))
    return marks


@pytest.fixture(scope="module")
def fed(run: RunDir, tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, list[Mark], dict[str, bytes]]:
    marks = corrected(run)
    marks[0] = replace(marks[0], verdict="wrong")  # at least one of each that matters here
    file = tmp_path_factory.mktemp("marks") / "marks.json"
    write_marks(file, marks)
    before = {str(one): one.read_bytes() for one in run.path.rglob("*") if one.is_file()}
    result = odst("run", run.path, "--marks", file, "--quiet")
    assert result.code == 0, result.err
    file.unlink()  # what lies among downloads does not stay: all that follows goes without it
    return RunDir(run.path.with_name("run-marked")), marks, before


def test_the_marks_join_the_sets_and_leave_the_pool(run: RunDir, fed: tuple) -> None:
    child, marks, before = fed
    assert {str(one): one.read_bytes() for one in run.path.rglob("*") if one.is_file()} == before  # RUN is not touched
    was, now = sets_of(run), sets_of(child)
    taught = {mark.pool_id: mark.teaches for mark in marks if mark.teaches}
    none = [mark.pool_id for mark in marks if mark.verdict == "none"]
    assert taught and none
    joined = now.labelled.x[len(was.labelled) :]
    ids = sorted(taught)
    np.testing.assert_array_equal(joined, was.pool.x[np.array(ids)])
    assert [now.classes[c] for c in now.labelled.y[len(was.labelled) :]] == [taught[j] for j in ids]
    np.testing.assert_array_equal(now.val_out[len(was.val_out) :], was.pool.x[np.array(sorted(none))])
    assert set(now.pool.excluded) == {*was.pool.excluded, *ids, *none}
    np.testing.assert_array_equal(pool_of(child).excluded, now.pool.excluded)


def test_wrong_ones_never_come_back_as_that_class(run: RunDir, fed: tuple) -> None:
    child, marks, _ = fed
    wrong = {(mark.pool_id, mark.name) for mark in marks if mark.verdict == "wrong"}
    assert wrong
    for t in child.rounds()[1:]:
        table = child.selection(t)
        assert not wrong & set(zip(table["pool_id"].to_pylist(), table["class"].to_pylist(), strict=True))


def test_what_is_ruled_out_is_passed_over_for_that_class_alone() -> None:
    logits = np.array([[5.0, 0], [4, 0], [0, 4]], np.float32)
    p, tau = Predictions(logits, 1.0), np.zeros(2)
    barred = np.array([[0, 0], [2, 0]])
    I = select(p, tau, 5, excluded=np.empty(0, np.int64), max_copies=1, seed=0, t=0, barred=barred)
    assert list(zip(I.ids.tolist(), I.classes.tolist(), strict=True)) == [(1, 0), (2, 1)]


def test_the_new_run_names_its_parent_and_asks_as_much_of_the_pool(run: RunDir, fed: tuple) -> None:
    child, marks, _ = fed
    info, final = child.info(), run.final()
    assert info["parent"]["name"] == "run" and info["parent"]["round"] == final["round"]
    told = info["sets"]["marks"]
    assert told["images"] == len(marks)
    for verdict in ("right", "relabelled", "none", "wrong"):
        assert told[verdict] == sum(mark.verdict == verdict for mark in marks)
    for t in child.rounds()[1:]:
        assert child.note(t)["selection"]["k"] == run.note(t)["selection"]["k"]


def test_the_report_shows_what_the_marks_changed(run: RunDir, fed: tuple, tmp_path: Path) -> None:
    child, marks, _ = fed
    assert odst("report", child.path, "--out", tmp_path / "report.html", "--no-images").code == 0
    section = (tmp_path / "report.html").read_text(encoding="utf-8").partition('<section id="marked">')[2]
    section = section.partition("</section>")[0]
    assert f"learns from {len(marks)} pictures" in section and "<b>run</b>" in section
    wrong = sum(mark.verdict == "wrong" for mark in marks)
    assert f"{wrong} wrong {'one is' if wrong == 1 else 'ones are'} never selected" in section
    before, after = (one.metrics()[one.final()["round"]]["error"] for one in (run, child))
    assert f"<td>{100 * before:.2f}" in section and f"<td>{100 * after:.2f}" in section


def test_the_same_command_goes_on_with_the_marked_run(run: RunDir, fed: tuple) -> None:
    child, _, _ = fed
    before = (child.path / "final.json").read_bytes()
    assert odst("run", child.path, "--quiet").code == 0
    assert (child.path / "final.json").read_bytes() == before


def test_a_marked_run_has_its_marks_with_it(fed: tuple, tmp_path: Path) -> None:
    """Its copy may be moved, begun again and marked again; nothing outside of it is asked for."""
    child, marks, _ = fed
    (name,) = tomllib.loads((child.path / "config.toml").read_text())["data"]["marks"]
    assert read_marks(child.path / name) == marks
    moved = RunDir(Path(shutil.copytree(child.path, tmp_path / "moved")))
    (file,) = moved.config().data.marks
    assert Path(file) == tmp_path / "moved" / name
    np.testing.assert_array_equal(sets_of(moved).pool.excluded, sets_of(child).pool.excluded)
    few = "training.phases=[{steps=2, lr=0.1}]"
    result = odst("run", moved.path, "--fresh", "--quiet", "--set", few)
    assert result.code == 0, result.err
    assert read_marks(Path(moved.config().data.marks[0])) == marks and (tmp_path / "moved.old-1").is_dir()


def test_marks_are_of_a_run_and_not_of_a_config_nor_of_a_val_out(run: RunDir, tmp_path: Path) -> None:
    marks = truthful(run, 2)
    write_marks(tmp_path / "marks.json", marks)
    config = tmp_path / "config.toml"
    config.write_bytes((run.path / "config.toml").read_bytes())
    out = ("--out", tmp_path / "new", "--quiet")
    assert "is no run, and marks are of a run's selections" in fails(
        "run", config, "--marks", tmp_path / "marks.json", *out
    )
    write_marks(tmp_path / "marks.json", [replace(mark, run_hash="0" * 64) for mark in marks])
    given = ("--set", f"data.marks={tmp_path / 'marks.json'}", *out)
    assert "of another run" in fails("run", run.path, *given)
    write_marks(tmp_path / "marks.json", [replace(mark, mode="val_out", verdict="none", name="") for mark in marks])
    assert "of a val_out" in fails("run", config, *given)
    assert not (tmp_path / "new").exists()


def test_a_certified_selection_is_used_as_it_is(run: RunDir, tmp_path: Path) -> None:
    write_marks(tmp_path / "marks.json", truthful(run, 2))
    assert odst("audit", run.path, "--marks", tmp_path / "marks.json", "--round", 2).code == 0
    rows = certified_rows(run, 2)
    run.audit_file(2).unlink()
    pq.write_table(rows, tmp_path / "certified.parquet")
    result = odst(
        "run", run.path, "--method", "given-selection", "--set", f"data.selection={tmp_path / 'certified.parquet'}",
        "--set", "method.k=[100]", "--out", tmp_path / "given", "--quiet",
    )  # fmt: skip
    assert result.code == 0, result.err
    used = RunDir(tmp_path / "given").selection(1)
    assert sorted(used["pool_id"].to_pylist()) == sorted(rows["pool_id"].to_pylist())


def test_marks_of_another_run_begin_nothing(run: RunDir, tmp_path: Path) -> None:
    for change, said in (({"run_hash": "0"}, "of another run"), ({"content_hash": "0"}, "of another pool")):
        write_marks(tmp_path / "marks.json", [replace(mark, **change) for mark in truthful(run, 2)])
        assert said in fails("run", run.path, "--marks", tmp_path / "marks.json", "--out", tmp_path / "new")
        assert not (tmp_path / "new").exists()
    sets = f"data.marks={tmp_path / 'marks.json'}"
    assert "of another pool" in fails("run", run.path, "--set", sets, "--out", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_people_who_contradict_each_other_teach_nothing() -> None:
    one = Mark(7, "ab", "cd", 2, "triage", "cat", "relabelled", "dog")
    found = settle([one, replace(one, name="dog", verdict="wrong", label=None)])
    assert [mark.verdict for mark in found.marks] == ["wrong"] and set(found.barred) == {(7, "cat"), (7, "dog")}
    agreed = settle([one, replace(one, verdict="wrong", label=None)])  # not a cat, and one knows what it is
    assert agreed.marks[0].teaches == "dog" and agreed.disagreements == ()
