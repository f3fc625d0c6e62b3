"""Marks: what people said of pool images, as JSON or CSV. One line is one image seen by one person.

pool_id, content_hash   the image, by its place in the pool and by what it shows
run_hash, round         whose selection it was looked at for (`run_hash` below)
mode                    audit (uniform draws: counts towards a certificate), triage (never counts), or val_out
draws                   of audit and val_out: how many a class the page was made for, fixed before anybody looked
class                   the class the image was shown as
verdict                 right; wrong (not of that class); relabelled (of class `label`); none (of none of the classes);
                        relabelled with its own class is read as right
label                   the class of a relabelled one, else empty
who, when               as they were typed
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from odst.data.cells import cells, plain
from odst.data.images import Pool
from odst.errors import UserError
from odst.files import digest, write_json, write_text
from odst.run.directory import RunDir

FORMAT = "odst-marks-1"
COLUMNS = (
    "pool_id", "content_hash", "run_hash", "round", "mode", "draws", "class", "verdict", "label", "who", "when",
)  # fmt: skip
AUDIT, TRIAGE, VAL_OUT = "audit", "triage", "val_out"
RIGHT, WRONG, RELABELLED, NONE = "right", "wrong", "relabelled", "none"
VERDICTS = (RIGHT, WRONG, RELABELLED, NONE)


@dataclass(frozen=True)
class Mark:
    pool_id: int
    content_hash: str
    run_hash: str
    round: int
    mode: str
    name: str  # the column `class`; empty in val_out
    verdict: str
    label: str | None = None
    draws: int | None = None
    who: str = ""
    when: str = ""

    @property
    def teaches(self) -> str | None:
        """The class that this mark gives the image."""
        return self.name if self.verdict == RIGHT and self.mode != VAL_OUT else self.label

    def to_json(self) -> dict[str, Any]:
        values = {"class": self.name, **{key: getattr(self, key) for key in COLUMNS if key != "class"}}
        return {key: values[key] for key in COLUMNS}


def run_hash(run: RunDir, t: int) -> str:
    """Of a run and what one of its rounds selected: the same for a copy of the run, another for any other."""
    info = run.info()
    return digest([info["config_hash"], info["sets"], run.note(t)["files"]])


# files -----------------------------------------------------------------------------------------------------------------------


def write_marks(file: Path, marks: Sequence[Mark]) -> None:
    """As JSON, or as CSV where the name ends so."""
    rows = [mark.to_json() for mark in marks]
    if file.suffix.lower() == ".csv":
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(COLUMNS)
        lines.writerows(cells(row[key] for key in COLUMNS) for row in rows)
        write_text(file, text.getvalue())
    else:
        write_json(file, {"format": FORMAT, "marks": rows})


def keep_marks(run: RunDir, name: str, marks: Sequence[Mark]) -> Path:
    """Write them into the run's folder of marks under this name, or one that is free; the same marks are kept once."""
    n, file = 1, run.marks / f"{name}.json"
    while file.exists() and read_marks(file) != list(marks):
        n += 1
        file = run.marks / f"{name}-{n}.json"
    write_marks(file, marks)
    return file


def read_marks(file: Path) -> list[Mark]:
    try:
        raw = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: {error.strerror or error}. Give a file that the review page has exported.") from None
    return parse_marks(raw, str(file))


def parse_marks(raw: bytes, name: str) -> list[Mark]:
    """The marks of a file's bytes; at least one."""
    try:
        text = raw.decode("utf-8-sig")
        if not text.strip():
            raise UserError(f"{name}: this file is empty. Confirm a page of the review with Enter, then export again.")
        rows = _json_rows(text) if text.lstrip()[0] in "{[" else _csv_rows(text)
        marks = [_mark(row) for row in rows]
    except UserError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else " ".join(str(error).split())
        raise UserError(
            f"{name}: not marks of a review page ({reason[:120]}). Export them again; edit verdicts on the page, not in the file."
        ) from None
    if not marks:
        raise UserError(f"{name}: no mark in it. Confirm a page of the review with Enter, then export again.")
    return marks


def _csv_rows(text: str) -> list[dict[str, Any]]:
    return [plain(row) for row in csv.DictReader(io.StringIO(text, newline=""))]


def _json_rows(text: str) -> list[dict[str, Any]]:
    found = json.loads(text)
    if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("marks"), list):
        raise ValueError(f"no {FORMAT}")
    return found["marks"]


def _mark(row: dict[str, Any]) -> Mark:
    def whole(value: Any) -> int:
        if isinstance(value, bool | float) or (isinstance(value, str) and not value.strip().isdecimal()):
            raise ValueError(f"{value!r} is no whole number")
        return int(value)

    texts = {key: row[key] if row[key] is not None else "" for key in COLUMNS}
    for key in ("content_hash", "run_hash", "mode", "class", "verdict", "label", "who", "when"):
        if not isinstance(texts[key], str):
            raise ValueError(f"{key} {texts[key]!r} is no text")
    mark = Mark(
        pool_id=whole(texts["pool_id"]),
        content_hash=texts["content_hash"],
        run_hash=texts["run_hash"],
        round=whole(texts["round"]),
        mode=texts["mode"],
        name=texts["class"],
        verdict=texts["verdict"],
        label=texts["label"] or None,
        draws=None if texts["draws"] == "" else whole(texts["draws"]),
        who=texts["who"],
        when=texts["when"],
    )
    if mark.mode not in (AUDIT, TRIAGE, VAL_OUT):
        raise ValueError(f"mode {mark.mode!r} is none of audit, triage, val_out")
    if mark.verdict not in VERDICTS:
        raise ValueError(f"verdict {mark.verdict!r} is none of {', '.join(VERDICTS)}")
    if (mark.verdict == RELABELLED) != (mark.label is not None):
        raise ValueError(f"a label stands with relabelled marks and no others, pool id {mark.pool_id}")
    if (
        mark.label is not None and mark.label == mark.name
    ):  # of the class that it was shown as: that is what right means
        mark = replace(mark, verdict=RIGHT, label=None)
    if mark.pool_id < 0 or mark.round < 0:
        raise ValueError(f"pool id {mark.pool_id}, round {mark.round}")
    if mark.draws is not None and mark.draws < 1:
        raise ValueError(f"{mark.draws} draws a class")
    return mark


# checks ----------------------------------------------------------------------------------------------------------------------


def check_marks(marks: Iterable[Mark], name: str, pool: Pool, classes: Sequence[str]) -> None:
    """Every mark is of an image of this pool and names classes of this run, or one line."""
    marks = list(marks)
    for mark in marks:
        if mark.pool_id >= len(pool):
            raise UserError(
                f"{name}: pool id {mark.pool_id} is not in the pool, which has {len(pool):,} images. These marks are of another pool."
            )
        named = ([] if mark.mode == VAL_OUT else [mark.name]) + ([] if mark.label is None else [mark.label])
        for one in named:
            if one not in classes:
                some = f"{', '.join(classes[:12])}{', …' if len(classes) > 12 else ''}"
                raise UserError(
                    f"{name}: a mark names the class {one!r}, and there is none of {some} so called. These marks are of another run."
                )
    ids = np.array([mark.pool_id for mark in marks], np.int64)
    for mark, hash_ in zip(marks, pool.content_hash(ids), strict=True):
        if mark.content_hash != hash_:
            raise UserError(
                f"{name}: pool id {mark.pool_id} shows another image than the one marked (content hash {mark.content_hash[:12]}, "
                f"here {hash_[:12]}). These marks are of another pool."
            )


def check_run(marks: Iterable[Mark], name: str, run: RunDir) -> None:
    """Every mark was made on this run's selections."""
    known: dict[int, str] = {}
    there = run.rounds()
    for mark in marks:
        if mark.mode == VAL_OUT:
            raise UserError(
                f"{name}: these marks are of a val_out. Give them to `odst review PROJECT --val-out --marks`."
            )
        if mark.round not in known:
            known[mark.round] = run_hash(run, mark.round) if mark.round in there else ""
        if mark.run_hash != known[mark.round]:
            raise UserError(
                f"{name}: these marks are of another run (hash {mark.run_hash[:12]}, here {known[mark.round][:12] or 'no such round'}), "
                f"round {mark.round}. Give the run they were made on, or review this one with `odst review {run.path}`."
            )


# one verdict an image ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Settled:
    """One mark an image, in the order of the pool; what people disagreed on; and (pool id, class) of what is not of a class."""

    marks: tuple[Mark, ...]
    disagreements: tuple[str, ...]
    barred: tuple[tuple[int, str], ...]


def settle(marks: Iterable[Mark]) -> Settled:
    """The stricter counts: an image on which two marks contradict each other is wrong, no label of it is believed, and it
    is of none of the classes they name."""
    by_image: dict[int, list[Mark]] = {}
    for mark in marks:
        by_image.setdefault(mark.pool_id, []).append(mark)
    kept, disagreements, barred = [], [], []
    for j, own in sorted(by_image.items()):
        wrong = {mark.name for mark in own if mark.verdict in (WRONG, RELABELLED, NONE)} - {""}
        taught = {mark.teaches for mark in own} - {None}
        none = any(mark.verdict == NONE for mark in own)
        if len(taught) > 1 or taught & wrong or (taught and none):
            named = wrong | {name for name in taught if name}
            who = " and ".join(dict.fromkeys(mark.who or "somebody" for mark in own))
            kept.append(replace(own[0], verdict=WRONG, label=None, who=who))
            disagreements.append(f"pool id {j}, shown as {own[0].name}: {', '.join(map(_said, own))}; taken as wrong")
            barred += [(j, name) for name in sorted(named)]
            continue
        kept.append(max(own, key=lambda mark: (mark.teaches is not None, mark.verdict == NONE)))
        barred += [(j, name) for name in sorted(wrong)]
    return Settled(tuple(kept), tuple(disagreements), tuple(barred))


def _said(mark: Mark) -> str:
    return f"{mark.who or 'somebody'} says {mark.verdict}{f' ({mark.label})' if mark.label else ''}"
