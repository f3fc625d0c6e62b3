"""Many small pictures in few files: sprite sheets as data URIs."""

import base64
import io
from collections.abc import Sequence

import numpy as np
from PIL import Image, features

from odst.data.images import Images

LARGEST = 48  # pixels of a tile's longer side; larger images are shrunk
COLUMNS = 24
Kind = tuple[str, dict[str, int]]  # a format of Pillow's, and how to write it
# Drawings and digits are smaller without loss, photographs with; the first sheet decides for all.
WEBP: tuple[Kind, ...] = (("WEBP", {"quality": 80, "method": 3}), ("WEBP", {"lossless": 1, "quality": 20, "method": 2}))
KINDS: tuple[Kind, ...] = WEBP if features.check("webp") else (("JPEG", {"quality": 85}),)


class Album:
    """The sheets of one page. A tile is known by its sheet's number and its place there."""

    def __init__(self, shape: tuple[int, ...], largest: int = LARGEST):
        height, width = shape[:2]
        scale = min(1.0, largest / max(height, width))
        self.size = max(1, round(width * scale)), max(1, round(height * scale))  # width, height of a tile
        self.sheets: list[str] = []  # data URIs
        self.tiles = 0
        self.kind: Kind | None = None

    def add(self, x: Images, ids: Sequence[int]) -> int:
        """One more sheet with these rows of x in this order, COLUMNS a line; returns its number."""
        self.sheets.append(self._encode(x, np.asarray(ids, np.int64)))
        self.tiles += len(ids)
        return len(self.sheets) - 1

    def bytes_per_tile(self, x: Images, ids: Sequence[int]) -> float:
        """How much of a page these rows would take, per tile: a sample says how many tiles fit."""
        return len(self._encode(x, np.asarray(ids, np.int64))) / max(1, len(ids))

    def _encode(self, x: Images, ids: np.ndarray) -> str:
        width, height = self.size
        columns, lines = min(COLUMNS, max(1, len(ids))), max(1, -(-len(ids) // COLUMNS))
        sheet = Image.new("RGB", (columns * width, lines * height))
        for place, row in enumerate(x[ids] if len(ids) else []):
            tile = Image.fromarray(row)
            if tile.size != self.size:
                tile = tile.resize(self.size, Image.Resampling.BOX)
            sheet.paste(tile, (place % COLUMNS * width, place // COLUMNS * height))
        if self.kind is None:
            self.kind = min(KINDS, key=lambda kind: len(_saved(sheet, kind)))
        return f"data:image/{self.kind[0].lower()};base64,{base64.b64encode(_saved(sheet, self.kind)).decode()}"


def _saved(sheet: Image.Image, kind: Kind) -> bytes:
    file = io.BytesIO()
    sheet.save(file, kind[0], **kind[1])
    return file.getvalue()
