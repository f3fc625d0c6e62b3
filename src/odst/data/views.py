"""Images that lie otherwise than they are read: turned, or in several places. Nothing is copied before it is asked for."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

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
        arrays = [part for part in parts if isinstance(part, np.ndarray) and part.flags.c_contiguous and len(part)]
        self.everywhere = Everywhere(arrays, self.starts) if len(arrays) == len(parts) else None

    def __reduce__(self) -> tuple[Any, ...]:
        return Joined, (self.parts,)

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
        places = np.searchsorted(self.ends, flat, side="right")
        if self.everywhere is not None:
            out = self.everywhere.take(flat, places)
        else:
            out = np.empty((len(flat), *self.shape[1:]), self.dtype)
            for place in np.unique(places):
                here = places == place
                out[here] = self.parts[place][flat[here] - self.starts[place]]
        return out if rows.ndim else out[0]

    def _slice(self, start: int, stop: int) -> np.ndarray:
        out = np.empty((max(0, stop - start), *self.shape[1:]), self.dtype)
        for part, first, end in zip(self.parts, self.starts.tolist(), self.ends.tolist(), strict=True):
            low, high = max(start, first), min(stop, end)
            if low < high:
                out[low - start : high - start] = part[low - first : high - first]
        return out


class Everywhere:
    """Rows of several arrays in one gather, wherever in memory each array lies.

    An array of overlapping items, one a byte from the lowest of them on, each as long as a row: an index is then an address,
    and numpy copies whole rows. Only where a row begins may be read, so callers check their rows first.
    """

    def __init__(self, parts: Sequence[np.ndarray], starts: np.ndarray):
        self.dtype, self.row = parts[0].dtype, parts[0].shape[1:]
        self.width = math.prod(self.row) * self.dtype.itemsize
        addresses = np.array([part.__array_interface__["data"][0] for part in parts], np.int64)
        lowest = int(addresses.argmin())
        reach = int(max(a + part.nbytes for a, part in zip(addresses.tolist(), parts, strict=True)) - addresses[lowest])
        first = parts[lowest][:1].reshape(-1).view(f"V{self.width}")
        self.items = as_strided(first, shape=(reach - self.width + 1,), strides=(1,), writeable=False)
        self.shift = addresses - addresses[lowest] - starts * self.width

    def take(self, rows: np.ndarray, places: np.ndarray) -> np.ndarray:
        """Copies of `rows`, each of which lies in the part `places` says."""
        taken = self.items[rows * self.width + self.shift[places]]
        return taken.view(self.dtype).reshape(len(rows), *self.row)
