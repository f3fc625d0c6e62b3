"""What a person sees while a command works: bars with rates and time left on a terminal, plain lines elsewhere."""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from odst.progress import listening
from odst.report.measures import measures

LINE_EVERY = 30.0  # seconds between two lines of one stage where there is no terminal


@contextmanager
def bars(quiet: bool = False, verbose: bool = False) -> Iterator[Console]:
    """Show stages and the log of `odst` on stderr; yield the console for results, on stdout."""
    log, level = logging.getLogger("odst"), logging.DEBUG if verbose else logging.INFO
    err = Console(stderr=True, quiet=quiet)
    handler: logging.Handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    if err.is_terminal:
        handler = RichHandler(console=err, show_path=False, show_time=False, markup=False)
    handler.setLevel(logging.WARNING if quiet else level)
    before, log.level, log.propagate = log.level, level, False
    log.addHandler(handler)
    try:
        if quiet:
            yield Console()
        elif err.is_terminal:
            columns = (
                TextColumn("{task.description}"), BarColumn(bar_width=24), TaskProgressColumn(),
                TextColumn("{task.fields[rate]}"), TimeRemainingColumn(),
            )  # fmt: skip
            # rich would print what goes to stdout above the bars: on the screen that is wanted, not where it goes to a file
            both = sys.stdout.isatty()
            progress = Progress(*columns, console=err, transient=True, redirect_stdout=both)
            with progress, listening(_Bars(progress)):
                yield Console()
        else:
            with listening(_Lines(err)):
                yield Console(width=120 if not sys.stdout.isatty() else None)
    finally:
        log.removeHandler(handler)
        log.level, log.propagate = before, True


class _Rate:
    """Units a second since the stage began in this process."""

    def __init__(self) -> None:
        self.begin, self.count = time.monotonic(), 0

    def text(self, unit: str) -> str:
        rate = self.count / max(time.monotonic() - self.begin, 1e-9)
        return f"{rate:,.0f} {unit}/s" if unit else ""


class _Bars:
    def __init__(self, progress: Progress):
        self.progress = progress
        self.tasks: list[TaskID] = []

    def start(self, name: str, total: int | None, unit: str, done: int) -> Callable[[int], None]:
        task, rate = self.progress.add_task(name, total=total, completed=done, rate=""), _Rate()
        self.tasks.append(task)

        def advance(n: int) -> None:
            rate.count += n
            self.progress.update(task, advance=n, rate=rate.text(unit))

        return advance

    def finish(self, name: str, completed: bool) -> None:
        self.progress.remove_task(self.tasks.pop())


class _Lines:
    def __init__(self, console: Console):
        self.console = console
        self.running: list[tuple[_Rate, str]] = []

    def start(self, name: str, total: int | None, unit: str, done: int) -> Callable[[int], None]:
        rate, said = _Rate(), [time.monotonic()]
        self.running.append((rate, unit))

        def advance(n: int) -> None:
            rate.count += n
            if time.monotonic() - said[0] >= LINE_EVERY:
                said[0] = time.monotonic()
                share = f"{(done + rate.count) / total:.0%}, " if total else ""
                self._say(f"{name}: {share}{rate.text(unit)}")

        return advance

    def finish(self, name: str, completed: bool) -> None:
        rate, unit = self.running.pop()
        seconds = time.monotonic() - rate.begin
        done = f"{rate.count:,} {unit} in {seconds:.1f} s ({rate.text(unit)})" if rate.count else f"{seconds:.1f} s"
        self._say(f"{name}: {done}" + ("" if completed else ", broken off"))

    def _say(self, line: str) -> None:
        self.console.print(line, soft_wrap=True, markup=False, highlight=False)


# tables ----------------------------------------------------------------------------------------------------------------------

RUN = measures("val_error", "val_od_auroc", "error", "ece", "od_auroc", "selected", "related", "correct")
RUNS = measures("error", "od_auroc", "selected", "related", "correct")


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "method" else "right")
    return table


def rounds_table(
    title: str, metrics: list[dict[str, Any]], best: int | str | None = None, alone: dict[str, Any] | None = None
) -> Table:
    """A run, a row a round, labels alone above them where they are known; percentages, and the one to use marked."""
    table = _table(title, "round", *(one.narrow or one.heading for one in RUN))
    if alone is not None:
        mark = " " if isinstance(best, int) else "*"
        table.add_row(f"alone{mark}", *(measure.text(alone.get(measure.key), 1) for measure in RUN))
    for one in metrics:
        mark = "*" if one["round"] == best else " "
        table.add_row(_round(one, mark), *(measure.text(one.get(measure.key), 1) for measure in RUN))
    return _with_legend(table, metrics, "* the one to use")


def comparison(title: str, runs: dict[str, list[dict[str, Any]]]) -> Table:
    """Several runs, a block of rows each; the best last error and the best last OD-AUROC marked, and every harm."""
    table = _table(title, "method", "round", *(one.narrow or one.heading for one in RUNS))
    lasts = [metrics[-1] for metrics in runs.values()]
    best = {(one.key, one.best(last[one.key] for last in lasts)) for one in measures("error", "od_auroc")}
    for name, metrics in runs.items():
        for one in metrics:
            last = one is metrics[-1]
            cells = [
                f"[bold green]{text}*[/]" if last and (measure.key, one.get(measure.key)) in best else f"{text} "
                for measure in RUNS
                for text in [measure.text(one.get(measure.key), 1)]
            ]
            table.add_row(name if one["round"] == 0 else "", _round(one), *cells, end_section=last)
    return _with_legend(table, [one for metrics in runs.values() for one in metrics], "* best at the end")


def _round(one: dict[str, Any], mark: str = " ") -> str:
    return f"{one['round']}{mark.strip()}[red]![/]" if one.get("harm") else f"{one['round']}{mark}"


def _with_legend(table: Table, metrics: list[dict[str, Any]], *more: str) -> Table:
    lines = [*more, *(["! worse than its teacher"] if any(one.get("harm") for one in metrics) else [])]
    if lines:
        table.caption, table.caption_justify = "   ".join(lines), "left"
    return table
