"""What can go wrong by a user's hand."""

import errno


class UserError(ValueError):
    """One line that names the thing, the value and the way out. The command line prints it and exits with 2."""


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
