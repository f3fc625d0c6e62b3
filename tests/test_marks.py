"""Marks in files, and what they certify of a real run: the right ones count, all others are one line."""

import html
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from commands import fails, odst
from odst.classifier.load import load
from odst.evaluation.audit import most_wrong
from odst.report.card import model_card
from odst.run.audit import certified_rows, drawn_ranks, ranked
from odst.run.directory import RunDir
from odst.run.marks import COLUMNS, Mark, read_marks, run_hash, settle, write_marks
from reviewed import bar_run, truth_of, truthful


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return bar_run(tmp_path_factory.mktemp("marks"))


@pytest.fixture
def run(made: RunDir, tmp_path: Path) -> RunDir:
    shutil.copytree(made.path, tmp_path / "run")
    return RunDir(tmp_path / "run")


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(file): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


MARK = Mark(7, "ab", "cd", 2, "audit", 'it\'s, a "cat"', "relabelled", "dog\n1", 150, "Ann, of <b>X</b>", "18 Nov 😀")


@pytest.mark.parametrize("name", ["marks.json", "marks.csv"])
def test_marks_come_back_from_a_file_as_they_were_written(name: str, tmp_path: Path) -> None:
    marks = [MARK, replace(MARK, pool_id=8, verdict="none", label=None, draws=None, mode="triage", who="", when="")]
    write_marks(tmp_path / name, marks)
    assert read_marks(tmp_path / name) == marks


def test_two_people_who_disagree_leave_the_stricter_verdict_and_no_label() -> None:
    def says(who: str, verdict: str, label: str | None = None, j: int = 7) -> Mark:
        return replace(MARK, pool_id=j, who=who, verdict=verdict, label=label)

    found = settle([says("a", "right"), says("b", "wrong"), says("a", "right", j=9), says("b", "right", j=9)])
    assert [(mark.pool_id, mark.verdict) for mark in found.marks] == [(7, "wrong"), (9, "right")]
    assert len(found.disagreements) == 1 and "a says right, b says wrong" in found.disagreements[0]
    torn = settle([says("a", "relabelled", "x"), says("b", "relabelled", "y")])
    assert [(mark.verdict, mark.label) for mark in torn.marks] == [("wrong", None)]


def test_the_marks_of_a_truthful_reviewer_become_a_certificate(run: RunDir, tmp_path: Path) -> None:
    write_marks(tmp_path / "marks.json", truthful(run, 2))
    result = odst("audit", run.path, "--marks", tmp_path / "marks.json", "--round", 2)
    assert result.code == 0, result.err
    found, truth = run.audit(2), truth_of(run)
    assert found is not None and run.final()["certificates"] == {"2": found["certificate"]}
    assert found["certificate"][1:] == found["words"]
    assert "with probability at least 95 %" in found["certificate"][0] and "Seen by anna." in found["certificate"][0]
    certified = 0
    for one in ranked(run, 2):
        own = found["classes"][one.name]
        assert own["seen"] == own["draws"] == min(150, len(one))
        assert f"  {found['words'][list(found['classes']).index(one.name)]}" in result.out.splitlines()
        if own["draws"] == len(one):  # everything was seen: the truth itself
            assert own["wrong"] == sum(truth[j] != one.name for j in one.ids)
        certified += own["certified"]
    assert certified > 0
    rows = certified_rows(run, 2)
    right = [truth[j] == name for j, name in zip(*(rows[key].to_pylist() for key in ("pool_id", "class")), strict=True)]
    assert sum(right) >= 0.95 * len(right)
    assert "source" in rows.column_names and set(rows["pool_id"].to_pylist()).isdisjoint(found["wrong"])


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    """A run whose classes have more than 200 selected images, so that a part of them can be certified."""
    return bar_run(tmp_path_factory.mktemp("wide"), pool=2400, alpha=0.5, k=[420], max_copies=1)


def marked_by_rank(run: RunDir, draws: int, wrong: dict[str, int | set[int]]) -> list[Mark]:
    """All draws seen; wrong are those beyond a rank of their class, or at these places of the drawing."""
    sets, found = ranked(run, 1), []
    for one, places in zip(sets, drawn_ranks(run, 1, sets, draws), strict=True):
        beyond = wrong.get(one.name, set())
        for i, at in enumerate(places.tolist()):
            bad = i in beyond if isinstance(beyond, set) else at >= beyond
            verdict = "wrong" if bad else "right"
            found.append(Mark(int(one.ids[at]), one.hashes[at], run_hash(run, 1), 1, "audit", one.name, verdict, None, draws, "anna"))  # fmt: skip
    return found


def test_exactly_the_certified_part_of_a_class_leaves_the_run(wide: RunDir, tmp_path: Path) -> None:
    """The tail of one class is wrong: the 200 most confident are certified, and no other of that class is released."""
    sets = ranked(wide, 1)
    tail = max(sets, key=len)
    assert len(tail) > 260
    table = wide.selection(1)
    odds = dict(zip(table["pool_id"].to_pylist(), table["log_odds"].to_pylist(), strict=True))
    order = sorted(tail.ids.tolist(), key=lambda j: -odds[j])  # the most confident first, by what the run wrote
    write_marks(tmp_path / "marks.json", marked_by_rank(wide, 250, {tail.name: 200}))
    assert odst("audit", wide.path, "--marks", tmp_path / "marks.json").code == 0
    assert wide.audit(1)["classes"][tail.name]["certified"] == 200
    assert odst("selection", wide.path, "--certified", "--to", "parquet", "--out", tmp_path / "c.parquet").code == 0
    rows = pq.read_table(tmp_path / "c.parquet")
    left = {name: set() for name in wide.info()["classes"]}
    for j, name in zip(rows["pool_id"].to_pylist(), rows["class"].to_pylist(), strict=True):
        left[name].add(j)
    assert left[tail.name] == set(order[:200])
    for one in sets:
        if one.name != tail.name:
            assert left[one.name] == set(one.ids.tolist())
    wide.audit_file(1).unlink()


def test_delta_is_split_over_the_classes(wide: RunDir, tmp_path: Path) -> None:
    """As many wrong ones as a class of its own may have, and one of three may not."""
    sets = [one for one in ranked(wide, 1) if len(one)]
    one = min(sets, key=len)
    n = min(90, len(one))
    alone, shared = (most_wrong(len(one), n, 0.95, delta) for delta in (0.05, 0.05 / len(sets)))
    assert len(sets) == 3 and alone > shared
    for wrong, certified in ((shared, len(one)), (alone, 0)):
        places = drawn_ranks(wide, 1, ranked(wide, 1), n)[wide.info()["classes"].index(one.name)]
        last = set(
            np.argsort(places)[len(places) - wrong :].tolist()
        )  # the least confident draws: no earlier set fails
        write_marks(tmp_path / "marks.json", marked_by_rank(wide, n, {one.name: last}))
        assert odst("audit", wide.path, "--marks", tmp_path / "marks.json").code == 0
        found = wide.audit(1)["classes"][one.name]
        assert found["wrong"] == wrong and (found["certified"] == len(one)) == bool(certified)
        wide.audit_file(1).unlink()


def test_the_class_itself_as_a_label_means_right(run: RunDir, tmp_path: Path) -> None:
    marks = [replace(mark, verdict="right", label=None) for mark in truthful(run, 2)]
    marks[0] = replace(marks[0], verdict="relabelled", label=marks[0].name)
    write_marks(tmp_path / "marks.json", marks)
    assert read_marks(tmp_path / "marks.json")[0] == replace(marks[0], verdict="right", label=None)
    assert odst("audit", run.path, "--marks", tmp_path / "marks.json", "--round", 2).code == 0
    assert run.audit(2)["classes"][marks[0].name]["wrong"] == 0


def test_a_certificate_stays_when_the_finished_run_is_run_again(run: RunDir, tmp_path: Path) -> None:
    write_marks(tmp_path / "marks.csv", truthful(run, 2))
    assert odst("audit", run.path, "--marks", tmp_path / "marks.csv", "--round", 2).code == 0
    before = run.final()
    assert odst("run", run.path, "--quiet").code == 0
    assert run.final() == before


@pytest.mark.slow
def test_the_certificate_stands_in_the_report_and_in_the_exported_model(run: RunDir, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    write_marks(tmp_path / "marks.json", truthful(run, 2, who="<i>anna</i>"))
    assert odst("audit", run.path, "--marks", tmp_path / "marks.json", "--round", 2).code == 0
    assert odst("report", run.path, "--out", tmp_path / "report.html").code == 0
    text = html.unescape(page := (tmp_path / "report.html").read_text(encoding="utf-8"))
    words = run.audit(2)["words"]
    assert all(line in text for line in words) and "<i>anna" not in page and "Seen by <i>anna</i>." in text
    card = model_card(load(run.path, round=2, device="cpu"), "bars")
    assert "Seen by &lt;i&gt;anna&lt;/i&gt;." in card and "<i>" not in card
    assert odst("export", run.path, "--round", 2, "--onnx", tmp_path / "model.onnx").code == 0
    metadata = {one.key: one.value for one in onnx.load(tmp_path / "model.onnx").metadata_props}
    assert json.loads(metadata["certificates"]) == run.audit(2)["certificate"]


def test_a_class_counts_only_when_all_its_draws_are_seen(run: RunDir, tmp_path: Path) -> None:
    marks = truthful(run, 2)
    write_marks(tmp_path / "marks.json", marks[1:])
    result = odst("audit", run.path, "--marks", tmp_path / "marks.json", "--round", 2)
    first = run.audit(2)["classes"][marks[0].name]
    assert result.code == 0 and first["certified"] == 0 and first["seen"] == first["draws"] - 1
    assert f"{first['seen']} of {first['draws']} seen" in result.out


def test_triage_marks_are_left_out_and_disagreements_are_listed(run: RunDir, tmp_path: Path) -> None:
    marks = truthful(run, 2)
    right = next(mark for mark in marks if mark.verdict == "right")
    others = [replace(mark, mode="triage", draws=None) for mark in marks[:4]]
    write_marks(tmp_path / "a.json", [*marks, *others])
    write_marks(tmp_path / "b.json", [replace(right, verdict="wrong", who="ben")])
    alone = odst("audit", run.path, "--marks", tmp_path / "a.json")
    wrong = run.audit(2)["classes"][right.name]["wrong"]
    both = odst("audit", run.path, "--marks", tmp_path / "a.json", "--marks", tmp_path / "b.json")
    assert alone.code == both.code == 0
    assert "4 triage marks left out" in both.out and "anna says right, ben says wrong" in both.out
    assert run.audit(2)["classes"][right.name]["wrong"] == wrong + 1


BAD = {
    "another run": (lambda m: replace(m, run_hash="0" * 64), "of another run"),
    "another round": (lambda m: replace(m, round=9), "of another run"),
    "another pool": (lambda m: replace(m, content_hash="0" * 32), "of another pool"),
    "no such id": (lambda m: replace(m, pool_id=10**6), "is not in the pool"),
    "unknown class": (lambda m: replace(m, name="zebra"), "the class 'zebra'"),
    "unknown label": (lambda m: replace(m, verdict="relabelled", label="zebra"), "the class 'zebra'"),
    "other draws": (lambda m: replace(m, draws=40), "draws a class"),
    "triage alone": (lambda m: replace(m, mode="triage", draws=None), "only triage marks"),
    "a val_out": (lambda m: replace(m, mode="val_out"), "of a val_out"),
}


@pytest.mark.parametrize("fault", BAD)
def test_marks_that_do_not_belong_are_one_line_and_change_nothing(fault: str, run: RunDir, tmp_path: Path) -> None:
    change, said = BAD[fault]
    marks = truthful(run, 2)
    every = fault == "triage alone"
    write_marks(tmp_path / "marks.json", [change(mark) if every or not i else mark for i, mark in enumerate(marks)])
    before = snapshot(run.path)
    assert said in fails("audit", run.path, "--marks", tmp_path / "marks.json")
    assert snapshot(run.path) == before


def test_a_page_that_was_edited_to_show_other_images_is_refused(run: RunDir, tmp_path: Path) -> None:
    marks, sets = truthful(run, 2, draws=20), ranked(run, 2)
    drawn = {mark.pool_id for mark in marks}
    other = next(at for at, j in enumerate(sets[0].ids.tolist()) if j not in drawn)
    marks[0] = replace(marks[0], pool_id=int(sets[0].ids[other]), content_hash=sets[0].hashes[other])
    write_marks(tmp_path / "marks.json", marks)
    before = snapshot(run.path)
    assert "was not drawn" in fails("audit", run.path, "--marks", tmp_path / "marks.json")
    assert snapshot(run.path) == before


TEXTS = {
    "nothing": "",
    "blanks": " \n ",
    "half a file": '{"format": "odst-marks-1", "marks": [',
    "another format": '{"format": "something", "marks": []}',
    "no mark": '{"format": "odst-marks-1", "marks": []}',
    "a list": "[1, 2]",
    "marks that are numbers": '{"format": "odst-marks-1", "marks": [1]}',
    "no column": "pool_id,class\n1,cat\n",
    "a header alone": ",".join(COLUMNS) + "\n",
    "a fraction": json.dumps({"format": "odst-marks-1", "marks": [MARK.to_json() | {"pool_id": 1.5}]}),
    "a minus": json.dumps({"format": "odst-marks-1", "marks": [MARK.to_json() | {"pool_id": -1}]}),
    "less than one draw": json.dumps({"format": "odst-marks-1", "marks": [MARK.to_json() | {"draws": -1}]}),
    "a verdict of one's own": json.dumps({"format": "odst-marks-1", "marks": [MARK.to_json() | {"verdict": "fine"}]}),
    "a relabelled one without a label": json.dumps({"format": "odst-marks-1", "marks": [MARK.to_json() | {"label": ""}]}),
    "bytes": "\x00\xff",
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_a_file_that_holds_no_marks_is_one_line(text: str, made: RunDir, tmp_path: Path) -> None:
    (tmp_path / "marks.json").write_bytes(TEXTS[text].encode("latin-1"))
    assert "marks.json: " in fails("audit", made.path, "--marks", tmp_path / "marks.json")
    assert made.audit(2) is None


def test_a_second_audit_with_more_draws_is_refused(run: RunDir, tmp_path: Path) -> None:
    for draws in (20, 30):
        write_marks(tmp_path / f"{draws}.json", truthful(run, 2, draws=draws))
    assert odst("audit", run.path, "--marks", tmp_path / "20.json").code == 0
    assert "worth nothing" in fails("audit", run.path, "--marks", tmp_path / "30.json")
    assert run.audit(2)["draws"] == 20


def test_the_plan_says_beforehand_how_many_draws_it_takes(made: RunDir) -> None:
    result = odst("audit", made.path, "--plan")
    assert result.code == 0 and "for 0.95" in result.out and "for 0.998" in result.out
    assert "--target: a fraction" in fails("audit", made.path, "--plan", "--target", 95)
    assert "no marks" in fails("audit", made.path)


def test_json_and_csv_in_the_folder_of_marks_are_found(run: RunDir) -> None:
    marks = truthful(run, 2)
    write_marks(run.marks / "a.json", marks[::2])
    write_marks(run.marks / "b.CSV", marks[1::2])
    assert odst("audit", run.path).code == 0
    assert all(one["seen"] == one["draws"] for one in run.audit(2)["classes"].values())
