"""The rows of a .npy file, mapped when they are read. Only so many files are open at a time as the system lets a process have."""

import mmap
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np

from odst.errors import UserError

SHARE = 4  # of the files that a process may have open, one in so many is for rows
MOST = 512


class Mapped:
    """A file that is checked to be as long as it must be before its rows are touched: a process that reads mapped rows beyond
    the end of their file is killed without a word."""

    def __init__(self, file: Path, way: str):
        """`way` is what an error advises. The file may be gone, cut or something else: then that is said at once."""
        self.file, self.way = Path(file).absolute(), way
        try:
            array = np.lib.format.open_memmap(self.file, "r")
        except FileNotFoundError:
            raise UserError(f"{file}: this file is missing. {way}") from None
        except OSError:
            raise
        except Exception as error:  # numpy reads a damaged header as Python, and fails in as many ways
            raise UserError(f"{file}: this file is damaged ({error}). {way}") from None
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            raise UserError(f"{file}: this file is damaged (its rows lie column by column). {way}")
        self.shape, self.dtype, self.offset = array.shape, array.dtype, array.offset
        self.end = self.offset + array.nbytes
        there = self.file.stat()
        self.key = self.file, there.st_dev, there.st_ino  # another file may come to stand in its place

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        return np.array(self.array()[rows])

    def array(self) -> np.ndarray:
        """To be read at once, not to be kept: what lies there when it was kept for long is not checked any more."""
        with _turn:
            if self.key in _open:
                _open.move_to_end(self.key)
            else:
                while len(_open) >= _most():
                    _open.popitem(last=False)
                _open[self.key] = self._map()
            pages = _open[self.key]
        if pages.size() < self.end:
            raise UserError(f"{self.file}: this file has become shorter while it was in use. {self.way}")
        return np.ndarray(self.shape, self.dtype, pages, self.offset)

    def _map(self) -> mmap.mmap:
        try:
            with open(self.file, "rb") as file:
                return mmap.mmap(file.fileno(), self.end, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise UserError(f"{self.file}: this file has gone while it was in use. {self.way}") from None
        except ValueError:
            raise UserError(f"{self.file}: this file has become shorter while it was in use. {self.way}") from None


_open: OrderedDict[tuple[Path, int, int], mmap.mmap] = OrderedDict()  # the least recently read first
_turn = threading.Lock()


def _most() -> int:
    try:
        import resource

        return max(4, min(MOST, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // SHARE))
    except ImportError:
        return MOST
