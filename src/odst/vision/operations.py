"""AutoAugment's 14 operations on whole batches, equal to Pillow's level by level.

A batch is (n, H, W, 3) uint8; row i gets its own operation at its own magnitude. Five operations move pixels (one
affine map per image, nearest neighbour), seven are a table of 256 levels per image and channel, two mix pixels.
"""

from collections.abc import Callable

import torch

GEOMETRY: dict[str, Callable[[torch.Tensor, int, int], list[torch.Tensor | float]]] = {
    # (a, b, c, d, e, f): the output pixel (x, y) shows the input at (ax + by + c, dx + ey + f)
    "ShearX": lambda m, height, width: [1, m, 0, 0, 1, 0],
    "ShearY": lambda m, height, width: [1, 0, 0, m, 1, 0],
    "TranslateX": lambda m, height, width: [1, 0, m, 0, 1, 0],
    "TranslateY": lambda m, height, width: [1, 0, 0, 0, 1, m],
    "Rotate": lambda m, height, width: _rotation(m, height, width),
}

TABLES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    # (images, magnitudes) -> what becomes of each level, (n, 256, 3) or, for all channels alike, (n, 256, 1)
    "Invert": lambda x, m: (255 - _levels(x)).expand(len(x), 256, 1),
    "Solarize": lambda x, m: torch.where(_levels(x) < _column(m), _levels(x), 255 - _levels(x)),
    "Posterize": lambda x, m: _levels(x) & ~(2 ** (8 - _column(m.long())) - 1),
    "Brightness": lambda x, m: _blend(torch.zeros_like(_levels(x)), _levels(x), _column(m)),
    "Contrast": lambda x, m: _blend(_column(_mean_grey(x)), _levels(x), _column(m)),
    "AutoContrast": lambda x, m: _autocontrast(x),
    "Equalize": lambda x, m: _equalize(x),
}

PIXELS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "Color": lambda x, m: _blend(_grey(x).unsqueeze(3), x, m.view(-1, 1, 1, 1)),
    "Sharpness": lambda x, m: _blend(_smooth(x), x, m.view(-1, 1, 1, 1)),
}

NAMES = [*GEOMETRY, *TABLES, *PIXELS]
NOTHING = len(NAMES)  # the code of a row that stays as it is


def operate(x: torch.Tensor, code: torch.Tensor, magnitude: torch.Tensor, fill: torch.Tensor) -> torch.Tensor:
    """Row i of `x` after operation NAMES[code[i]] at magnitude[i], in Pillow's units: shear per pixel, pixels, degrees
    against the clock, threshold, bits, enhancement factor.

    `code` (n,) int64 and `magnitude` (n,) float64 are on the CPU; `fill` (3,) uint8 is shown where no input pixel is.
    """
    order = torch.argsort(code, stable=True)
    counts = torch.bincount(code, minlength=NOTHING + 1).tolist()
    parts = list(x.index_select(0, order.to(x.device)).split(counts))
    values = list(magnitude[order].to(x.device).split(counts))
    height, width = x.shape[1:3]

    moving, mapping = len(GEOMETRY), len(GEOMETRY) + len(TABLES)
    maps = [_matrix(make(m, height, width), m) for make, m in zip(GEOMETRY.values(), values, strict=False)]
    moved = move(torch.cat(parts[:moving]), torch.cat(maps), fill)
    tables = [
        make(part, m).to(torch.uint8).expand(len(part), 256, 3)
        for make, part, m in zip(TABLES.values(), parts[moving:mapping], values[moving:mapping], strict=True)
        if len(part)
    ]
    looked_up = torch.cat(parts[moving:mapping])
    if tables:
        looked_up = look_up(looked_up, torch.cat(tables))
    mixed = [
        make(part, m)
        for make, part, m in zip(PIXELS.values(), parts[mapping:NOTHING], values[mapping:NOTHING], strict=True)
    ]
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order))
    return torch.cat([moved, looked_up, *mixed, parts[NOTHING]]).index_select(0, back.to(x.device))


def move(x: torch.Tensor, matrix: torch.Tensor, fill: torch.Tensor) -> torch.Tensor:
    """Pillow's nearest-neighbour affine transform, in its 16.16 fixed-point arithmetic. `matrix` is (n, 6) float64."""
    height, width = x.shape[1:3]
    a, b, c, d, e, f = matrix.view(-1, 6, 1, 1).unbind(1)

    def fixed(v: torch.Tensor) -> torch.Tensor:
        return torch.floor(v * 65536 + 0.5).int()

    column = torch.arange(width, dtype=torch.int32, device=x.device)
    row = torch.arange(height, dtype=torch.int32, device=x.device).view(-1, 1)
    source_column = (fixed(c + a * 0.5 + b * 0.5) + row * fixed(b) + column * fixed(a)) >> 16  # (n, H, W)
    source_row = (fixed(f + d * 0.5 + e * 0.5) + row * fixed(e) + column * fixed(d)) >> 16
    return fetch(x, source_row, source_column, fill)


def fetch(x: torch.Tensor, row: torch.Tensor, column: torch.Tensor, fill: torch.Tensor) -> torch.Tensor:
    """Each output pixel shows the input pixel at its `row` and `column` (broadcast to (n, H, W)), outside it `fill`."""
    n, height, width, channels = x.shape
    first = torch.arange(n, device=x.device).view(-1, 1, 1) * (height * width)
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
    index = torch.where(inside, first + row * width + column, n * height * width)  # one past the end is the fill
    pixels = torch.cat([x.reshape(-1, channels), fill.view(1, channels)])
    return pixels.index_select(0, index.expand(n, height, width).reshape(-1)).view(x.shape)


def look_up(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """Level v of channel c in image i becomes table[i, v, c]."""
    n, height, width, channels = x.shape
    return table.gather(1, x.view(n, height * width, channels).long()).view(x.shape)


def _matrix(entries: list[torch.Tensor | float], like: torch.Tensor) -> torch.Tensor:
    return torch.stack([v if isinstance(v, torch.Tensor) else torch.full_like(like, v) for v in entries], dim=1)


def _rotation(degrees: torch.Tensor, height: int, width: int) -> list[torch.Tensor | float]:
    """About the centre; sine and cosine are rounded to 15 digits as Pillow does, so that right angles are exact."""
    angle = -torch.deg2rad(degrees)
    cos, sin = angle.cos().round(decimals=15), angle.sin().round(decimals=15)
    x, y = width / 2, height / 2
    return [cos, sin, (cos * -x + sin * -y) + x, -sin, cos, (-sin * -x + cos * -y) + y]


def _levels(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(256, device=x.device).view(1, 256, 1)


def _column(values: torch.Tensor) -> torch.Tensor:
    return values.view(-1, 1, 1)


def _blend(a: torch.Tensor, b: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """From `a` (factor 0) to `b` (factor 1) and beyond, in float32, cut off to whole levels."""
    start = a.float()
    return (start + factor.float() * (b.float() - start)).clamp_(0, 255).to(torch.uint8)


def _grey(x: torch.Tensor) -> torch.Tensor:
    """The luma of ITU-R 601 in Pillow's fixed-point arithmetic, (n, H, W)."""
    r, g, b = x.int().unbind(3)
    return (r * 19595 + g * 38470 + b * 7471 + 0x8000) >> 16


def _mean_grey(x: torch.Tensor) -> torch.Tensor:
    return (_grey(x).flatten(1).sum(1).double() / (x.shape[1] * x.shape[2]) + 0.5).floor()


def _autocontrast(x: torch.Tensor) -> torch.Tensor:
    """The darkest level of a channel becomes 0, the brightest 255; a channel of one level stays."""
    pixels = x.flatten(1, 2)
    low, high = pixels.amin(1, keepdim=True).double(), pixels.amax(1, keepdim=True).double()  # (n, 1, 3)
    scale = torch.full_like(low, 255) / (high - low)  # a plain 255 / tensor multiplies by a rounded reciprocal
    stretched = (_levels(x) * scale + -low * scale).clamp(0, 255)
    return torch.where(high > low, stretched, _levels(x).double())


def _equalize(x: torch.Tensor) -> torch.Tensor:
    """The cumulated histogram of each channel, in whole steps; a channel whose step would be 0 stays."""
    n = len(x)
    level = x.view(n, -1, 3).long()
    histogram = torch.zeros(n, 256, 3, dtype=torch.int64, device=x.device)
    histogram.scatter_add_(1, level, torch.ones((), dtype=torch.int64, device=x.device).expand(level.shape))
    brightest = histogram.gather(1, level.amax(1, keepdim=True))
    step = (histogram.sum(1, keepdim=True) - brightest) // 255
    before = histogram.cumsum(1) - histogram
    mapped = ((step // 2 + before) // step.clamp(min=1)).clamp(max=255)
    return torch.where(step > 0, mapped, _levels(x))


def _smooth(x: torch.Tensor) -> torch.Tensor:
    """Pillow's SMOOTH: the 3×3 neighbours with weight 1, the centre with 5, over 13, rounded; the border stays."""
    wide = x.to(torch.int16)
    rows = wide[:, :-2] + wide[:, 1:-1] + wide[:, 2:]
    total = rows[:, :, :-2] + rows[:, :, 1:-1] + rows[:, :, 2:] + 4 * wide[:, 1:-1, 1:-1]
    smooth = x.clone()
    smooth[:, 1:-1, 1:-1] = torch.floor(total.float() / 13 + 0.5).to(torch.uint8)
    return smooth
