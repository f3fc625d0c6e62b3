"""What a stage asks of an engine: run these functions somewhere, and give me their notes in order.

    with running_on(Local(workers=4)):
        for note in engine().map(make, items): ...

`make()` builds a worker's state once (the network, the references, a decoder) and returns the function that turns an item
into its note. Both travel by pickle: items and notes are small, and what is large a function writes into its own whole file.
A UserError of a function is raised here as itself; whatever else fails is tried three times and then becomes a `Failed` note,
so that the other items are done first. Which engine runs is said by whoever starts the work; it is no part of a config.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from odst.errors import UserError

Item = TypeVar("Item")

TRIES = 3


@dataclass(frozen=True)
class Failed:
    """In place of a note: why an item came to nothing."""

    reason: str


class Engine(Protocol):
    alone: bool  # everything runs on this machine, which sees what we see
    device: str | None  # what its workers compute on; None: whatever the stage was asked for

    def map(self, make: Callable[[], Callable[[Item], Any]], items: Sequence[Item]) -> Iterator[Any]:
        """A note for each item, in their order."""
        ...

    def check(self, writes: Iterable[Path], reads: Iterable[Path] = ()) -> None:
        """Raise one line if a machine at work cannot write these folders, or does not see what is to be read."""
        ...


@dataclass(frozen=True)
class Share:
    """One of `count` calls that share a stage: the items whose number leaves this rest."""

    index: int
    count: int

    def __str__(self) -> str:
        return f"{self.index}/{self.count}"


class ShareDone(Exception):
    """This call has done its share of a stage; the stage is closed by a call without one."""


_engine: ContextVar[Engine | None] = ContextVar("engine", default=None)
_share: ContextVar[Share | None] = ContextVar("share", default=None)


def engine() -> Engine:
    from odst.engine.local import Local

    return _engine.get() or Local()


def share() -> Share | None:
    return _share.get()


@contextmanager
def running_on(engine: Engine | None, share: Share | None = None) -> Iterator[None]:
    """Stages inside run on this engine; with a share they do that much of the first stage that is unfinished, and end."""
    before, part = _engine.set(engine), _share.set(share)
    try:
        yield
    finally:
        _engine.reset(before)
        _share.reset(part)


def attempt(work: Callable[[Item], Any], item: Item) -> Any:
    """The note of an item, or after the third fault why there is none."""
    for again in range(TRIES):
        try:
            return work(item)
        except UserError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".strip().splitlines()[0]
            time.sleep(0.1 * again)  # a shared folder may have stumbled
    return Failed(reason)
