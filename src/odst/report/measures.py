"""Every measure of a round, declared once: its key, its heading, how it is written, which way is better. A view lists keys."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

LOW, HIGH, NEITHER = "lower is better", "higher is better", ""


@dataclass(frozen=True)
class Measure:
    key: str  # of metrics.jsonl
    heading: str
    better: str = NEITHER
    kind: Literal["percent", "number", "count"] = "percent"
    since: int = 0  # the first round that has it
    narrow: str = ""  # its heading in a terminal, where that is another one

    @property
    def title(self) -> str:
        """The heading where no other word says that these are percentages."""
        return f"{self.heading} %" if self.kind == "percent" else self.heading

    def text(self, value: float | None, digits: int | None = None) -> str:
        """A cell of any table."""
        if value is None or self.kind == "percent":
            return percent(value, 2 if digits is None else digits)
        return f"{value:,}" if self.kind == "count" else f"{value:.{3 if digits is None else digits}f}"

    def best(self, values: Iterable[float | None]) -> float | None:
        known = [value for value in values if value is not None]
        if not known or self.better == NEITHER:
            return None
        return min(known) if self.better == LOW else max(known)


def percent(value: float | None, digits: int = 2) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f}"


MEASURES = {
    one.key: one
    for one in (
        Measure("error", "error", LOW),
        Measure("corruption_error", "corrupted", LOW),
        Measure("ece", "ECE", LOW),
        Measure("nll", "NLL", LOW, "number"),
        Measure("brier", "Brier", LOW, "number"),
        Measure("od_auroc", "OD-AUROC", HIGH),
        Measure("val_error", "val_in error", LOW, narrow="val err"),
        Measure("val_od_auroc", "val OD-AUROC", HIGH, narrow="val OD"),
        Measure("temperature", "temperature", kind="number"),
        Measure("selected", "selected", kind="count", since=1),
        Measure("repeats", "repeats", kind="count", since=1),
        Measure("related", "related", HIGH, since=1),
        Measure("correct", "correct", HIGH, since=1),
    )
}


def measures(*keys: str) -> list[Measure]:
    return [MEASURES[key] for key in keys]
