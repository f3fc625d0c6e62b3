"""How many processors this process may use, and how many threads a piece of work takes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager


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
