"""What people marked in Label Studio or FiftyOne, as marks of a run.

Label Studio: the JSON or JSON-MIN export of the tasks that `odst selection --to labelstudio` wrote. A submitted annotation says
right, another class, or none of these; skipped tasks and those that nobody has annotated say nothing.
FiftyOne: labels.json (FiftyOneImageClassificationDataset) or samples.json (FiftyOneDataset) of what `--to fiftyone` wrote. A label
that still is what it was does not say that anybody looked, so only those that were changed are marks.

They are triage: nobody drew these images for an audit, so they never count towards a certificate.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import unquote

from odst.data.items import label_text
from odst.errors import UserError
from odst.exchange.layouts import CHOICE, none_of
from odst.exchange.rows import Rows, rows_of
from odst.run.directory import RunDir
from odst.run.marks import NONE, RELABELLED, RIGHT, TRIAGE, Mark, run_hash

NAME = re.compile(r"(\d{12})-([0-9a-f]{8})")  # of a picture: its pool id, and how its content hash begins
TRIED = "Give Label Studio's JSON export, or FiftyOne's labels.json or samples.json, of what `odst selection` wrote."


@dataclass(frozen=True)
class Said:
    """One answer about one picture."""

    picture: str  # its file's name
    label: str | None
    run_hash: str | None = None
    round: int | None = None
    who: str = ""
    when: str = ""


@dataclass(frozen=True)
class Imported:
    marks: list[Mark]
    kind: str  # Label Studio or FiftyOne
    silent: int  # pictures of which nothing was said


def import_marks(run: RunDir, file: Path, t: int | None) -> Imported:
    """The marks in another tool's export. `t` is the round where the export does not say it."""
    file = _labels_in(file)
    kind, answers = _read(file)
    rounds = {one.round for one in answers if one.round is not None}
    if len(rounds) > 1:
        raise UserError(
            f"{file}: it holds pictures of the rounds {', '.join(map(str, sorted(rounds)))}. Import them one by one."
        )
    rows = rows_of(run, next(iter(rounds), t))
    own, place = run_hash(run, rows.round), {int(j): row for row, j in enumerate(rows.columns["pool_id"])}
    names = {label_text(name): name for name in rows.classes}
    marks, silent = [], 0
    for one in answers:
        row = _row(one, rows, place, file)
        if one.run_hash not in (None, own):
            raise UserError(
                f"{file}: these answers are of another run (hash {str(one.run_hash)[:12]}, here {own[:12]}). Give the run that "
                "they were exported from."
            )
        verdict, label = _verdict(one, rows, row, names, file)
        if verdict is None or (kind == "FiftyOne" and verdict == RIGHT):
            silent += 1
            continue
        marks.append(
            Mark(
                pool_id=int(rows.columns["pool_id"][row]),
                content_hash=str(rows.columns["content_hash"][row]),
                run_hash=own,
                round=rows.round,
                mode=TRIAGE,
                name=rows.label(row),
                verdict=verdict,
                label=label,
                who=one.who,
                when=one.when,
            )
        )
    if not marks:
        why = "no label in it was changed" if kind == "FiftyOne" else "no task in it has been annotated"
        raise UserError(f"{file}: there is nothing to import: {why}. Mark some pictures and export again.")
    return Imported(marks, kind, silent)


def described(found: Imported, file: Path) -> Iterator[str]:
    count = Counter(mark.verdict for mark in found.marks)
    words = [f"{count[verdict]:,} {verdict}" for verdict in (RIGHT, RELABELLED, NONE) if count[verdict]]
    marks = "1 mark" if len(found.marks) == 1 else f"{len(found.marks):,} marks"
    yield f"{file}: {marks} from {found.kind}: {', '.join(words)}"
    if found.silent:
        why = "unchanged" if found.kind == "FiftyOne" else "skipped or not annotated"
        pictures = "1 picture is" if found.silent == 1 else f"{found.silent:,} pictures are"
        yield f"{pictures} {why}: left out, since nothing is said there."
    yield "They are triage: `odst run RUN --marks` learns from them, and no certificate counts them."


def _row(one: Said, rows: Rows, place: dict[int, int], file: Path) -> int:
    found = NAME.match(PurePosixPath(unquote(one.picture)).name)
    if found is None:
        raise UserError(f"{file}: {one.picture!r} is no picture that `odst selection` wrote. {TRIED}")
    row = place.get(int(found[1]))
    if row is None:
        raise UserError(
            f"{file}: pool id {int(found[1])} is not in the selection of round {rows.round} of {rows.run}. Give the run, or the "
            "--round, that the pictures were exported from."
        )
    if not str(rows.columns["content_hash"][row]).startswith(found[2]):
        raise UserError(
            f"{file}: pool id {int(found[1])} shows another picture in {rows.run}: this export is of another pool. Give the run "
            "that it was made from."
        )
    return row


def _verdict(one: Said, rows: Rows, row: int, names: dict[str, str], file: Path) -> tuple[str | None, str | None]:
    if one.label is None:
        return None, None
    text = label_text(one.label)
    if text == label_text(none_of(rows.classes)):
        return NONE, None
    if text not in names:
        some = ", ".join(rows.classes[:12]) + (", …" if len(rows.classes) > 12 else "")
        raise UserError(
            f"{file}: {one.label!r} for pool id {rows.columns['pool_id'][row]} is none of {some}, nor {none_of(rows.classes)!r}. "
            "Correct it there and export again."
        )
    return (RIGHT, None) if names[text] == rows.label(row) else (RELABELLED, names[text])


# files -----------------------------------------------------------------------------------------------------------------------


def _labels_in(file: Path) -> Path:
    """The file itself, or that of the folder which FiftyOne exports."""
    if not file.is_dir():
        return file
    for name in ("labels.json", "samples.json"):
        if (file / name).is_file():
            return file / name
    raise UserError(f"{file}: there is neither labels.json nor samples.json in this folder. {TRIED}")


def _read(file: Path) -> tuple[str, list[Said]]:
    try:
        found = json.loads(file.read_text(encoding="utf-8-sig"))
        if isinstance(found, list):
            return "Label Studio", [said for task in found for said in _task(task)]
        if isinstance(found, dict) and isinstance(found.get("labels"), dict):
            return "FiftyOne", list(_labels(found))
        if isinstance(found, dict) and isinstance(found.get("samples"), list):
            return "FiftyOne", [_sample(one) for one in found["samples"]]
        raise ValueError("neither a list of tasks nor labels")
    except OSError as error:
        raise UserError(f"{file}: {error.strerror or error}. {TRIED}") from None
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{file}: it cannot be read as an export ({reason[:120]}). {TRIED}") from None


def _task(task: dict[str, Any]) -> Iterator[Said]:
    """One task of Label Studio: its data, and what each annotator chose; in JSON-MIN both in one object."""
    data = task.get("data", task)
    about = {"picture": str(data["image"]), "run_hash": data.get("run_hash"), "round": _whole(data.get("round"))}
    if "annotations" not in task and "data" not in task:
        chosen = task.get(CHOICE)
        chosen = chosen["choices"][0] if isinstance(chosen, dict) else chosen
        label = chosen if isinstance(chosen, str) else None
        yield Said(**about, label=label, who=_who(task.get("annotator")), when=str(task.get("created_at") or ""))
        return
    given = [one for one in task.get("annotations") or [] if not one.get("was_cancelled")]
    for one in given:
        results = [result for result in one["result"] if result.get("type") == "choices"]
        label = str(results[0]["value"]["choices"][0]) if results else None
        when = str(one.get("updated_at") or one.get("created_at") or "")
        yield Said(**about, label=label, who=_who(one.get("completed_by")), when=when)
    if not given:
        yield Said(**about, label=None)


def _labels(found: dict[str, Any]) -> Iterator[Said]:
    classes = found.get("classes")
    for name, target in found["labels"].items():
        about = (target.get("attributes") or {}) if isinstance(target, dict) else {}
        label = target["label"] if isinstance(target, dict) else target
        if isinstance(label, int) and not isinstance(label, bool):
            label = classes[label] if classes and 0 <= label < len(classes) else str(label)
        yield Said(str(name), None if label is None else str(label), about.get("run_hash"), _whole(about.get("round")))


def _sample(one: dict[str, Any]) -> Said:
    fields = [key for key, value in one.items() if isinstance(value, dict) and value.get("_cls") == "Classification"]
    if len(fields) > 1 and "ground_truth" not in fields:
        raise ValueError(f"several classifications: {', '.join(fields)}; keep one, or call it ground_truth")
    value = one["ground_truth" if "ground_truth" in fields else fields[0]] if fields else {}
    label = value.get("label")
    return Said(
        str(one["filepath"]), None if label is None else str(label), value.get("run_hash"), _whole(value.get("round"))
    )


def _whole(value: Any) -> int | None:
    return None if value is None or value == "" else int(value)


def _who(value: Any) -> str:
    """Label Studio gives an annotator's number, or an object with an e-mail address."""
    if isinstance(value, dict):
        value = value.get("email") or value.get("id")
    return "" if value is None else str(value)
