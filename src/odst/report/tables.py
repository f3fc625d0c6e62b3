"""The paper's table: methods by rounds by measures, best in bold, as text, Markdown, LaTeX and (in a template) HTML."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from odst.errors import UserError
from odst.report.measures import Measure, measures


@dataclass(frozen=True)
class Cell:
    text: str
    best: bool = False  # of all rounds and runs
    leads: bool = False  # of its round


@dataclass(frozen=True)
class Grid:
    """Groups of columns (a measure each, a column per round) over one row per run."""

    title: str
    groups: list[tuple[Measure, list[int]]]  # a measure and the rounds it is shown for
    rows: list[tuple[str, list[Cell]]]

    @property
    def headings(self) -> list[str]:
        return [ordinal(t) for _, rounds in self.groups for t in rounds]


TESTED = measures("error", "corruption_error", "ece", "od_auroc")
VALIDATED = measures("val_error", "val_od_auroc")
SELECTED = measures("selected", "related", "correct")


def grids(runs: dict[str, list[dict[str, Any]]]) -> list[Grid]:
    """The results on test images (validation images where no run has a test set), and what was selected."""
    tested = any(one["error"] is not None for metrics in runs.values() for one in metrics)
    made = [
        _grid("Results" if tested else "Results on validation images", runs, TESTED if tested else VALIDATED),
        _grid("Selected pool images", runs, SELECTED),
    ]
    return [grid for grid in made if grid.groups]


def _grid(title: str, runs: dict[str, list[dict[str, Any]]], measures: Sequence[Measure]) -> Grid:
    last = max(len(metrics) for metrics in runs.values())
    shown = [
        measure
        for measure in measures
        if any(one.get(measure.key) is not None for metrics in runs.values() for one in metrics)
    ]
    groups = [(measure, list(range(measure.since, last))) for measure in shown]
    rows = [
        (name, [_cell(runs, metrics, measure, t) for measure, rounds in groups for t in rounds])
        for name, metrics in runs.items()
    ]
    return Grid(title, groups, rows)


def _cell(runs: dict[str, list[dict[str, Any]]], own: list[dict[str, Any]], measure: Measure, t: int) -> Cell:
    value = own[t].get(measure.key) if t < len(own) else None
    if value is None:
        return Cell("–")
    every = [one.get(measure.key) for metrics in runs.values() for one in metrics]
    beside = [metrics[t].get(measure.key) for metrics in runs.values() if t < len(metrics)]
    return Cell(measure.text(value), value == measure.best(every), value == measure.best(beside))


def ordinal(t: int) -> str:
    if t == 0:
        return "base"
    ending = "th" if 10 < t % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(t % 10, "th")
    return f"{t}{ending}"


# as text ---------------------------------------------------------------------------------------------------------------------


def as_text(made: list[Grid]) -> str:
    """Columns in line; * marks the best of a measure."""
    blocks = [_text(grid) for grid in made]
    return "\n\n".join([*blocks, "* best of all rounds and runs"]) + "\n"


def _text(grid: Grid) -> str:
    table = [["", *grid.headings]]
    table += [[name, *(cell.text + ("*" if cell.best else " ") for cell in cells)] for name, cells in grid.rows]
    widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
    for i in range(1, len(widths)):
        widths[i] += 1
    top, i = " " * widths[0], 1
    for measure, rounds in grid.groups:
        heading, width = f"  {measure.title}", sum(widths[i : i + len(rounds)])
        widths[i] += max(0, len(heading) - width)  # a measure of one round: its heading is wider than its numbers
        top += heading.ljust(width)
        i += len(rounds)
    body = [
        row[0].ljust(widths[0]) + "".join(text.rjust(w) for text, w in zip(row[1:], widths[1:], strict=True))
        for row in [[*table[0][:1], *(h + " " for h in table[0][1:])], *table[1:]]
    ]
    return "\n".join(line.rstrip() for line in [grid.title, top, *body])


def as_markdown(made: list[Grid]) -> str:
    blocks = []
    for grid in made:
        heads = [f"{measure.title} {ordinal(t)}" for measure, rounds in grid.groups for t in rounds]
        lines = [
            f"**{grid.title}**",
            "",
            f"| run | {' | '.join(heads)} |",
            f"|---|{'---:|' * len(heads)}",
            *(
                f"| {markdown_text(name)} | {' | '.join(f'**{c.text}**' if c.best else c.text for c in cells)} |"
                for name, cells in grid.rows
            ),
        ]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def markdown_text(text: str) -> str:
    text = re.sub(r"([\\`*_{}\[\]()#+!|~])", r"\\\1", " ".join(text.split()))
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def as_latex(made: list[Grid]) -> str:
    """Tables that need no package: best in bold, best of a round in italics, as in the paper."""
    return "\n".join(_latex(grid) for grid in made)


def _latex(grid: Grid) -> str:
    columns = "|l|" + "".join("r" * len(rounds) + "|" for _, rounds in grid.groups)
    groups = [rf"\multicolumn{{{len(rounds)}}}{{c|}}{{{latex_text(measure.title)}}}" for measure, rounds in grid.groups]
    lines = [
        r"\begin{table}",
        r"\centering\small",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\hline",
        " & ".join(["", *groups]) + r" \\",
        " & ".join(["", *grid.headings]) + r" \\",
        r"\hline",
    ]
    for name, cells in grid.rows:
        lines.append(" & ".join([latex_text(name), *map(_latex_cell, cells)]) + r" \\")
    lines += [r"\hline", r"\end{tabular}", rf"\caption{{{grid.title}}}", r"\end{table}", ""]
    return "\n".join(lines)


def _latex_cell(cell: Cell) -> str:
    text = cell.text.replace("–", "--")
    return rf"\textbf{{{text}}}" if cell.best else rf"\emph{{{text}}}" if cell.leads else text


def latex_text(text: str) -> str:
    """Any name as text that a plain LaTeX sets; what its fonts lack is written by its number."""
    special = {
        "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
        "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
        "|": r"\textbar{}", '"': "''",
    }  # fmt: skip
    return "".join(special.get(c, c if " " <= c <= "~" or c in "äöüßÄÖÜéèàçñ" else f"U+{ord(c):04X}") for c in text)


FORMATS: dict[str, Callable[[list[Grid]], str]] = {"text": as_text, "markdown": as_markdown, "latex": as_latex}


def check_same_classes(classes: dict[str, list[str]]) -> None:
    first, *others = classes.items()
    for name, own in others:
        if own != first[1]:
            odd = sorted(set(own) ^ set(first[1]))
            what = f"they differ in {', '.join(map(repr, odd[:3]))}" if odd else "their order differs"
            raise UserError(
                f"{first[0]} and {name}: these runs have different classes ({what}). Compare runs of one task at a time."
            )
