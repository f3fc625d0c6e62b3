"""Runs side by side: the table in four formats, cautions, and the images that each run alone selected."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from commands import fails, odst
from odst.evaluation.metrics import auroc
from odst.evaluation.paired import auroc_change, error_change, placements
from odst.report import plots
from odst.report.comparison import _exclusive, cautions, open_runs
from odst.report.plots import Series
from odst.report.tables import as_latex, as_markdown, as_text, grids, latex_text, markdown_text, ordinal
from odst.run.directory import RunDir
from odst.seeds import stream
from runs import bar_world, config, make_run

STORY = {
    "odst": [
        {"round": 0, "error": 0.0319, "ece": 0.01, "od_auroc": 0.9895, "selected": None, "related": None, "correct": None},
        {"round": 1, "error": 0.0188, "ece": 0.02, "od_auroc": 0.9920, "selected": 1234, "related": 0.9, "correct": 0.8},
    ],
    "s_t & <b>😀": [
        {"round": 0, "error": 0.0389, "ece": 0.01, "od_auroc": 0.9274, "selected": None, "related": None, "correct": None}
    ],
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[RunDir]:
    place, world = tmp_path_factory.mktemp("runs"), bar_world()
    return [make_run(place / name, world, config(method={"name": name})) for name in ("odst", "st")]


def test_the_best_of_a_measure_is_bold_and_ties_share_it() -> None:
    made = grids(STORY)
    best = {(name, i) for name, cells in made[0].rows for i, cell in enumerate(cells) if cell.best}
    assert best == {("odst", 0 + 1), ("odst", 2), ("s_t & <b>😀", 2), ("odst", 5)}
    text = as_text(made)
    assert "1.88*" in text and "99.20*" in text and "3.89*" not in text
    assert "**1.88**" in as_markdown(made)
    assert r"\textbf{1.88}" in as_latex(made) and r"\emph{3.19}" in as_latex(made)


def test_text_columns_stand_in_line() -> None:
    for block in as_text(grids(STORY)).split("\n\n")[:2]:
        rounds, *rows = block.splitlines()[2:]
        ends = [m.end() for m in re.finditer(r"\S+", rounds)]
        for row in rows:
            assert all(row[end - 1 : end].strip() for end in ends if end <= len(row.rstrip("*")))


def test_the_number_of_a_single_round_stands_below_its_heading() -> None:
    _, top, rounds, row = as_text(grids({"odst": STORY["odst"][:1]})).split("\n\n")[0].splitlines()
    headings = [m.start() for m in re.finditer(r"\S+ %", top)]
    ends = [m.end() for m in re.finditer(r"base", rounds)]
    assert len(ends) == 3 and all(a < b for pair in zip(headings, ends, strict=True) for a, b in [pair])
    assert all(end < heading for end, heading in zip(ends, headings[1:], strict=False))
    assert [m.end() for m in re.finditer(r"[\d.]+", row)] == ends


def test_a_line_without_a_point_is_not_drawn() -> None:
    lines = [Series("odst", "c1", [None, 0.9, 0.8]), Series("supervised", "c2", [None])]
    chart = plots.rounds_chart("Task-related share", lines)
    assert "line c1" in chart and "line c2" not in chart  # a path of nothing is an error in the browser's console


def test_a_run_with_fewer_rounds_has_dashes() -> None:
    cells = dict(grids(STORY)[0].rows)["s_t & <b>😀"]
    assert [cell.text for cell in cells] == ["3.89", "–", "1.00", "–", "92.74", "–"]


def test_without_a_test_set_the_validation_measures_are_shown() -> None:
    line = {"round": 0, "error": None, "ece": None, "od_auroc": None, "val_error": 0.1, "val_od_auroc": 0.9}
    made = grids({"a": [line | {"selected": None, "related": None, "correct": None}]})
    assert [measure.key for measure, _ in made[0].groups] == ["val_error", "val_od_auroc"]


def test_names_are_text_in_every_format() -> None:
    assert markdown_text("s_t | <b>") == r"s\_t \| &lt;b&gt;"
    assert latex_text("s_t & 50% #1 {x} ~^\\ <b>") == (
        r"s\_t \& 50\% \#1 \{x\} \textasciitilde{}\textasciicircum{}\textbackslash{} \textless{}b\textgreater{}"
    )
    assert latex_text("😀") == "U+1F600"
    assert [ordinal(t) for t in (0, 1, 2, 3, 4, 11)] == ["base", "1st", "2nd", "3rd", "4th", "11th"]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="LaTeX is not installed")
@pytest.mark.slow
def test_the_latex_table_compiles(tmp_path: Path) -> None:
    body = as_latex(grids(STORY))
    (tmp_path / "t.tex").write_text(
        f"\\documentclass{{article}}\n\\begin{{document}}\n{body}\n\\end{{document}}\n", encoding="utf-8"
    )
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-1000:]
    assert (tmp_path / "t.pdf").stat().st_size > 1000


def test_runs_over_different_classes_are_refused_in_one_line(runs: list[RunDir], tmp_path: Path) -> None:
    other = make_run(tmp_path / "other", bar_world(classes=("x", "y", "plain")), config(), rounds=1)
    assert "different classes" in fails("compare", runs[0].path, other.path)
    assert "named twice" in fails("compare", runs[0].path, runs[0].path)
    assert "--format" in fails("compare", runs[0].path, "--format", "pdf")


def test_the_command_writes_each_format(runs: list[RunDir], tmp_path: Path) -> None:
    text = odst("compare", *(run.path for run in runs))
    assert text.code == 0 and text.out.startswith("Results")
    for kind in ("markdown", "latex", "text"):
        assert odst("compare", runs[0].path, "--format", kind, "--out", tmp_path / kind).code == 0
    assert (tmp_path / "text").read_text() == odst("compare", runs[0].path).out
    assert odst("compare", runs[0].path, "--out", tmp_path / "table.tex").code == 0
    assert (tmp_path / "table.tex").read_text() == (tmp_path / "latex").read_text()
    page = odst("compare", *(run.path for run in runs), "--out", tmp_path / "c.html", "--no-images")
    assert page.code == 0, page.err
    html = (tmp_path / "c.html").read_text()
    assert "data:image" not in html and "OD-AUROC" in html


def test_exclusive_images_are_in_no_other_run(runs: list[RunDir]) -> None:
    first, second = (pq.read_table(run.round(1) / "selection.parquet") for run in runs)
    alone = _exclusive(first, [second])
    hashes = set(second["content_hash"].to_pylist())
    assert not set(alone["content_hash"].to_pylist()) & hashes
    assert alone.num_rows == sum(one not in hashes for one in first["content_hash"].to_pylist())
    assert _exclusive(first, []).num_rows == first.num_rows


def test_what_makes_runs_hard_to_compare_is_said(runs: list[RunDir], tmp_path: Path) -> None:
    assert cautions(open_runs(runs)) == []
    half = make_run(tmp_path / "half", bar_world(seed=3), config(run={"seed": 3}), rounds=1)
    said = " ".join(cautions(open_runs([runs[0], half])))
    for part in (
        "half is not finished: it has 1 of 3 rounds",
        "same test images",
        "same out_test images",
        "different seeds",
    ):
        assert part in said
    result = odst("compare", runs[0].path, half.path)
    assert " ".join(result.err.split("\n")).strip() == said and result.out.startswith("Results")


def test_runs_of_the_same_name_are_told_apart_by_their_folder(runs: list[RunDir], tmp_path: Path) -> None:
    copy = tmp_path / "again" / "odst"
    shutil.copytree(runs[0].path, copy)
    names = [one.name for one in open_runs([runs[0], RunDir(copy)])]
    assert names[1] == "again/odst" and names[0].endswith("/odst")
    deeper = tmp_path / "once" / "again" / "odst"
    shutil.copytree(runs[0].path, deeper)
    names = [one.name for one in open_runs([RunDir(copy), RunDir(deeper)])]
    assert names == [f"{tmp_path.name}/again/odst", "once/again/odst"]
    assert "named twice" in fails("compare", copy, copy.parent / "." / "odst")


# paired differences ----------------------------------------------------------------------------------------------------------


def test_placements_give_the_auroc_exactly() -> None:
    rng = stream(0, "placements")
    score_in, outs = rng.integers(0, 9, 60).astype(float), [rng.integers(0, 7, n).astype(float) for n in (30, 50)]
    found = placements(score_in, outs)
    assert found.auroc == pytest.approx(np.mean([auroc(score_in, out) for out in outs]))
    assert all(one.mean() == pytest.approx(auroc(score_in, out)) for one, out in zip(found.outside, outs, strict=True))


def test_the_spread_of_an_auroc_difference_is_that_of_resampling() -> None:
    rng = stream(1, "placements")
    base_in, base_out = rng.normal(1, 1, 400), rng.normal(0, 1, 300)
    better_in, better_out = base_in + rng.normal(0.4, 0.5, 400), base_out + rng.normal(0, 0.5, 300)
    change = auroc_change(placements(base_in, [base_out]), placements(better_in, [better_out]))
    drawn = []
    for _ in range(400):
        i, j = rng.integers(400, size=400), rng.integers(300, size=300)
        drawn.append(auroc(better_in[i], better_out[j]) - auroc(base_in[i], base_out[j]))
    assert change.difference == pytest.approx(auroc(better_in, better_out) - auroc(base_in, base_out))
    assert (change.high - change.low) / (2 * 1.96) == pytest.approx(np.std(drawn), rel=0.15)
    assert change.clear


def test_a_single_out_image_leaves_the_widest_interval() -> None:
    score = stream(0, "scores").normal(size=50)
    before, after = placements(score, [np.array([0.1])]), placements(score, [np.array([2.0])])
    assert before.interval() == (0, 1)
    change = auroc_change(before, after)
    assert (change.low, change.high) == (-1, 1) and not change.clear


def test_a_model_against_itself_is_no_difference() -> None:
    logits = np.eye(3)[[0, 1, 2, 0]]
    change = error_change(logits, logits, np.array([0, 1, 2, 1]), seed=0)
    assert (change.low, change.high, change.clear) == (0, 0, False)
    assert change.before == change.after == 0.25


def test_a_page_of_two_runs_lists_their_numbers(runs: list[RunDir], tmp_path: Path) -> None:
    odst("compare", *(run.path for run in runs), "--out", tmp_path / "c.html", "--no-images")
    html = (tmp_path / "c.html").read_text()
    for run in runs:
        for line in (run.path / "metrics.jsonl").read_text().splitlines():
            assert f"{100 * json.loads(line)['error']:.2f}" in html
