"""Long stages say how far they are; whoever runs them decides whether anybody sees it.

A stage is `with stage("label pool", total=m, unit="images") as advance: advance(512)`. By default nobody listens;
the command line listens with bars, and a run directory with its timings.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Listener(Protocol):
    def start(self, name: str, total: int | None, unit: str, done: int) -> Callable[[int], None]: ...

    def finish(self, name: str, completed: bool) -> None: ...


_listeners: ContextVar[tuple[Listener, ...]] = ContextVar("listeners", default=())


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    token = _listeners.set((*_listeners.get(), listener))
    try:
        yield
    finally:
        _listeners.reset(token)


@contextmanager
def stage(name: str, total: int | None = None, unit: str = "", done: int = 0) -> Iterator[Callable[[int], None]]:
    """`done` is what an earlier, interrupted run had already finished of `total`."""
    listeners = _listeners.get()
    advances = [listener.start(name, total, unit, done) for listener in listeners]

    def advance(n: int = 1) -> None:
        for one in advances:
            one(n)

    completed = False
    try:
        yield advance
        completed = True
    finally:
        for listener in listeners:
            listener.finish(name, completed)


def duration(seconds: float, digits: int = 1) -> str:
    """A time for people; `digits` behind the point of seconds."""
    if seconds < 100:
        return f"{seconds:.{digits}f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
