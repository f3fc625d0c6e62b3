"""The memory that a training step gives back and that the next one asks for again."""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # of mallopt, as glibc's malloc.h numbers them
LARGEST = 2**25  # bytes; what glibc's own threshold of a mapping grows to
MAPPINGS = 2**16  # glibc's default
NEVER = -1
SETTINGS = {
    "GLIBC_TUNABLES",
    *(f"MALLOC_{name}_" for name in ("TRIM_THRESHOLD", "MMAP_THRESHOLD", "MMAP_MAX", "TOP_PAD")),
}


@contextmanager
def kept() -> Iterator[None]:
    """Let the C library keep what is freed inside, and give it back at the end.

    By itself glibc returns large blocks to the system at once, which clears every page before the next step has it: on a CPU
    a fifth of the time at 64 pixels (docs/log.md). Afterwards its thresholds are those they grow to by themselves, and stay there.
    Nothing is done where there is no glibc, or where the user has set one of these thresholds.
    """
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None
    own = not SETTINGS.isdisjoint(os.environ)
    if libc is None or own or not hasattr(libc, "gnu_get_libc_version"):
        yield
        return
    libc.mallopt(MMAP_MAX, 0)
    libc.mallopt(TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        for what, value in ((MMAP_MAX, MAPPINGS), (MMAP_THRESHOLD, LARGEST), (TRIM_THRESHOLD, 2 * LARGEST)):
            libc.mallopt(what, value)
        libc.malloc_trim(0)
