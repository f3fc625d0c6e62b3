"""Processes of this machine that answer one item after the other, each through a pipe of its own."""

import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from queue import SimpleQueue
from typing import Any

from odst.engine.interface import Item
from odst.engine.processors import in_order
from odst.errors import UserError

Idle = SimpleQueue[tuple[Connection, SpawnProcess]]


def on_processes(
    make: Callable[[Any], Callable[[Item], Any]],
    items: Iterable[Item],
    workers: int,
    *,
    who: str,
    less: str,
    brought: Callable[[], Any] = lambda: None,
) -> Iterator[Any]:
    """An answer for each item, in their order, holding only a few at a time. A UserError there is raised here.

    What a process answers with is made there once, from what `brought` gives here when all processes are on their way. A
    process that dies is told of as `who`, and of one that was killed `less` is advised, for it was most likely for want of memory.
    """
    with _started(make, workers, brought) as idle, ThreadPoolExecutor(workers) as threads:

        def ask(item: Item) -> Any:
            connection, process = idle.get()
            try:
                connection.send(item)
                answer = connection.recv()
            except (EOFError, ConnectionError):
                raise _death(process, who, less) from None
            finally:
                idle.put((connection, process))
            if isinstance(answer, UserError):
                raise answer
            return answer

        yield from in_order(threads, ask, items, 2 * workers)


def _death(process: SpawnProcess, who: str, less: str) -> UserError:
    """How a process ended, and what most likely ended it."""
    process.join(10)
    code = process.exitcode
    names = {-one.value: one.name for one in signal.Signals}
    how = (
        "does not answer"
        if code is None
        else f"was ended by {names[code]}"
        if code in names
        else f"ended with exit code {code}"
    )
    why = f", most likely for want of memory: {less}" if code == -9 else ""
    return UserError(
        f"{who} {how}{why}. What is done stays done: the same command goes on. A Python script of your own must begin "
        'its work under `if __name__ == "__main__":`, for every such process reads the script anew.'
    )


@contextmanager
def _started(make: Any, workers: int, brought: Callable[[], Any]) -> Iterator[Idle]:
    """Started, not forked. A process whose parent is gone, even killed, reads the end of its pipe and leaves."""
    context = get_context("spawn")
    idle: Idle = SimpleQueue()
    with ExitStack() as stack:
        started = []
        for _ in range(workers):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, make), daemon=True)
            process.start()
            there.close()
            stack.callback(process.join)
            stack.callback(here.close)
            started.append((here, process))
        what = brought()
        for here, process in started:  # each has to be up to take it
            with suppress(ConnectionError):  # it died; whoever asks it will say so
                here.send(what)
            idle.put((here, process))
        yield idle


def _serve(connection: Connection, make: Callable[[Any], Callable[[Any], Any]]) -> None:
    """`connection` brings what was `brought`, and then items."""
    for name in ("SIGINT", "SIGHUP"):  # a terminal sends them to all; the parent decides when to stop
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    work: Callable[[Any], Any] | None = None
    try:
        brought = connection.recv()
        while True:
            item = connection.recv()
            try:
                work = work or make(brought)
                answer = work(item)
            except UserError as error:  # it would be the same in every process
                answer = error
            connection.send(answer)
    except (EOFError, ConnectionError):
        return
