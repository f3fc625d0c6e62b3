"""Images that lie otherwise than they are read: turned, or in several places. Nothing is copied before it is asked for."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from odst.data.images import Images
from odst.data.mapped import Mapped
from odst.errors import UserError

AT_ONCE = 1 << 17  # bytes: what is copied twice stays in the cache


class ColumnMajor:
    """Rows of bytes as MATLAB lays an image down (channel, column, row), turned upright when read."""

    def __init__(self, raw: np.ndarray, side: int = 32):
        self.raw, self.side = raw, side  # (m, 3 * side * side) uint8
        self.shape, self.dtype = (len(raw), side, side, 3), raw.dtype

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, rows: Any) -> np.ndarray:
        raw = np.asarray(self.raw[rows])
        planes = raw.reshape(*raw.shape[:-1], 3, self.side, self.side)
        out = np.empty((*raw.shape[:-1], self.side, self.side, 3), raw.dtype)
        for channel in range(3):  # four times as fast as copying the whole with its axes swapped
            out[..., channel] = planes[..., channel, :, :].swapaxes(-1, -2)
        return out


class Concatenated:
    """Several sets of images one after the other, as if in one place. What is read is a copy, the caller's own."""

    def __init__(self, parts: Sequence[Images], reopen: Callable[[], Images] | None = None):
        self.reopen = reopen  # how another process opens the same rows: pickled by value they would all travel
        if len({(tuple(part.shape[1:]), part.dtype) for part in parts}) != 1:
            kinds = ", ".join(f"{part.dtype} {tuple(part.shape[1:])}" for part in parts)
            raise UserError(
                f"sets that are read as one have images of one size, got {kinds}. Bring them to one size first."
            )
        self.parts = tuple(parts)
        lengths = np.array([len(part) for part in parts], np.int64)
        self.ends = np.cumsum(lengths)
        self.starts = (self.ends - lengths).tolist()
        self.shape = (int(lengths.sum()), *parts[0].shape[1:])
        self.dtype = parts[0].dtype
        self.width = math.prod(self.shape[1:]) * self.dtype.itemsize  # bytes of a row

    def __reduce__(self) -> tuple[Any, ...]:
        return (Concatenated, (self.parts,)) if self.reopen is None else (self.reopen, ())

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                out = np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
                for part, k in zip(self.parts, self.starts, strict=True):
                    low, high = max(start, k), min(stop, k + len(part))
                    if low < high:
                        out[low - start : high - start] = opened(part)[low - k : high - k]
                return out
            rows = np.arange(start, stop, step)
        rows = np.asarray(rows)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        return self._gather(rows) if rows.ndim else self._gather(rows[None])[0]

    def _gather(self, rows: np.ndarray) -> np.ndarray:
        """Part by part, a few rows at a time: what is read is still in the cache when it goes to its place."""
        order = np.argsort(rows)
        ranked, n = rows[order], len(self)
        if len(rows) and not -n <= ranked[0] <= ranked[-1] < n:
            raise IndexError(f"rows {ranked[0]} to {ranked[-1]} of {n}")
        if len(rows) and ranked[0] < 0:
            return self._gather(np.where(rows < 0, rows + n, rows))
        out = np.empty((len(rows), *self.shape[1:]), self.dtype)
        out_items, few = _items(out, self.width), max(1, AT_ONCE // self.width)
        high = 0
        ends = np.searchsorted(ranked, self.ends).tolist()
        for part, start, end in zip(self.parts, self.starts, ends, strict=True):
            if high == end:
                continue
            rows_ = opened(part)
            items = _items(rows_, self.width)
            source, target = (rows_, out) if items is None else (items, out_items)
            while high < end:
                low, high = high, min(high + few, end)
                target[order[low:high]] = source[ranked[low:high] - start]
        return out


def opened(part: Images) -> Images:
    """The part, to be read now; rows of a file are checked to be there."""
    return part.array() if isinstance(part, Mapped) else part


def _items(rows: Images, width: int) -> Any:
    """An array whose rows lie one after the other, each seen as one item that numpy copies whole; None for other images."""
    if isinstance(rows, np.ndarray) and rows.flags.c_contiguous and len(rows):
        return rows.reshape(-1).view(f"V{width}")
    return None


def opener(x: Images) -> Callable[[], Images]:
    """What gives another process the same rows. A mapped file travels by its name."""
    if isinstance(x, ColumnMajor) and isinstance(x.raw, np.memmap):
        return partial(_column_major, _place(x.raw), x.side)
    return partial(_mapped, *_place(x)) if isinstance(x, np.memmap) and x.filename else partial(_itself, x)


def _place(x: np.memmap) -> tuple[Any, ...]:
    base = x
    while isinstance(base.base, np.memmap):
        base = base.base
    offset = base.offset + x.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return str(x.filename), x.dtype, x.shape, offset


def _mapped(file: str, dtype: np.dtype, shape: tuple[int, ...], offset: int) -> np.ndarray:
    return np.memmap(file, dtype, "r", offset, shape)


def _column_major(place: tuple[Any, ...], side: int) -> ColumnMajor:
    return ColumnMajor(_mapped(*place), side)


def _itself(x: Images) -> Images:
    return x
