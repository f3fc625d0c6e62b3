"""AutoAugment's 14 operations on whole batches, equal to Pillow's level by level.

A batch is (n, H, W, 3) uint8; row i gets its own operation at its own magnitude. Five operations move pixels (one
affine map per image, nearest neighbour), four are a table of 256 levels per image and channel, five work on pixels.
Rows are sorted by operation, so that each kind is a handful of tensor operations on one slice.
"""

from collections.abc import Callable

import torch

GEOMETRY = ["ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"]

TABLES: dict[str, Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]] = {
    # (images, their index into flat tables, magnitudes) -> what becomes of each level, (n, 3 or 1, 256)
    "Brightness": lambda x, index, m: _blend(torch.zeros((), device=x.device), _levels(x).float(), m.view(-1, 1, 1)),
    "Contrast": lambda x, index, m: _blend(_mean_grey(x).view(-1, 1, 1), _levels(x).float(), m.view(-1, 1, 1)),
    "AutoContrast": lambda x, index, m: _autocontrast(x),
    "Equalize": lambda x, index, m: _equalize(x, index),
}

PIXELS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    # (images, magnitudes) -> images
    "Invert": lambda x, m: 255 - x,
    "Solarize": lambda x, m: _solarize(x, m.ceil().view(-1, 1, 1, 1)),
    "Posterize": lambda x, m: x & (256 - 2 ** (8 - m.long())).to(torch.uint8).view(-1, 1, 1, 1),
    "Color": lambda x, m: _color(x, m.view(-1, 1, 1, 1)),
    "Sharpness": lambda x, m: _sharpness(x, m.view(-1, 1, 1, 1)),
}

NAMES = [*GEOMETRY, *TABLES, *PIXELS]
NOTHING = len(NAMES)  # the code of a row that stays as it is


def operate(x: torch.Tensor, code: torch.Tensor, magnitude: torch.Tensor, fill: torch.Tensor) -> torch.Tensor:
    """Row i of `x` after operation NAMES[code[i]] at magnitude[i], in Pillow's units: shear per pixel, pixels, degrees
    against the clock, threshold, bits, enhancement factor.

    `code` (n,) int64 and `magnitude` (n,) float64 are on the CPU; `fill` (3,) uint8 is shown where no input pixel is.
    """
    order = torch.argsort(code, stable=True)
    code, magnitude = code[order], magnitude[order]
    counts = torch.bincount(code, minlength=NOTHING + 1).tolist()
    moving, mapped = sum(counts[: len(GEOMETRY)]), sum(counts[len(GEOMETRY) : NOTHING - len(PIXELS)])
    x = x.index_select(0, order.to(x.device))

    done = []
    if moving:
        matrix = affine(code[:moving], magnitude[:moving], x.shape[1], x.shape[2])
        done.append(move(x[:moving], matrix.to(x.device), fill))
    if mapped:
        rows = slice(moving, moving + mapped)
        done.append(_through_tables(x[rows], counts[len(GEOMETRY) :], magnitude[rows].to(x.device)))
    start = moving + mapped
    for change, count in zip(PIXELS.values(), counts[NOTHING - len(PIXELS) : NOTHING], strict=True):
        if count:
            rows = slice(start, start + count)
            done.append(change(x[rows], magnitude[rows].to(x.device)))
            start += count

    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    return torch.cat([*done, x[start:]]).index_select(0, place.to(x.device))


def affine(code: torch.Tensor, magnitude: torch.Tensor, height: int, width: int) -> torch.Tensor:
    """(n, 6) float64: a row (a, b, c, d, e, f) shows at (x, y) the input at (ax + by + c, dx + ey + f)."""
    shear_x, shear_y, right, down, degrees = (magnitude * (code == kind) for kind in range(len(GEOMETRY)))
    # a rotation is about the centre; Pillow rounds sine and cosine to 15 digits
    angle = -torch.deg2rad(degrees)
    cos, sin = angle.cos().round(decimals=15), angle.sin().round(decimals=15)
    x, y = width / 2, height / 2
    c, f = (cos * -x + sin * -y) + x, (-sin * -x + cos * -y) + y
    return torch.stack([cos, sin + shear_x, c + right, shear_y - sin, cos, f + down], dim=1)


def move(x: torch.Tensor, matrix: torch.Tensor, fill: torch.Tensor) -> torch.Tensor:
    """Pillow's nearest-neighbour affine transform, in its 16.16 fixed-point arithmetic."""
    a, b, c, d, e, f = matrix.view(-1, 6, 1, 1).unbind(1)

    def fixed(v: torch.Tensor) -> torch.Tensor:
        return torch.floor(v * 65536 + 0.5).int()

    row = torch.arange(x.shape[1], dtype=torch.int32, device=x.device).view(-1, 1)
    column = torch.arange(x.shape[2], dtype=torch.int32, device=x.device)
    from_column = (fixed(c + a * 0.5 + b * 0.5) + row * fixed(b)) + column * fixed(a)  # (n, H, W)
    from_row = (fixed(f + d * 0.5 + e * 0.5) + row * fixed(e)) + column * fixed(d)
    return fetch(x, from_row.bitwise_right_shift_(16), from_column.bitwise_right_shift_(16), fill)


def fetch(x: torch.Tensor, row: torch.Tensor, column: torch.Tensor, fill: torch.Tensor) -> torch.Tensor:
    """Each output pixel shows the input pixel at its `row` and `column` (int32, overwritten), outside it `fill`.

    Broadcast together they are (n, H, W). A frame of fill one pixel wide takes all that points outside.
    """
    n, height, width, channels = x.shape
    framed = fill.repeat(width + 2).repeat(n, height + 2, 1)
    framed[:, 1:-1, channels:-channels] = x.view(n, height, width * channels)
    first = (
        torch.arange(n, dtype=torch.int32, device=x.device).view(-1, 1, 1) * ((height + 2) * (width + 2)) + width + 3
    )
    start = row.clamp_(-1, height).mul_(width + 2).add_(first)
    index = column.clamp_(-1, width) + start
    return framed.view(-1, channels).index_select(0, index.view(-1)).view(x.shape)


def _through_tables(x: torch.Tensor, counts: list[int], magnitude: torch.Tensor) -> torch.Tensor:
    """The rows of `x` are sorted: counts[0] for the first of TABLES, and so on."""
    n = len(x)
    channel = (256 * torch.arange(3, device=x.device)).repeat(x.shape[1] * x.shape[2])
    index = x.view(n, -1).long().add_(channel)  # level v of channel c is entry 256 c + v
    tables = torch.empty(n, 3, 256, dtype=torch.uint8, device=x.device)
    start = 0
    for make, count in zip(TABLES.values(), counts, strict=False):
        if count:
            rows = slice(start, start + count)
            tables[rows] = make(x[rows], index[rows], magnitude[rows])
            start += count
    return tables.view(n, 768).gather(1, index).view(x.shape)


def _levels(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(256, device=x.device).view(1, 1, 256)


def _blend(a: torch.Tensor, b: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """From `a` (factor 0) to `b` (factor 1) and beyond, in float32 and cut off to whole levels, as Pillow does."""
    return (b - a).mul(factor.float()).add_(a).clamp_(0, 255).int().to(torch.uint8)  # by way of int: twice as fast


def _grey(x: torch.Tensor) -> torch.Tensor:
    """The luma of ITU-R 601, (n, H, W) float32. Pillow's 16-bit fixed point stays below 2^24: float32 has it exactly."""
    r, g, b = x.float().unbind(3)
    return r.mul(19595).add_(g, alpha=38470).add_(b, alpha=7471).add_(0x8000).mul_(2**-16).floor_()


def _mean_grey(x: torch.Tensor) -> torch.Tensor:
    return _grey(x).double().mean((1, 2)).add_(0.5).floor_().float()


def _solarize(x: torch.Tensor, threshold: torch.Tensor) -> torch.Tensor:
    """Levels at and above the threshold are inverted; at 256, which is no uint8, none."""
    bright = (x >= threshold.to(torch.uint8)) & (threshold < 256)
    return x ^ -bright.to(torch.uint8)


def _color(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    return _blend(_grey(x).unsqueeze(3).expand(x.shape).contiguous(), x.float(), factor)


def _sharpness(x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Away from Pillow's SMOOTH, which is the 3×3 neighbours with weight 1 and the centre with 5, over 13, rounded.

    Its border stays as it is. A sum over 13 is never close to a half: float32 rounds as Pillow does.
    """
    wide = x.to(torch.int16)
    centre = wide[:, 1:-1, 1:-1]
    rows = (wide[:, :-2] + wide[:, 1:-1]).add_(wide[:, 2:])
    total = (rows[:, :, :-2] + rows[:, :, 1:-1]).add_(rows[:, :, 2:]).add_(centre, alpha=4)
    smooth = total.float().mul_(1 / 13).add_(0.5).floor_()
    out = x.clone()
    out[:, 1:-1, 1:-1] = _blend(smooth, centre.float(), factor)
    return out


def _autocontrast(x: torch.Tensor) -> torch.Tensor:
    """The darkest level of a channel becomes 0, the brightest 255; a channel of one level stays."""
    planes = x.flatten(1, 2).transpose(1, 2).contiguous()  # (n, 3, HW), for the sake of speed
    low, high = planes.amin(2, keepdim=True).double(), planes.amax(2, keepdim=True).double()
    scale = torch.full_like(low, 255) / (high - low)  # a plain 255 / tensor multiplies by a rounded reciprocal
    stretched = (_levels(x) * scale).add_(-low * scale).clamp_(0, 255)
    return torch.where(high > low, stretched, _levels(x))


def _equalize(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """The cumulated histogram of each channel, in whole steps; a channel whose step would be 0 stays.

    Whole numbers below 2^31 divide in float64 with the right floor.
    """
    n, pixels = len(x), x.shape[1] * x.shape[2]
    one = torch.ones((), dtype=torch.int32, device=x.device)
    histogram = torch.zeros(n, 768, dtype=torch.int32, device=x.device).scatter_add_(1, index, one.expand(index.shape))
    histogram = histogram.view(n, 3, 256)
    before = histogram.cumsum(2, dtype=torch.float64).sub_(histogram)
    below_brightest = (before * (before < pixels)).amax(
        2, keepdim=True
    )  # `before` reaches `pixels` above the brightest
    step = (below_brightest / 255).floor_()
    level = (before + (step / 2).floor_()).div_(step.clamp(min=1)).floor_().clamp_(max=255)
    return torch.where(step > 0, level, _levels(x))
