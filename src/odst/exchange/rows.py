"""Which rows of a run's selection leave it: those of a round, or of it those that a person's audit has certified."""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from odst.data.sets import class_numbers
from odst.run.audit import audited_round, certified_rows
from odst.run.directory import RunDir
from odst.run.marks import run_hash


@dataclass(frozen=True)
class Rows:
    """Rows of selection.parquet, and where they come from."""

    run: Path
    round: int
    classes: tuple[str, ...]
    table: pa.Table
    run_hash: str

    def __len__(self) -> int:
        return self.table.num_rows

    @cached_property
    def numbers(self) -> np.ndarray:
        """The class of each row, as a position in `classes`."""
        return class_numbers(str(self.run), self._column("class"), self.classes)

    @cached_property
    def columns(self) -> dict[str, list[Any]]:
        return {name: self._column(name) for name in self.table.column_names}

    def _column(self, name: str) -> list[Any]:
        return self.table[name].to_pylist()

    def name(self, row: int) -> str:
        """A file's: the pool id, so that names sort as ids do."""
        return f"{self.columns['pool_id'][row]:012d}"

    def marked_name(self, row: int) -> str:
        """A file's that tells a picture of this pool from one of another, whatever a tool keeps of it."""
        return f"{self.name(row)}-{self.columns['content_hash'][row][:8]}"

    @property
    def origin(self) -> dict[str, Any]:
        return {"run_hash": self.run_hash, "round": self.round}

    def label(self, row: int) -> str:
        return str(self.columns["class"][row])

    def about(self, row: int) -> dict[str, Any]:
        """What leads back to the pool and says how sure the teacher was; no place on anybody's machine."""
        one = {name: self.columns[name][row] for name in ("probability", "log_odds", "threshold", "repeats")}
        one = {name: None if isinstance(x, float) and not np.isfinite(x) else x for name, x in one.items()}
        return {**one, "pool_id": self.columns["pool_id"][row], "content_hash": self.columns["content_hash"][row]}

    def counts(self) -> dict[str, int]:
        found = Counter(self.columns["class"])
        return {name: found[name] for name in self.classes}


def rows_of(run: RunDir, t: int | None, *, certified: bool = False) -> Rows:
    """The selection that round t was trained on, or what of it is certified; without t, that of the final round."""
    info, t = run.info(), audited_round(run, t)
    run.note(t)  # a file that has changed since is refused
    table = certified_rows(run, t) if certified else run.selection_table(t)
    return Rows(run.path, t, tuple(info["classes"]), table, run_hash(run, t))
