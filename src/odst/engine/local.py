"""The engine of one machine: the first item here, and as many processes as there are processors if the others are worth it."""

import pickle
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from odst.engine.interface import Item, attempt
from odst.engine.processors import processors
from odst.errors import UserError

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
            yield from _on_processes(make, rest, most)
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


def _on_processes(make: Callable[[], Callable[[Item], Any]], items: Sequence[Item], workers: int) -> Iterator[Any]:
    with _processes(make, workers) as idle, ThreadPoolExecutor(workers) as threads:

        def ask(item: Item) -> Any:
            connection, process = idle.get()
            try:
                connection.send(item)
                answer = connection.recv()
            except (EOFError, ConnectionError):
                raise _death(process) from None
            finally:
                idle.put((connection, process))
            if isinstance(answer, UserError):
                raise answer
            return answer

        waiting: deque[Future[Any]] = deque()
        try:
            for item in items:
                waiting.append(threads.submit(ask, item))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


def _death(process: SpawnProcess) -> UserError:
    process.join(10)
    names = {-one.value: one.name for one in signal.Signals}
    how = names.get(process.exitcode or 0, f"exit code {process.exitcode}")
    why = ", most likely for want of memory: lower --workers" if process.exitcode == -9 else ""
    return UserError(
        f"a process at work ended ({how}{why}). What is done stays done: the same command goes on. A Python script of your "
        'own must begin its work under `if __name__ == "__main__":`, for every such process reads the script anew.'
    )


@contextmanager
def _processes(make: Any, workers: int) -> Iterator["SimpleQueue[tuple[Connection, SpawnProcess]]"]:
    """Started, not forked. A process whose parent is gone, even killed, reads the end of its pipe and leaves."""
    context = get_context("spawn")
    idle: SimpleQueue[tuple[Connection, SpawnProcess]] = SimpleQueue()
    with ExitStack() as stack:
        for _ in range(workers):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, make), daemon=True)
            process.start()
            there.close()
            stack.callback(process.join)
            stack.callback(here.close)
            idle.put((here, process))
        yield idle


def _serve(connection: Connection, make: Callable[[], Callable[[Any], Any]]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    work: Callable[[Any], Any] | None = None
    while True:
        try:
            item = connection.recv()
            try:
                work = work or make()
                answer = attempt(work, item)
            except UserError as error:
                answer = error
            connection.send(answer)
        except (EOFError, ConnectionError):
            return
