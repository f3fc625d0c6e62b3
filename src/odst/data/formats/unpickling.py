"""Old data sets come as pickles. Arrays, numbers, texts and containers are rebuilt from one; nothing is executed.

Nor is numpy's own code for pickles: the state of a dtype may claim that plain bytes are pointers to objects, and numpy
believes it. Stand-ins take what the pickle says of types and arrays, and real arrays are made of it here, from plain types.
"""

import pickle
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import IO, Any, ClassVar

import numpy as np

from odst.errors import UserError, one_line

KINDS = "biufSU"  # of a plain array: no objects, no records, no raw memory
DEEPEST = 50  # containers inside each other


class _Type:
    """np.dtype's stand-in: a type such as u1 or <f4."""

    def __init__(self, code: Any, *_: Any):
        self.type = np.dtype(code if isinstance(code, str) else _latin(code))
        _check(self.type)

    def __setstate__(self, state: Any) -> None:
        order = state[1] if isinstance(state, tuple) and len(state) > 1 else None
        order = _latin(order) if isinstance(order, bytes) else order
        if order in ("<", ">"):  # all that a plain type does not say by its code
            self.type = np.dtype(f"{order}{self.type.str[1:]}")


class _Array:
    """A stand-in for an array that its state is still to fill."""

    def __init__(self, *_: Any):
        self.array: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, raw = state if len(state) == 5 else (0, *state)
        shape = tuple(int(side) for side in shape)
        raw = _bytes(raw)
        if not isinstance(kind, _Type) or min(shape, default=0) < 0 or prod(shape) * kind.type.itemsize != len(raw):
            raise pickle.UnpicklingError("an array does not have the bytes that its shape asks for")
        rows = np.frombuffer(raw, kind.type).reshape(shape, order="F" if fortran else "C")
        self.array = rows.copy(order="K")  # that may be written to, as others are


def _scalar(kind: Any, raw: Any) -> Any:
    if not isinstance(kind, _Type) or len(raw := _bytes(raw)) != kind.type.itemsize:
        raise pickle.UnpicklingError("a number does not have the bytes of its type")
    return np.frombuffer(raw, kind.type)[0]


def _encode(text: str, encoding: str) -> bytes:
    """What Python 3 writes for bytes in an old protocol; any other codec than this one could do work."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"codec {encoding}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "ndarray"): _Array,  # only ever named to _reconstruct, which passes it over
    ("numpy", "dtype"): _Type,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy._core.multiarray", "scalar"): _scalar,
    ("_codecs", "encode"): _encode,
}


class _ArraysOnly(pickle._Unpickler):  # the one in C takes all memory for one large number in a memo
    stack: list[Any]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = dict(pickle._Unpickler.dispatch)

    def load_build(self) -> None:
        state = self.stack.pop()
        if not isinstance(self.stack[-1], _Type | _Array):
            raise pickle.UnpicklingError(f"it gives a state to a {type(self.stack[-1]).__name__}")
        self.stack[-1].__setstate__(state)

    dispatch[pickle.BUILD[0]] = load_build

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}") from None


def load_arrays(file: IO[bytes], path: Path) -> Any:
    """The content of a pickle, Python 2 texts included; `path` is for the message when it is refused or damaged."""
    try:
        return _filled(_ArraysOnly(file, encoding="latin1").load(), DEEPEST)
    except Exception as error:  # a hostile or cut pickle can raise anything, and ask for any amount of memory
        raise UserError(
            f"{path}: not a pickle of arrays that odst would read ({one_line(error)}). It is damaged or not what its name "
            "says; fetch it again, or save the images as .npy."
        ) from None


def _filled(value: Any, deepest: int) -> Any:
    """With arrays in place of their stand-ins."""
    if deepest == 0:
        raise pickle.UnpicklingError("it holds itself, or containers too deep")
    if isinstance(value, dict):
        return {key: _filled(one, deepest - 1) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_filled(one, deepest - 1) for one in value)
    if isinstance(value, _Array):
        if value.array is None:
            raise pickle.UnpicklingError("an array was never filled")
        return value.array
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | np.generic):
        return value
    raise pickle.UnpicklingError(f"it holds a {type(value).__name__}")


def _check(kind: np.dtype) -> None:
    if kind.kind not in KINDS or kind.itemsize == 0 or kind.names is not None or kind.subdtype is not None:
        raise pickle.UnpicklingError(f"arrays of {kind}")


def _bytes(raw: Any) -> bytes:
    return raw.encode("latin1") if isinstance(raw, str) else bytes(memoryview(raw))


def _latin(text: Any) -> str:
    return bytes(memoryview(text)).decode("latin1")
