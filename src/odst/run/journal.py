"""What a run writes down as it goes: a log, and a line for the time each stage took."""

import json
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

log = logging.getLogger("odst")


@contextmanager
def logging_to(file: Path) -> Iterator[None]:
    handler = logging.FileHandler(file, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    log.addHandler(handler)
    before = log.level
    log.setLevel(min(before or logging.INFO, logging.INFO))  # not log.level: what it lets through is remembered
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(before)
        handler.close()


class Timings:
    """A line for each stage: seconds, and images where it counts them."""

    def __init__(self, file: Path):
        self.file = file
        file.touch()
        self.running: list[tuple[float, list[int]]] = []

    def start(self, name: str, total: int | None, unit: str, done: int) -> Callable[[int], None]:
        count = [0]
        self.running.append((time.perf_counter(), count))

        def advance(n: int) -> None:
            count[0] += n if unit == "images" else 0

        return advance

    def finish(self, name: str, completed: bool) -> None:
        begin, count = self.running.pop()
        line = {
            "stage": name,
            "seconds": round(time.perf_counter() - begin, 3),
            "images": count[0],
            "completed": completed,
        }
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def read_timings(file: Path) -> list[tuple[str, float, int]]:
    """Seconds and images per stage, in the order in which they first began."""
    stages: dict[str, tuple[float, int]] = {}
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines() if file.is_file() else ():
        try:
            one = json.loads(line)
            name, took, count = str(one["stage"]), float(one["seconds"]), int(one["images"])
        except (ValueError, KeyError, TypeError):
            continue  # a killed run may leave half a line
        seconds, images = stages.get(name, (0.0, 0))
        stages[name] = seconds + took, images + count
    return [(name, seconds, images) for name, (seconds, images) in stages.items()]
