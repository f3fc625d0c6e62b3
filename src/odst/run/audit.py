"""A run and people's marks -> round-N/audit.json: which part of each class's selection is certified."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odst.errors import UserError
from odst.evaluation.audit import (
    DRAWS,
    ClassAudit,
    audit_class,
    check_promise,
    draw,
    error_free_draws,
    most_wrong,
)  # fmt: skip
from odst.locks import lock
from odst.run.directory import RunDir
from odst.run.marks import AUDIT, RIGHT, Mark, check_marks, check_run, read_marks, run_hash, settle
from odst.run.preparation import pool_of
from odst.run.sealed import read_sealed, write_sealed

PLANNED = (0.95, 0.98, 0.998)


@dataclass(frozen=True)
class Ranked:
    """One class's selection, the most confident first."""

    name: str
    ids: np.ndarray
    hashes: list[str]

    def __len__(self) -> int:
        return len(self.ids)


def audited_round(run: RunDir, t: int | None) -> int:
    """The round whose selection is meant: the one asked for, the final one, or the last that has one."""
    there = [one for one in run.finished_rounds() if one > 0]
    if not there:
        raise UserError(f"{run.path}: no round of this run has a selection yet. Go on with `odst run {run.path}`.")
    if t is None:
        final = run.final()
        return final["round"] if final and final["round"] in there else there[-1]
    if t not in there:
        raise UserError(f"{run.path}: round {t} has no selection. Rounds that have one: {', '.join(map(str, there))}.")
    return t


def ranked(run: RunDir, t: int) -> list[Ranked]:
    """Class by class; a class of which nothing was selected is there, and empty."""
    table = run.selection(t)
    assert table is not None
    found = []
    for name in run.info()["classes"]:
        own = table.filter(pc.equal(table["class"], name))
        order = np.argsort(-own["log_odds"].to_numpy(), kind="stable")
        own = own.take(pa.array(order))
        found.append(Ranked(name, own["pool_id"].to_numpy(), own["content_hash"].to_pylist()))
    return found


def drawn_ranks(run: RunDir, t: int, sets: Sequence[Ranked], draws: int) -> list[np.ndarray]:
    """The places in each class's selection that a page of so many draws shows, in its order."""
    seed = run.info()["seed"]
    return [draw(len(one), draws, seed=seed, t=t, c=c) for c, one in enumerate(sets)]


def draws_file(run: RunDir, t: int) -> Path:
    return run.round(t) / "review.json"


def draws_of(run: RunDir, t: int, asked: int | None) -> int:
    """How many draws a class the audit of a round has: its first page has fixed them, and another number is refused."""
    file = draws_file(run, t)
    if asked is not None and asked < 1:
        raise UserError(f"--draws: at least 1 picture a class, got {asked}. 150 is usual; see `odst audit --plan`.")
    if not file.exists():
        return DRAWS if asked is None else asked
    fixed = read_sealed(file, "Restore it, or review another round.")["draws"]
    if asked not in (None, fixed):
        raise UserError(
            f"--draws: the page of round {t} was made with {fixed} draws a class, got {asked}. Go on with --draws {fixed}: a number "
            f"chosen after looking makes a certificate worth nothing. If nobody has looked yet, delete {file}."
        )
    return fixed


def fix_draws(run: RunDir, t: int, draws: int) -> None:
    """Write the number down before anybody can look."""
    if not draws_file(run, t).exists():
        write_sealed(draws_file(run, t), {"format": 1, "round": t, "draws": draws})
    draws_of(run, t, draws)  # somebody else may have made a page in between


def share_of(delta: float, sets: Sequence[Ranked]) -> float:
    """A class's share of delta: split evenly over the classes that have something to certify."""
    return delta / max(1, sum(len(one) > 0 for one in sets))


def audit_run(run: RunDir, files: Sequence[Path], *, t: int | None, target: float, delta: float) -> dict[str, Any]:
    """Check the marks, certify what they certify, and write it down; the text of audit.json."""
    check_promise(target, delta)
    marks = _read(run, files)
    counted = [mark for mark in marks if mark.mode == AUDIT]
    if not counted:
        raise UserError(
            f"{_names(files)}: only triage marks, and these never count towards a certificate: they were not drawn at random. "
            f"Mark the audit pages of `odst review {run.path}`."
        )
    rounds = {mark.round for mark in counted}
    if t is None and len(rounds) == 1:
        t = rounds.pop()
    t = audited_round(run, t)
    counted = [mark for mark in counted if mark.round == t]
    if not counted:
        raise UserError(f"{_names(files)}: no audit marks of round {t}. Give the round they are of with --round.")
    sets = ranked(run, t)
    draws = _one_number(counted, files)
    expected = drawn_ranks(run, t, sets, draws)
    _check_drawn(counted, files, sets, expected)
    _check_earlier(run, t, draws)
    settled = settle(counted)
    verdict = {mark.pool_id: mark.verdict for mark in settled.marks}
    share = share_of(delta, sets)
    classes: dict[str, ClassAudit] = {}
    for one, places in zip(sets, expected, strict=True):
        said = [verdict.get(j) for j in one.ids[places].tolist()]
        seen, wrong = len(said) - said.count(None), [what not in (RIGHT, None) for what in said]
        whole = len(places) > 0 and seen == len(places)
        classes[one.name] = (
            audit_class(places, wrong, len(one), target, share)
            if whole
            else ClassAudit(len(one), len(places), seen, sum(wrong))
        )
    words = [one.words(name, target) for name, one in classes.items()]
    found: dict[str, Any] = {
        "format": 1,
        "round": t,
        "run_hash": run_hash(run, t),
        "target": target,
        "delta": delta,
        "delta_of_a_class": share,
        "draws": draws,
        "by": sorted({mark.who for mark in counted if mark.who}),
        "left_out": {
            "triage": sum(mark.mode != AUDIT for mark in marks),
            "other_rounds": sum(mark.mode == AUDIT and mark.round != t for mark in marks),
        },
        "disagreements": list(settled.disagreements),
        "classes": {name: asdict(one) | {"certified": one.certified} for name, one in classes.items()},
        "wrong": sorted(mark.pool_id for mark in settled.marks if mark.verdict != RIGHT),
        "words": words,
    }
    found["certificate"] = [headline(found), *words]
    with lock(run.path, f"odst audit {run.path}"):
        run.save_audit(t, found)
    return found


def headline(found: dict[str, Any]) -> str:
    """What the certificates of an audit.json mean together, and who has looked."""
    n = sum(one["selected"] > 0 for one in found["classes"].values())
    over = f"over all {n} classes together, " if n > 1 else ""
    by = f" Seen by {', '.join(found['by'])}." if found["by"] else " Nobody has signed the marks."
    return (
        f"Round {found['round']}: what is certified below holds with probability at least {100 * (1 - found['delta']):g} % "
        f"({over}δ = {found['delta']:g}, {found['delta_of_a_class']:.3g} a class).{by}"
    )


@dataclass(frozen=True)
class ClassPlan:
    selected: int
    draws: int  # that a page shows
    error_free: int  # draws that would be enough if none was wrong
    wrong_allowed: int  # among the draws; below 0 they are not enough


@dataclass(frozen=True)
class Plan:
    round: int
    target: float
    delta_of_a_class: float
    classes: dict[str, ClassPlan | None]  # None: nothing was selected

    def lines(self) -> list[str]:
        head = f"{'class':<20} {'selected':>8}  error-free draws for {self.target:g}   wrong ones allowed among {DRAWS}"
        limits = ", ".join(f"{error_free_draws(one, self.delta_of_a_class):,} for {one:g}" for one in PLANNED)
        last = f"In sets of any size (δ = {self.delta_of_a_class:.3g} a class): {limits}. All draws must be seen."
        return [head, *(self._line(name, one) for name, one in self.classes.items()), last]

    def _line(self, name: str, one: ClassPlan | None) -> str:
        if one is None:
            return f"{name:<20} {0:>8,}  nothing to certify"
        allowed = "not enough draws" if one.wrong_allowed < 0 else f"{one.wrong_allowed:,}"
        every = "" if one.draws == DRAWS else f" of all {one.draws}"
        return f"{name:<20} {one.selected:>8,}  {one.error_free:>10,}{' ' * 20}{allowed}{every}"


def plan(run: RunDir, *, t: int | None, target: float, delta: float) -> Plan:
    """How many error-free draws each class needs, beforehand."""
    check_promise(target, delta)
    t = audited_round(run, t)
    sets = ranked(run, t)
    share = share_of(delta, sets)
    classes: dict[str, ClassPlan | None] = {}
    for one in sets:
        m, n = len(one), min(DRAWS, len(one))
        found = ClassPlan(m, n, error_free_draws(target, share, m), most_wrong(m, n, target, share)) if m else None
        classes[one.name] = found
    return Plan(t, target, share, classes)


def certified_rows(run: RunDir, t: int | None = None) -> pa.Table:
    """The rows of selection.parquet that the certificate of a round covers, without those that were seen to be wrong."""
    t = audited_round(run, t)
    found = run.audit(t)
    if found is None:
        raise UserError(
            f"{run.path}: round {t} has no audit yet. Make its pages with `odst review {run.path}`, then `odst audit`."
        )
    if found["run_hash"] != run_hash(run, t):
        raise UserError(f"{run.path}: round {t} has changed since it was audited. Review and audit it again.")
    sets = ranked(run, t)
    kept = [one.ids[: found["classes"][one.name]["certified"]] for one in sets]
    ids = np.setdiff1d(np.concatenate(kept), np.array(found["wrong"], np.int64))
    if not len(ids):
        raise UserError(f"{run.path}: nothing of round {t} is certified at {found['target']:g}: {found['words'][0]}.")
    table = run.selection_table(t)
    return table.filter(pc.is_in(table["pool_id"], value_set=pa.array(ids)))


# checks ----------------------------------------------------------------------------------------------------------------------


def _read(run: RunDir, files: Sequence[Path]) -> list[Mark]:
    marks: list[Mark] = []
    for file in files:
        own = read_marks(file)
        check_own(run, own, str(file))
        marks += own
    return marks


def check_own(run: RunDir, marks: Sequence[Mark], name: str) -> None:
    """Marks of this run and of its pool, or one line."""
    check_run(marks, name, run)
    pool = pool_of(run)
    assert pool is not None  # a round with a selection has one
    check_marks(marks, name, pool, run.info()["classes"])


def _names(files: Sequence[Path]) -> str:
    return ", ".join(map(str, files))


def _one_number(marks: Sequence[Mark], files: Sequence[Path]) -> int:
    numbers = {mark.draws for mark in marks}
    draws = next(iter(numbers))
    if len(numbers) > 1 or not draws:
        said = " and ".join(sorted(map(str, numbers)))
        raise UserError(
            f"{_names(files)}: marks of pages with {said} draws a class. A certificate has one number, fixed when its page is made."
        )
    return draws


def _check_drawn(
    marks: Sequence[Mark], files: Sequence[Path], sets: Sequence[Ranked], expected: Sequence[np.ndarray]
) -> None:
    """A page that was edited by hand shows other images than those that were drawn."""
    drawn = {(one.name, j) for one, places in zip(sets, expected, strict=True) for j in one.ids[places].tolist()}
    for mark in marks:
        if (mark.name, mark.pool_id) not in drawn:
            raise UserError(
                f"{_names(files)}: pool id {mark.pool_id} was not drawn for the audit of class {mark.name!r}. The page or the file "
                "was changed by hand; make the page again with `odst review`."
            )


def _check_earlier(run: RunDir, t: int, draws: int) -> None:
    for file, one in (
        (run.audit_file(t), run.audit(t)),
        (draws_file(run, t), {"draws": draws_of(run, t, None)} if draws_file(run, t).exists() else None),
    ):
        if one is not None and one["draws"] != draws:
            raise UserError(
                f"{run.path}: round {t} is to be audited with {one['draws']} draws a class ({file.name}), and these marks are of "
                f"{draws}. Drawing on until it holds makes a certificate worth nothing; if the first was a trial, delete {file}."
            )
