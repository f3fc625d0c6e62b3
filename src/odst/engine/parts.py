"""A stage as numbered parts in a folder, each a whole file with a note beside it, made anywhere and in any order.

    FOLDER/about.json      what the parts are made from: another model or pool is refused, not mixed
    FOLDER/00000.json      the note of part 0: it is there when the part is. By whom it was made, and in how many seconds
    FOLDER/share.json      among how many calls of --shard the parts are dealt

The notes are for those who go on, and for `odst status`. Whoever closes the stage puts what they say into one file of its
own and removes the folder or the notes: what is left does not tell where it was made.
"""

import json
import os
import secrets
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from odst.engine.interface import Failed, ShareDone, engine, share
from odst.errors import UserError
from odst.files import write_json
from odst.locks import NO_LINKS, lock
from odst.progress import stage

Note = dict[str, Any]
ABOUT, SHARE = "about.json", "share.json"


def note_file(folder: Path, number: int) -> Path:
    return folder / f"{number:05d}.json"


def read_notes(folder: Path) -> dict[int, Note]:
    """Of the parts that are there."""
    notes = {}
    for file in sorted(folder.glob("[0-9]*.json")):
        try:
            notes[int(file.stem)] = json.loads(file.read_text(encoding="utf-8"))
        except ValueError:
            raise UserError(f"{file}: this note is damaged. Delete it, and its part is made again.") from None
    return notes


@dataclass(frozen=True)
class _Noting:
    """A worker's `make`, whose parts leave their notes."""

    make: Callable[[], Callable[[int], Note]]
    folder: Path

    def __call__(self) -> Callable[[int], Note]:
        if not (
            self.folder / ABOUT
        ).is_file():  # on a node that came after the preflight: it would write beside the others
            raise UserError(
                f"node {socket.gethostname()}: it does not see {self.folder}. Use a folder that every node sees under one name."
            )
        work = self.make()

        def part(number: int) -> Note:
            file = note_file(self.folder, number)
            if file.exists():  # somebody else was faster
                return json.loads(file.read_text(encoding="utf-8"))
            begin = time.monotonic()
            note = work(number)
            spent = round(time.monotonic() - begin, 3)
            note |= {"by": f"{socket.gethostname()}:{os.getpid()}", "seconds": spent, "ended": round(time.time(), 1)}
            write_json(file, note)
            return note

        return part


def close_later(name: str) -> None:
    """For a call with a share that finds every part done: to close the stage is for a call without one."""
    if (mine := share()) is not None:
        raise ShareDone(f"{name}: share {mine} is done. The command without --shard closes it.")


def writing(folder: Path, doing: str) -> AbstractContextManager[None]:
    """The lock of a command: of the whole folder, or of its share, beside which others hold theirs."""
    mine = share()
    return lock(folder, doing) if mine is None else lock(folder, f"{doing} --shard {mine}", part=f"share {mine}")


def complete(
    folder: Path,
    about: Note,
    sizes: Sequence[int],
    make: Callable[[], Callable[[int], Note]],
    *,
    name: str | None,
    unit: str = "images",
    reads: Sequence[Path] = (),
    stale: str = "",
) -> list[Note]:
    """Make every part that has no note yet, on the engine of the day; the notes of all, in order.

    `sizes` says how much of `unit` each part holds. `about` is compared with that of an earlier call; `stale` is what to
    say and do if it differs. `reads` are files and folders that every machine at work must see. A call that
    has but a share of the parts ends with ShareDone.
    """
    begin(folder, about, len(sizes), name or folder.name, unit, stale)
    mine = share()
    notes = read_notes(folder)
    todo = [i for i in range(len(sizes)) if i not in notes and (mine is None or i % mine.count == mine.index)]
    failed: dict[int, str] = {}
    done = sum(sizes[i] for i in range(len(sizes)) if i in notes)
    with stage(name, sum(sizes), unit, done) if name else nullcontext(lambda n: None) as advance:
        if todo:
            engine().check([folder], reads)
        for i, note in zip(todo, engine().map(_Noting(make, folder.absolute()), todo), strict=True):
            if isinstance(note, Failed):
                failed[i] = note.reason
            else:
                notes[i] = note
            advance(sizes[i])
    if failed:
        first, reason = next(iter(failed.items()))
        others = f" So did {len(failed) - 1} more." if len(failed) > 1 else ""
        raise UserError(
            f"{folder}: part {first} failed three times ({reason}).{others} The others are kept: mend it and give the same "
            "command again."
        )
    if mine is not None:
        left = len(sizes) - len(read_notes(folder))
        raise ShareDone(
            f"{name or folder.name}: share {mine} is done, {left:,} of {len(sizes):,} parts are left. "
            + ("The command without --shard closes the stage." if left == 0 else "")
        )
    return [notes[i] for i in range(len(sizes))]


def tidy(folder: Path) -> None:
    """Remove the notes of a stage that is closed, and what killed writers have left."""
    for file in [*folder.glob("[0-9]*.json"), *folder.glob(".*.part"), folder / SHARE, folder / ABOUT]:
        file.unlink(missing_ok=True)


def begin(folder: Path, about: Note, count: int, name: str, unit: str, stale: str) -> None:
    """Make the folder, or see that it is about the same thing; the parts are dealt among one number of calls."""
    whole = {**about, "parts": count}
    was = read_about(folder / ABOUT)
    if was is None:
        write_json(folder / ABOUT, {"stage": name, "unit": unit, "about": whole, "begun": round(time.time(), 1)})
    elif was.get("about") != whole:
        differ = [key for key in whole if was.get("about", {}).get(key) != whole[key]]
        raise UserError(f"{folder}: what is there was made from another {', '.join(differ) or 'source'}. {stale}")
    if (mine := share()) is not None:
        first = _first_there(folder / SHARE, {"count": mine.count})
        if first.get("count") != mine.count:
            raise UserError(
                f"--shard {mine}: the first call here was one of {first.get('count')}. Give all calls the same number, or "
                "finish without --shard."
            )


def _first_there(file: Path, value: dict[str, Any]) -> dict[str, Any]:
    """What the first of all callers has written into `file`: of several at one moment one is the first."""
    if (there := read_about(file)) is None:
        temporary = file.with_name(f".{file.name}.{secrets.token_hex(8)}.part")
        temporary.write_text(json.dumps(value), encoding="utf-8")
        try:
            os.link(temporary, file)
        except FileExistsError:
            pass
        except OSError as error:
            if error.errno not in NO_LINKS:
                raise
            with suppress(FileExistsError), open(file, "x", encoding="utf-8") as opened:
                opened.write(json.dumps(value))
        finally:
            temporary.unlink(missing_ok=True)
        there = read_about(file)
    return value if there is None else there


def read_about(file: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:
        raise UserError(f"{file}: it is damaged. Delete it, and the stage goes on.") from None
    return value if isinstance(value, dict) else {}
