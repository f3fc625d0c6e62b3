"""The open-world benchmark in its short form: every world, method and table, a few steps each."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.open_world.known import known_jobs
from benchmarks.open_world.page import RESULTS, made, page, readme

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
def test_the_short_benchmark_runs_every_job_and_writes_the_tables(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.open_world", "--smoke", "--out", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, timeout=600, capture_output=True)
    if not os.environ.get("ODST_TEST_DATA"):
        assert (tmp_path / "smoke" / "compare.html").exists()  # the built-in world, two methods
        return
    rows = json.loads((tmp_path / "smoke" / "results.json").read_text())
    assert {(row["share"], row["method"]) for row in rows} >= {
        ("33", "odst"), ("33", "st-ot"), ("33", "bound"), ("sweep-6000", "st"), ("svhn", "st-cw"),
        ("33", "fixmatch"), ("sweep-0", "openmatch"), ("sweep-6000", "pseudo"),
    }  # fmt: skip
    third = [row for row in rows if row["method"] == "odst" and row["round"] == 3]
    assert {row["share"] for row in third} == {"33", "sweep-0", "sweep-6000", "svhn"}
    assert all(row["selected"] > 0 and 0 <= row["corruption_error"] <= 1 for row in third)
    assert "CIFAR-10 among CIFAR-100, 33 % related" in (tmp_path / "smoke" / "tables.md").read_text()
    assert (tmp_path / "smoke" / "compare.html").exists()


def test_the_published_page_is_made_from_the_published_numbers() -> None:
    rows = json.loads(RESULTS.read_text())
    assert (ROOT / "docs" / "results.md").read_text() == made(rows)
    assert readme(rows) and readme(rows) in " ".join((ROOT / "README.md").read_text().split())


def test_the_published_runs_are_known_to_the_benchmark_and_say_how_they_were_made() -> None:
    known = known_jobs(RESULTS)
    assert sum(map(len, known.values())) == len(json.loads(RESULTS.read_text())) > 0
    for rows in known.values():
        assert [row["round"] for row in rows] == list(range(len(rows)))
        assert all({"command", "commit", "load", "images", "seconds"} <= row.keys() for row in rows)


def test_a_page_of_unfinished_results_says_what_is_missing_and_no_number_it_has_not() -> None:
    one = dict.fromkeys(
        ("error", "od_auroc", "related", "correct", "corruption_error", "val_error", "val_od_auroc"), 0.3
    )
    one |= {
        "share": "33",
        "selected": 900,
        "repeats": 0,
        "od_auroc_by_set": {"svhn": 0.3},
        "seconds": 60,
        "images": 1000,
    }

    def run(method: str, seed: int, *errors: float) -> list[dict]:
        return [one | {"method": method, "seed": seed, "round": t, "error": e} for t, e in enumerate(errors)]

    odst = run("odst", 0, 0.25, 0.23, 0.22, 0.21) + run("odst", 1, 0.9, 0.9, 0.9, 0.9)
    written = page(odst, [])
    left, every = map(int, re.search(r"Not run yet: (\d+) of (\d+) runs", written).groups())
    assert left == every - 2 and "nan" not in written and "SVHN** in small" not in written
    assert readme(odst) == ""
    rows = [*odst, *run("st", 0, 0.24, 0.23, 0.22, 0.22), *run("bound", 0, 0.15)]
    assert "nan" not in page(rows, [])
    assert "error goes from 25.0 to 21.0 %" in readme(rows)  # of the seed that all three have
