"""Images that lie otherwise than they are read: turned, or in several places. Nothing is copied before it is asked for."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from odst.data.images import Images
from odst.errors import UserError


class ColumnMajor:
    """Rows of bytes as MATLAB lays an image down (channel, column, row), turned upright when read."""

    def __init__(self, raw: np.ndarray, side: int = 32):
        self.raw, self.side = raw, side  # (m, 3 * side * side) uint8

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.raw), self.side, self.side, 3)

    @property
    def dtype(self) -> np.dtype:
        return self.raw.dtype

    def __len__(self) -> int:
        return len(self.raw)

    def __getitem__(self, rows: Any) -> np.ndarray:
        raw = np.asarray(self.raw[rows])
        planes = raw.reshape(*raw.shape[:-1], 3, self.side, self.side)
        out = np.empty((*raw.shape[:-1], self.side, self.side, 3), raw.dtype)
        for channel in range(3):  # four times as fast as copying the whole with its axes swapped
            out[..., channel] = planes[..., channel, :, :].swapaxes(-1, -2)
        return out


class Joined:
    """Several sets of images one after the other, as if in one place. What is read is a copy, the caller's own."""

    def __init__(self, parts: Sequence[Images]):
        if len({(tuple(part.shape[1:]), part.dtype) for part in parts}) != 1:
            kinds = ", ".join(f"{part.dtype} {tuple(part.shape[1:])}" for part in parts)
            raise UserError(f"joined sets must have images of one size, got {kinds}. Bring them to one size first.")
        self.parts = tuple(parts)
        lengths = np.array([len(part) for part in parts], np.int64)
        self.ends = np.cumsum(lengths)
        self.starts = self.ends - lengths
        self.opaque = [
            _opaque(part) if isinstance(part, np.ndarray) and part.flags.c_contiguous else None for part in parts
        ]

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self), *self.parts[0].shape[1:])

    @property
    def dtype(self) -> np.dtype:
        return self.parts[0].dtype

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, rows: Any) -> np.ndarray:
        if isinstance(rows, slice):
            start, stop, step = rows.indices(len(self))
            if step == 1:
                return self._slice(start, stop)
            rows = np.arange(start, stop, step)
        rows = np.asarray(rows)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        flat = np.atleast_1d(np.where(rows < 0, rows + len(self), rows))
        if len(flat) and not 0 <= flat.min() <= flat.max() < len(self):
            raise IndexError(f"rows {flat.min()} to {flat.max()} of {len(self)}")
        out = np.empty((len(flat), *self.shape[1:]), self.dtype)
        items = _opaque(out)
        places = np.searchsorted(self.ends, flat, side="right")
        order = np.argsort(places, kind="stable")
        present, counts = np.unique(places, return_counts=True)
        for place, n, end in zip(present.tolist(), counts, np.cumsum(counts), strict=True):
            here = order[end - n : end]
            items[here] = self._take(place, flat[here] - self.starts[place])
        return out if rows.ndim else out[0]

    def _take(self, place: int, rows: np.ndarray) -> np.ndarray:
        opaque = self.opaque[place]
        return _opaque(np.ascontiguousarray(self.parts[place][rows])) if opaque is None else opaque[rows]

    def _slice(self, start: int, stop: int) -> np.ndarray:
        out = np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
        for part, first, end in zip(self.parts, self.starts.tolist(), self.ends.tolist(), strict=True):
            low, high = max(start, first), min(stop, end)
            if low < high:
                out[low - start : high - start] = part[low - first : high - first]
        return out


def _opaque(x: np.ndarray) -> np.ndarray:
    """Each row as one item that numpy knows only the length of: it copies it whole, twice as fast as its pixels."""
    width = math.prod(x.shape[1:])
    return x.reshape(len(x), width).view(f"V{width * x.itemsize}")[:, 0]
