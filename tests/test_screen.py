"""What a terminal shows at the end: which run is best, which student harmed, and what to type next."""

import io
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from odst.cli.run import next_steps
from odst.cli.screen import comparison, rounds_table


def shown(table: Table) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=100).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def metrics(errors: list[float], aurocs: list[float], harm: int | None = None) -> list[dict[str, Any]]:
    return [
        {"round": t, "error": error, "od_auroc": auroc, "selected": 9 if t else None, "harm": "worse" if t == harm else None}
        for t, (error, auroc) in enumerate(zip(errors, aurocs, strict=True))
    ]  # fmt: skip


def test_the_demos_table_marks_the_best_end_and_every_harm_without_colours() -> None:
    runs = {"odst": metrics([0.20, 0.045], [0.9, 0.97]), "st": metrics([0.04, 0.11], [0.99, 0.67], harm=1)}
    title, _, first, ours, begun, theirs, legend = shown(comparison("digits", runs))
    assert title == "digits"
    assert "4.5*" in ours and "97.0*" in ours
    assert "*" not in first + begun + theirs  # the lowest error of all is a base's, and no end
    assert theirs.split()[0] == "1!" and "!" not in ours
    assert legend.startswith("* best at the end") and legend.endswith("! worse than its teacher")


def test_a_runs_table_marks_the_round_to_use() -> None:
    lines = shown(rounds_table("odst", metrics([0.2, 0.1], [0.9, 0.9]), best=1))
    assert [line.split()[0] for line in lines[2:4]] == ["0", "1*"]
    assert lines[-1] == "* the one to use"
    both = shown(rounds_table("odst", metrics([0.2, 0.1], [0.9, 0.9], harm=1), best=1))
    assert both[3].split()[0] == "1*!"  # a run of an older odst may say so


def test_a_run_ends_with_commands_for_its_own_folder() -> None:
    commands = [command for command, _ in next_steps(Path("my runs/a"), metrics([0.2, 0.1], [0.9, 0.9]))]
    assert commands == [
        "odst report 'my runs/a'",
        "odst review 'my runs/a'",
        "odst predict 'my runs/a' SRC --csv labels.csv",
    ]
    alone = [command for command, _ in next_steps(Path("a"), metrics([0.2], [0.9]))]
    assert alone == ["odst report a", "odst predict a SRC --csv labels.csv"]  # nothing was selected: nothing to review
    assert next_steps(Path("a"), metrics([0.2, 0.1], [0.9, 0.9]), pictures=False) == next_steps(
        Path("a"), metrics([0.2], [0.9])
    )
