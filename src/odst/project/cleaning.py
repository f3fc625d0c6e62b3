"""A val_out that `odst init` made, cleaned by eye: marks move lines between val_out.csv and val_out_aside.csv.

The automatic trim takes out what looks most like a class, whether it is of one or not, and so makes thresholds too low just
where it matters. Marks undo that: images of the classes leave val_out, class-like ones of no class come back to it. What a
person has looked at is noted in the lists: in val_out it is clean, and how clean the rest is, a fresh draw from the rest says.
"""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from odst.data.cells import cells, plain
from odst.data.images import Pool
from odst.data.loading import load_pool
from odst.data.sets import DataSection
from odst.errors import UserError
from odst.evaluation.contract import interval
from odst.files import digest, whole
from odst.locks import lock
from odst.project.val_out import COLUMNS
from odst.run.config import read_config
from odst.run.marks import NONE, RELABELLED, RIGHT, VAL_OUT, WRONG, Mark, check_marks, read_marks
from odst.seeds import stream

KEPT, ASIDE = "val_out.csv", "val_out_aside.csv"
Rows = list[dict[str, str]]


@dataclass(frozen=True)
class Cleaning:
    """A project's two lists, the most class-like first, and the pool they are of."""

    folder: Path
    kept: Rows
    aside: Rows
    pool: Pool
    classes: tuple[str, ...]
    seed: int

    @property
    def hash(self) -> str:
        """The same before, while and after lines have moved."""
        return digest([self.pool.id, sorted({int(row["pool_id"]) for row in self.kept + self.aside})])

    def ids(self, rows: Rows) -> np.ndarray:
        return np.array([int(row["pool_id"]) for row in rows], np.int64)

    @property
    def unseen(self) -> np.ndarray:
        """Pool ids of what nobody has looked at in val_out."""
        return np.sort(self.ids([row for row in self.kept if not row.get("seen")]))

    def drawn(self, draws: int) -> np.ndarray:
        """Pool ids of a uniform sample of what nobody has looked at in val_out, in the order shown. Every look that was written
        down draws anew: what is left of an earlier draw was chosen by those who looked."""
        looked = sum(bool(row.get("seen")) for row in self.kept + self.aside)
        return stream(self.seed, "val_out", "review", looked).permutation(self.unseen)[:draws]

    def contamination(self, found: int, n: int) -> str:
        """What `found` of n draws say of the whole val_out: those seen before are of no class, or they would have left it."""
        if not n:
            return "Every image of val_out has been looked at."
        fresh, before = len(self.unseen) / len(self.kept), len(self.kept) - len(self.unseen)
        low, share, high = (100 * fresh * one for one in (interval(found, n)[0], found / n, interval(found, n)[1]))
        counted = f"; {before:,} were looked at before and count as clean" if before else ""
        shown = "shows" if found == 1 else "show"
        return f"{found} of {n} {shown} one of your classes: {share:.1f} % of val_out (95 % interval {low:.1f} to {high:.1f} %{counted})"


def open_cleaning(folder: Path) -> Cleaning:
    config = read_config(str(folder / "odst.toml"), {})
    for name in (KEPT, ASIDE):
        if not (folder / name).is_file():
            raise UserError(
                f"{folder / name}: there is no such list. It is there where `odst init` has made val_out itself."
            )
    section = config.data
    if section.labelled is None or section.pool is None:
        raise UserError(f"{folder}: its config names no labelled images or no pool, so there is nothing to review.")
    pool = load_pool(
        DataSection(labelled=section.labelled, pool=section.pool, size=section.size, fit=section.fit), None, ()
    )
    labels = section.read(section.labelled, labelled=True).labels or []
    rows = {name: _read(folder / name, pool) for name in (KEPT, ASIDE)}
    inside = {row["pool_id"] for row in rows[KEPT]}
    aside = [row for row in rows[ASIDE] if row["pool_id"] not in inside]  # in both: a move was broken off
    return Cleaning(folder, rows[KEPT], aside, pool, tuple(sorted(set(labels))), config.run.seed)


def _read(file: Path, pool: Pool) -> Rows:
    try:
        with open(file, encoding="utf-8-sig", newline="") as text:
            rows = [plain(row) for row in csv.DictReader(text)]
        rows.sort(key=lambda row: -float(row["log_odds"]))
        if any(not 0 <= int(row["pool_id"]) < len(pool) for row in rows):
            raise ValueError("a pool id lies outside the pool")
    except (KeyError, ValueError, TypeError) as error:
        raise UserError(
            f"{file}: not a list of `odst init` ({error}). Run `odst init` again with a new --out."
        ) from None
    return rows


def check_own(one: Cleaning, marks: Sequence[Mark], name: str) -> None:
    """Marks of this val_out and of its pool, or one line."""
    if any(mark.mode != VAL_OUT for mark in marks):
        raise UserError(f"{name}: these marks are of a run's selection. Give them to `odst run RUN --marks`.")
    if any(mark.run_hash != one.hash for mark in marks):
        raise UserError(
            f"{name}: these marks are of another val_out. Make the page again with `odst review {one.folder} --val-out`."
        )
    check_marks(marks, name, one.pool, one.classes)


def clean(one: Cleaning, files: Sequence[Path]) -> list[str]:
    """Move the lines that the marks ask for; what to tell the user."""
    marks: list[Mark] = []
    for file in files:
        own = read_marks(file)
        check_own(one, own, str(file))
        marks += own
    said: dict[int, set[str]] = {}
    for mark in marks:
        said.setdefault(mark.pool_id, set()).add(mark.verdict)
    ours = {j for j, verdicts in said.items() if verdicts & {WRONG, RELABELLED}}  # the stricter counts
    foreign = {j for j, verdicts in said.items() if verdicts == {NONE}}
    leave = [row for row in one.kept if int(row["pool_id"]) in ours]
    come = [row for row in one.aside if int(row["pool_id"]) in foreign]
    torn = sorted(j for j, verdicts in said.items() if verdicts & {WRONG, RELABELLED} and verdicts & {RIGHT, NONE})
    lines = [f"two people disagree on pool id {j}: it is taken to show one of your classes" for j in torn]
    lines += _estimate(one, marks, ours)
    for row in one.kept + one.aside:
        if int(row["pool_id"]) in said:
            row["seen"] = "1"
    with lock(one.folder, f"odst review {one.folder} --val-out"):
        _write(one.folder / ASIDE, one.aside + leave)  # a line that moves stands in both for a moment, never in none
        _write(one.folder / KEPT, [row for row in one.kept if row not in leave] + come)
        _write(one.folder / ASIDE, [row for row in one.aside if row not in come] + leave)
    left = f"{len(leave):,} {'image' if len(leave) == 1 else 'images'} of your classes left val_out"
    lines.append(f"{left}, {len(come):,} foreign {'one' if len(come) == 1 else 'ones'} came back to it.")
    if leave or come:
        lines.append("Runs that were made with the old val_out stay as they are; begin a new one.")
    return lines


def _estimate(one: Cleaning, marks: Sequence[Mark], ours: set[int]) -> list[str]:
    fresh = set(one.unseen.tolist())
    draws = {mark.draws for mark in marks if mark.draws and mark.pool_id in fresh}
    if not draws:
        if any(mark.draws for mark in marks):
            return ["These draws were counted before: for how clean val_out is now, make the page again."]
        return ["Only class-like images were looked at, so nothing is said of how clean val_out is."]
    drawn = one.drawn(max(draws)).tolist()
    seen = {mark.pool_id for mark in marks if mark.draws}
    if not seen >= set(drawn):
        return [
            f"{len(seen & set(drawn))} of {len(drawn)} of the uniform sample seen: its estimate counts when all are."
        ]
    return [f"Before this: {one.contamination(len(ours & set(drawn)), len(drawn))}."]


def _write(file: Path, rows: Rows) -> None:
    rows = sorted(rows, key=lambda row: -float(row["log_odds"]))
    with whole(file) as temporary, open(temporary, "w", newline="", encoding="utf-8") as out:
        lines = csv.writer(out, lineterminator="\n")
        lines.writerow(COLUMNS)
        lines.writerows(cells(row.get(key, "") for key in COLUMNS) for row in rows)
