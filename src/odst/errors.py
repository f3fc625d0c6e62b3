"""What can go wrong by a user's hand."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager


class UserError(ValueError):
    """One line that names the thing, the value and the way out. The command line prints it and exits with 2."""


def one_line(error: BaseException) -> str:
    """What another library says of a fault, short enough for a line of ours."""
    return " ".join(str(error).split())[:200] or type(error).__name__


@contextmanager
def refused(what: str, kind: str, advice: str) -> Iterator[None]:
    """Around what others read for us: of a damaged file their code raises anything, and a user gets one line of it."""
    try:
        yield
    except UserError:
        raise
    except MemoryError:
        raise UserError(f"{what}: not {kind}, or it says that it is larger than memory. {advice}") from None
    except Exception as error:
        raise UserError(f"{what}: not {kind} ({one_line(error)}). {advice}") from None


def is_out_of_memory(error: BaseException) -> bool:
    """PyTorch says so with another type or text on each device; only the words are common."""
    words = (
        "out of memory", "can't allocate memory", "ALLOC_FAILED", "not enough memory", "cannot allocate memory",
        "could not create a primitive",  # oneDNN's, whose memory descriptors are the first to find none
        "can't start new thread", "failed to map segment",  # of a library that is being imported
    )  # fmt: skip
    if isinstance(error, OSError):
        return error.errno == errno.ENOMEM
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError | ImportError) and any(word.lower() in str(error).lower() for word in words)
    )
