"""How far the stages in a folder are, by the notes of their parts: for `odst status`."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from odst.engine.parts import ABOUT, SHARE, read_about, read_notes
from odst.locks import held_parts
from odst.progress import duration

RECENT = 600.0  # seconds: who has ended a part since then is taken to be at work


@dataclass(frozen=True)
class Progress:
    folder: Path
    stage: str
    parts: int
    done: tuple[int, ...]
    by: dict[str, int]  # machine -> parts
    seconds_left: float | None  # None before the first part, and where nobody seems to be at work
    shares: int | None
    working: tuple[str, ...]  # who holds a share now

    def __str__(self) -> str:
        lines = [f"{self.stage}: {len(self.done):,} of {self.parts:,} parts ({self.folder})"]
        if self.by:
            lines.append("  by " + ", ".join(f"{host} {count:,}" for host, count in sorted(self.by.items())))
        if self.shares:
            undone = [i for i in range(self.parts) if i not in set(self.done)]
            waits = sorted({i % self.shares for i in undone})
            lines.append(f"  shares with parts left: {', '.join(f'{i}/{self.shares}' for i in waits) or 'none'}")
        elif len(self.done) < self.parts:
            lines.append(f"  parts left: {spans([i for i in range(self.parts) if i not in set(self.done)])}")
        lines += [f"  at work: {one}" for one in self.working]
        if len(self.done) == self.parts:
            lines.append("  all parts are there: the command without --shard closes the stage")
        elif self.seconds_left is not None:
            lines.append(f"  about {duration(self.seconds_left, 0)} to go at this pace")
        return "\n".join(lines)


def stages(folder: Path) -> Iterator[Progress]:
    """Those that are begun and not closed."""
    for file in sorted(folder.rglob(ABOUT)):
        about = read_about(file)
        if not about or "stage" not in about:
            continue
        notes, count, now = read_notes(file.parent), int(about["about"]["parts"]), time.time()
        workers = {note["by"] for note in notes.values() if now - note["ended"] < RECENT}
        mean = sum(note["seconds"] for note in notes.values()) / max(1, len(notes))
        hosts = Counter(note["by"].rpartition(":")[0] for note in notes.values())
        shares = (read_about(file.parent / SHARE) or {}).get("count")
        working = tuple(
            str(one) for place in [file.parent, *file.parent.parents][:5] if place.is_dir() for one in held_parts(place)
        )
        left = mean * (count - len(notes)) / len(workers) if workers else None
        yield Progress(file.parent, about["stage"], count, tuple(sorted(notes)), dict(hosts), left, shares, working)


def spans(numbers: list[int], most: int = 8) -> str:
    """0-3, 7, 9-12."""
    found: list[list[int]] = []
    for one in numbers:
        if found and found[-1][1] == one - 1:
            found[-1][1] = one
        else:
            found.append([one, one])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in found[:most]]
    return ", ".join(texts) + (", …" if len(found) > most else "")
