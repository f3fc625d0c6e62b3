"""The open-world benchmark in its short form: every world, method and table, a few steps each."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.open_world.tables import tables

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


def test_the_published_tables_are_those_of_the_published_numbers() -> None:
    rows = json.loads((ROOT / "benchmarks" / "open_world" / "results.json").read_text())
    keys = {
        "share",
        "method",
        "seed",
        "round",
        "error",
        "od_auroc",
        "od_auroc_by_set",
        "selected",
        "related",
        "correct",
    }
    assert all(keys | {"seconds"} <= row.keys() for row in rows)
    assert tables(rows) in (ROOT / "docs" / "results.md").read_text()
