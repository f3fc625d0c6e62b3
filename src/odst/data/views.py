"""Images that lie otherwise than they are read: turned, or in several places. Nothing is copied before it is asked for."""

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
    """Several sets of images one after the other, none of them copied."""

    def __init__(self, parts: Sequence[Images]):
        if len({(tuple(part.shape[1:]), part.dtype) for part in parts}) != 1:
            kinds = ", ".join(f"{part.dtype} {tuple(part.shape[1:])}" for part in parts)
            raise UserError(f"joined sets must have images of one size, got {kinds}. Bring them to one size first.")
        self.parts = tuple(parts)
        self.ends = np.cumsum([len(part) for part in parts])

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
            rows = np.arange(*rows.indices(len(self)))
        rows = np.asarray(rows)
        if rows.dtype == bool:
            rows = np.flatnonzero(rows)
        flat = np.atleast_1d(np.where(rows < 0, rows + len(self), rows))
        out = np.empty((len(flat), *self.shape[1:]), self.dtype)
        places = np.searchsorted(self.ends, flat, side="right")
        for place in np.unique(places):
            here = places == place
            out[here] = self.parts[place][flat[here] - (self.ends[place] - len(self.parts[place]))]
        return out if rows.ndim else out[0]
