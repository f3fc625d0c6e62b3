"""What can go wrong by a user's hand."""


class UserError(ValueError):
    """One line that names the thing, the value and the way out. The command line prints it and exits with 2."""


def is_out_of_memory(error: BaseException) -> bool:
    """PyTorch says so with another type or text on each device; only the words are common."""
    words = ("out of memory", "can't allocate memory", "ALLOC_FAILED")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and any(word in str(error) for word in words)
    )
