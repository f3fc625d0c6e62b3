"""How many processors this process may use, how many threads a piece of work takes, and work on several at a time."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from typing import TypeVar

A = TypeVar("A")
B = TypeVar("B")


def processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many for torch's operators, and as many as before afterwards."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def in_order(several: Executor, work: Callable[[A], B], items: Iterable[A], ahead: int) -> Iterator[B]:
    """What comes of each item, in their order; so many are worked on, or done and waiting, at a time."""
    waiting: deque[Future[B]] = deque()
    try:
        for item in items:
            waiting.append(several.submit(work, item))
            if len(waiting) > ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
