"""Contact sheets: many small pictures on one page, each with a line of text below it."""

import math
from collections.abc import Sequence

import numpy as np
from PIL import Image, ImageDraw, ImageFont

INK, PAPER, FAINT = (30, 30, 30), (255, 255, 255), (110, 110, 110)
CELL = 96  # a smaller picture is enlarged by a whole factor to about this many pixels, a larger one shrunk
GAP = 8
TEXT = 11


def contact_sheet(
    images: np.ndarray | Sequence[np.ndarray],
    captions: Sequence[str] | None = None,
    columns: int = 10,
    title: str | None = None,
    cell: int = CELL,
) -> Image.Image:
    """RGB pictures (uint8, each H×W×3, sizes may differ) row by row. A caption may have several lines; each is cut to fit."""
    assert captions is None or len(captions) == len(images)
    tiles = [_tile(np.asarray(image), cell) for image in images]
    columns = max(1, min(columns, len(tiles)))
    font, heading = ImageFont.load_default(TEXT), ImageFont.load_default(TEXT + 5)
    lines = max((caption.count("\n") + 1 for caption in captions), default=0) if captions else 0
    width = max((tile.width for tile in tiles), default=cell)
    height = max((tile.height for tile in tiles), default=cell)
    step = height + lines * (TEXT + 3) + GAP
    top = GAP + (TEXT + 5 + 2 * GAP if title else 0)
    size = (GAP + columns * (width + GAP), top + math.ceil(len(tiles) / columns) * step)
    sheet = Image.new(
        "RGB", size if not title else (max(size[0], GAP * 2 + int(heading.getlength(title))), size[1]), PAPER
    )
    draw = ImageDraw.Draw(sheet)
    if title:
        draw.text((GAP, GAP), title, INK, font=heading)
    for i, tile in enumerate(tiles):
        x, y = GAP + i % columns * (width + GAP), top + i // columns * step
        sheet.paste(tile, (x + (width - tile.width) // 2, y + height - tile.height))
        for j, line in enumerate(captions[i].split("\n") if captions else ()):
            draw.text((x, y + height + 2 + j * (TEXT + 3)), _cut(line, width, font), FAINT if j else INK, font=font)
    return sheet


def _tile(image: np.ndarray, cell: int) -> Image.Image:
    """Small pictures are enlarged without smoothing: what is seen is what the network gets."""
    picture = Image.fromarray(np.ascontiguousarray(image))
    side = max(picture.size)
    if side <= cell:
        factor = max(1, round(cell / side))
        return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
    scale = cell / side
    return picture.resize(
        (max(1, round(picture.width * scale)), max(1, round(picture.height * scale))), Image.Resampling.BICUBIC
    )


def _cut(line: str, width: int, font: ImageFont.FreeTypeFont | ImageFont.ImageFont) -> str:
    if font.getlength(line) <= width:
        return line
    while line and font.getlength(line + "…") > width:
        line = line[:-1]
    return line + "…"
