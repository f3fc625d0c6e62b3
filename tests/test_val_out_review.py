"""A val_out by eye: marks move lines, the random sample says how clean it was, and everything else is one line."""

import csv
import http.client
import json
import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from browser import CHROMIUM, chromium
from commands import fails, odst
from odst.project import cleaning
from odst.project.cleaning import Cleaning, open_cleaning
from odst.run.marks import Mark, write_marks
from odst.seeds import stream
from runs import SIDE, bars

NAMES = ("across", "down")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `odst init` makes of a user's folders; a pool picture is named after what it shows."""
    root, rng = tmp_path_factory.mktemp("project"), stream(0, "val_out review")
    for c, name in enumerate(NAMES):
        (root / "labelled" / name).mkdir(parents=True)
        for i, x in enumerate(bars(rng, np.full(12, c))):
            Image.fromarray(x).save(root / "labelled" / name / f"{i}.png")
    (root / "pool").mkdir()
    kind = rng.choice([-1, -1, -1, -1, 0, 1], size=500)
    for j, (x, c) in enumerate(zip(bars(rng, kind), kind, strict=True)):
        Image.fromarray(x).save(root / "pool" / f"{'other' if c < 0 else NAMES[c]}-{j}.png")
    result = odst("init", root, "--size", SIDE)
    assert result.code == 0, result.err
    assert "--val-out" in result.out
    return root


@pytest.fixture
def project(made: Path, tmp_path: Path) -> Path:
    """Lists of its own, over the same pool."""
    for file in ("val_out.csv", "val_out_aside.csv"):
        (tmp_path / file).write_bytes((made / file).read_bytes())
    text = (made / "odst.toml").read_text(encoding="utf-8")
    for name in ("labelled", "odst-pool"):
        text = text.replace(f'"{name}', f'"{made / name}')
    (tmp_path / "odst.toml").write_text(text, encoding="utf-8")
    return tmp_path


def shows(one: Cleaning, j: int) -> str:
    return re.split(r"[-/]", one.pool.source(np.array([j]))[0])[-2]


def ids(file: Path) -> set[int]:
    with open(file, encoding="utf-8") as text:
        return {int(row["pool_id"]) for row in csv.DictReader(text)}


def marks(one: Cleaning, drawn: list[int], others: list[int], draws: int) -> list[Mark]:
    """The truth of these images."""
    found = []
    for j in drawn + others:
        what = shows(one, j)
        verdict = "none" if what == "other" else "relabelled"
        hash_ = one.pool.content_hash(np.array([j]))[0]
        label = what if verdict == "relabelled" else None
        found.append(Mark(j, hash_, one.hash, 0, "val_out", "", verdict, label, draws if j in drawn else None, "anna"))
    return found


def test_marks_move_lines_and_the_random_sample_says_how_clean_it_was(project: Path) -> None:
    one = open_cleaning(project)
    drawn = one.drawn(20).tolist()
    every = one.ids(one.kept + one.aside).tolist()
    write_marks(project / "marks.json", marks(one, drawn, [j for j in every if j not in drawn], 20))
    bad = sum(shows(one, j) != "other" for j in drawn)
    result = odst("review", project, "--val-out", "--marks", project / "marks.json")
    assert result.code == 0, result.err
    assert f"{bad} of {len(drawn)} show one of your classes" in result.out and "95 % interval" in result.out
    assert ids(project / "val_out.csv") == {j for j in every if shows(one, j) == "other"}
    assert ids(project / "val_out_aside.csv") == {j for j in every if shows(one, j) != "other"}
    assert open_cleaning(project).hash == one.hash  # a second look is of the same lists
    assert odst("run", project / "odst.toml", "--dry-run", "--quiet").code == 0


def test_a_move_that_was_broken_off_loses_no_line(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = open_cleaning(project)
    every = one.ids(one.kept + one.aside).tolist()
    write_marks(project / "marks.json", marks(one, [], every, 20))
    write, calls = cleaning._write, []
    for last in (1, 2):

        def broken(file: Path, rows: cleaning.Rows, last: int = last) -> None:
            calls.append(file)
            write(file, rows)
            if len(calls) == last:
                raise KeyboardInterrupt

        calls.clear()
        monkeypatch.setattr(cleaning, "_write", broken)
        with pytest.raises(KeyboardInterrupt):
            cleaning.clean(open_cleaning(project), [project / "marks.json"])
        assert ids(project / "val_out.csv") | ids(project / "val_out_aside.csv") == set(every)
        assert open_cleaning(project).hash == one.hash
    monkeypatch.setattr(cleaning, "_write", write)
    cleaning.clean(open_cleaning(project), [project / "marks.json"])
    assert ids(project / "val_out.csv") == {j for j in every if shows(one, j) == "other"}
    assert ids(project / "val_out_aside.csv") == {j for j in every if shows(one, j) != "other"}


def test_two_people_who_disagree_take_it_out_of_val_out(project: Path) -> None:
    one = open_cleaning(project)
    j = int(one.kept[0]["pool_id"])
    mark = replace(marks(one, [j], [], 20)[0], verdict="right", label=None)
    write_marks(project / "a.json", [mark])
    write_marks(project / "b.json", [replace(mark, verdict="wrong", who="ben")])
    result = odst("review", project, "--val-out", "--marks", project / "a.json", "--marks", project / "b.json")
    assert result.code == 0 and f"disagree on pool id {j}" in result.out
    assert j in ids(project / "val_out_aside.csv") and j not in ids(project / "val_out.csv")
    assert "of the uniform sample seen" in result.out  # which says nothing yet


def test_the_draws_are_of_val_out_and_uniform(project: Path) -> None:
    one = open_cleaning(project)
    kept = one.ids(one.kept)
    assert set(one.drawn(30).tolist()) <= set(kept.tolist()) and len(set(one.drawn(30).tolist())) == min(30, len(kept))
    counts = sum(np.isin(kept, replace(one, seed=s).drawn(10)) for s in range(300))
    assert abs(counts - 300 * 10 / len(kept)).max() < 6 * np.sqrt(300 * 10 / len(kept))


def test_the_interval_holds_in_the_second_pass_too(project: Path) -> None:
    """A tenth of val_out is of a class; the first pass takes out what its sample has found, the second is asked again."""
    one, missed = open_cleaning(project), [0, 0]
    rng, ids_ = stream(0, "passes"), np.arange(540)
    for seed in range(300):
        bad = rng.random(540) < 0.1
        kept = [{"pool_id": str(j), "log_odds": "0"} for j in ids_]
        for turn in (0, 1):
            now = replace(one, kept=kept, aside=[], seed=seed)
            drawn = now.drawn(150)
            words = now.contamination(int(bad[drawn].sum()), len(drawn))
            low, high = map(float, re.search(r"interval ([\d.]+) to ([\d.]+) %", words).groups())
            true = 100 * bad[now.ids(kept)].mean()
            missed[turn] += not low - 0.05 <= true <= high + 0.05  # as printed
            kept = [row | {"seen": "1"} if int(row["pool_id"]) in drawn else row for row in kept]
            kept = [row for row in kept if not (row.get("seen") and bad[int(row["pool_id"])])]
    assert max(missed) <= 27  # 95 % intervals: more would be a chance of one in a thousand
    assert "count as clean" in words


def test_a_second_pass_draws_what_nobody_has_looked_at(project: Path) -> None:
    one = open_cleaning(project)
    first = one.drawn(20).tolist()
    write_marks(project / "marks.json", marks(one, first, [], 20))
    assert "show one of your classes" in odst("review", project, "--val-out", "--marks", project / "marks.json").out
    again = odst("review", project, "--val-out", "--marks", project / "marks.json")
    assert (
        again.code == 0 and "These draws were counted before" in again.out and "0 images of your classes" in again.out
    )
    two = open_cleaning(project)
    second = two.drawn(20).tolist()
    assert second and not set(second) & set(first) and set(second) <= ids(project / "val_out.csv")
    write_marks(project / "more.json", marks(two, second, [], 20))
    said = odst("review", project, "--val-out", "--marks", project / "more.json").out
    clean = sum(shows(one, j) == "other" for j in first)
    bad, n = sum(shows(two, j) != "other" for j in second), len(second)
    share = 100 * bad / n * (len(two.kept) - clean) / len(two.kept)
    assert f"{bad} of {n} show" in said and f": {share:.1f} % of val_out" in said
    assert f"{clean} were looked at before and count as clean" in said


def test_marks_that_do_not_belong_move_nothing(project: Path, tmp_path: Path) -> None:
    one = open_cleaning(project)
    mark = marks(one, [int(one.kept[0]["pool_id"])], [], 20)[0]
    for change, said in (
        ({"run_hash": "0"}, "of another val_out"),
        ({"mode": "triage", "name": "across"}, "of a run's selection"),
        ({"content_hash": "0"}, "of another pool"),
        ({"verdict": "relabelled", "label": "zebra"}, "the class 'zebra'"),
    ):
        write_marks(project / "marks.json", [replace(mark, **change)])
        before = (project / "val_out.csv").read_bytes(), (project / "val_out_aside.csv").read_bytes()
        assert said in fails("review", project, "--val-out", "--marks", project / "marks.json")
        assert before == ((project / "val_out.csv").read_bytes(), (project / "val_out_aside.csv").read_bytes())
    (project / "val_out_aside.csv").unlink()
    assert "there is no such list" in fails("review", project, "--val-out")
    assert "goes with --val-out" in fails("review", project, "--marks", project / "marks.json")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here")
def test_a_person_cleans_it_in_the_browser(project: Path, tmp_path: Path) -> None:
    assert odst("review", project, "--val-out", "--draws", 20).code == 0
    one = open_cleaning(project)
    with chromium(tmp_path / "profile") as page:
        page.view(1200, 900)
        page.open(project / "val_out.html")
        drawn = page.run("mode.pages.flatMap(p => p.tiles.map(t => t.id))")
        assert drawn == one.drawn(20).tolist()
        for j in drawn:
            if shows(one, j) != "other":
                page.click(f'.tile[data-id="{j}"]')
                page.run(f"document.querySelector('.tile[data-id=\"{j}\"]').focus()")
                page.key("x")  # takes the click back
                page.key(str(NAMES.index(shows(one, j)) + 1))
        page.key("Enter")
        said = page.run("document.getElementById('live').textContent")
        page.run("scrollTo(0, 0)")
        page.click('input[value="triage"]')
        page.key("Enter")
        looked = page.run("Object.keys(seen()).map(Number)")
        assert looked == sorted(page.run("mode.pages[0].tiles.map(t => t.id)"))
        page.click("#save summary")
        file = page.download("#json", tmp_path, "marks-val_out.json")
        result = odst("review", project, "--val-out", "--marks", file)
        # made again, the page shows others, and none of them is taken for seen because another stood in its place
        assert odst("review", project, "--val-out", "--draws", 20).code == 0
        page.open(project / "val_out.html")
        again = page.run("mode.pages.flatMap(p => p.tiles.map(t => t.id))")
        assert again == open_cleaning(project).drawn(20).tolist() and not set(again) & {*drawn, *looked}
        assert page.run("rows().filter(row => row.part === 'audit').length") == 0
        assert page.run("document.querySelector('#classes tr').dataset.seen") == "0"
        assert not set(page.run("rows().map(row => row.pool_id)")) - set(looked)
        assert page.faults == []
    bad = sum(shows(one, j) != "other" for j in drawn)
    words = f"{bad} of {len(drawn)} {'shows' if bad == 1 else 'show'} one of your classes"
    assert words in said
    assert result.code == 0 and words in result.out
    assert {m["verdict"] for m in json.loads(file.read_text())["marks"]} <= {"right", "relabelled"}
    assert not {j for j in drawn if shows(one, j) != "other"} & ids(project / "val_out.csv")


@pytest.mark.slow
def test_it_is_served_too_and_what_would_be_passed_over_is_refused(project: Path) -> None:
    one = open_cleaning(project)
    found = marks(one, one.drawn(20).tolist(), [], 20)
    command = [sys.executable, "-c", "from odst.cli import main; main()", "review", str(project), "--val-out", "--serve", "--draws", "20"]  # fmt: skip
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONUNBUFFERED": "1"}) as process:  # fmt: skip
        assert process.stdout is not None
        address = re.search(r"http://127\.0\.0\.1:(\d+)(/[\w-]{32,}/)", process.stdout.readline())
        body = json.dumps({"format": "odst-marks-1", "marks": [mark.to_json() for mark in found]})
        connection = http.client.HTTPConnection("127.0.0.1", int(address[1]), timeout=60)
        connection.request("POST", f"{address[2]}marks", body)
        assert connection.getresponse().status == 200
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
    assert "uniform sample" not in odst("review", project, "--val-out", "--marks", project / "marks-val_out.json").out
    assert not {mark.pool_id for mark in found if mark.verdict == "relabelled"} & ids(project / "val_out.csv")
    for options, said in (
        (("--serve", "--round", 9, "--import", "nosuch.json", "--port", 3), "--import, --port, --round, --serve: not with"),
        (("--serve", "--round", 9), "--round: not with --serve"),
        (("--port", 3), "--port: not with --val-out"),
        (("--marks", project / "marks-val_out.json", "--draws", 9), "--draws: not with --val-out --marks"),
    ):  # fmt: skip
        assert said in fails("review", project, "--val-out", *options)
