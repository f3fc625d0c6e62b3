"""Old data sets come as pickles. Arrays, numbers, texts and containers are rebuilt from one; nothing is executed."""

import pickle
from pathlib import Path
from typing import IO, Any

import numpy as np

from odst.errors import UserError

_reconstruct = np.empty(0).__reduce__()[0]  # asked of numpy itself, whose private modules move between versions
_scalar = np.int64(0).__reduce__()[0]


def _encode(text: str, encoding: str) -> bytes:
    """What Python 3 writes for bytes in an old protocol; any other codec than this one could do work."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"codec {encoding}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("_codecs", "encode"): _encode,
}


class _ArraysOnly(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def load_arrays(file: IO[bytes], path: Path) -> Any:
    """The content of a pickle, Python 2 texts included; `path` is for the message when it is refused or damaged."""
    try:
        return _ArraysOnly(file, encoding="latin1").load()
    except MemoryError:
        raise
    except Exception as error:  # a hostile or cut pickle can raise anything
        raise UserError(
            f"{path}: not a pickle of arrays that odst would read ({error}). It is damaged or not what its name says; "
            "fetch it again, or save the images as .npy."
        ) from None
