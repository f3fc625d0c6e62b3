"""The engine of one machine: the first item here, and as many processes as there are processors if the others are worth it."""

import pickle
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from odst.engine.interface import Item, attempt
from odst.engine.processors import processors
from odst.engine.spawned import on_processes

WORTH = 20.0  # seconds of work that are left: to start processes, which import torch, takes about five


class Local:
    """`workers` processes at most; without a number, as many as processors, and none where the work is too short for them."""

    alone = True
    device: str | None = None

    def __init__(self, workers: int | None = None):
        self.workers = workers

    def check(self, writes: Iterable[Path], reads: Iterable[Path] = ()) -> None:
        return

    def map(self, make: Callable[[], Callable[[Item], Any]], items: Sequence[Item]) -> Iterator[Any]:
        rest = list(items)
        most = min(self.workers or processors(), len(rest))
        if self.workers is None and rest:
            begin = time.monotonic()
            work = make()
            begun = time.monotonic()
            while rest:
                yield attempt(work, rest.pop(0))
                spent = time.monotonic() - begun
                if most > 1 and len(rest) > 1 and spent * len(rest) > WORTH + (begun - begin):
                    break
                begun = time.monotonic()
            del work
            most = min(most, len(rest))
        if most > 1 and _travels(make):
            yield from on_processes(_Attempting(make), rest, most, who="a process at work", less="lower --workers")
        elif rest:
            work = make()
            for item in rest:
                yield attempt(work, item)


def _travels(make: Any) -> bool:
    """Whether it can be handed to a process: a network or a function made on the spot cannot."""
    try:
        pickle.dumps(make)
    except (pickle.PicklingError, AttributeError, TypeError):
        return False
    return True


@dataclass(frozen=True)
class _Attempting:
    """In a process: what `make` makes, tried as often as anywhere."""

    make: Callable[[], Callable[[Any], Any]]

    def __call__(self, brought: None) -> Callable[[Any], Any]:
        return partial(attempt, self.make())
