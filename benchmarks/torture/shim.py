"""In the process that is tried: count what it does to files, and strike at the n-th time."""

import builtins
import errno
import io
import os
import signal
from collections.abc import Callable
from typing import Any

CHANGES = (
    "fsync",
    "replace",
    "rename",
    "link",
    "symlink",
    "unlink",
    "remove",
    "mkdir",
    "rmdir",
    "truncate",
    "ftruncate",
)
TAKES_SPACE = ("fsync", "mkdir", "link", "symlink", "open")  # what a full disk refuses; what gives space back works


class Shim:
    """`kind` is count, kill (at operation n) or full (from operation n on); with n = 0 it only counts."""

    def __init__(self, kind: str, n: int = 0):
        self.kind, self.n, self.count, self.owner = kind, n, 0, os.getpid()

    def strike(self, name: str, path: Any) -> None:
        if os.getpid() != self.owner or (isinstance(path, str) and path.startswith("/dev/")):
            return
        if self.kind == "full":
            if name in TAKES_SPACE:
                self.count += 1
                if self.n and self.count >= self.n:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            return
        self.count += 1
        if self.count == self.n and self.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)

    def install(self) -> "Shim":
        for name in CHANGES:
            setattr(os, name, self._around(name, getattr(os, name)))
        opened, low = io.open, os.open

        def open_(file: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
            if set(mode) & set("wax+"):
                self.strike("open", file)
            return opened(file, mode, *more, **options)

        def low_open(path: Any, flags: int, *more: Any, **options: Any) -> int:
            if flags & os.O_CREAT:
                self.strike("open", path)
            return low(path, flags, *more, **options)

        builtins.open, io.open, os.open = open_, open_, low_open  # type: ignore[assignment]
        return self

    def _around(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def struck(*arguments: Any, **options: Any) -> Any:
            self.strike(name, arguments[0] if arguments else "")
            return function(*arguments, **options)

        return struck
