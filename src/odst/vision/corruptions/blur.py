"""Defocus, glass, motion and zoom blur."""

from functools import lru_cache

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from scipy.sparse import csr_array, kron
from torch.nn import functional as F

from odst.vision.corruptions.pixels import scale, uint8, unit


def defocus_blur(x: np.ndarray, c: tuple[float, float], rng: np.random.Generator) -> np.ndarray:
    kernel = torch.from_numpy(_disk(c[0], c[1], scale(x))).float().expand(3, 1, -1, -1)
    reach = kernel.shape[-1] // 2
    planes = F.pad(torch.from_numpy(unit(x)).permute(0, 3, 1, 2), (reach,) * 4, mode="reflect")
    form = torch.channels_last  # measured: an order of magnitude faster on one channel a group
    blurred = F.conv2d(planes.contiguous(memory_format=form), kernel.contiguous(memory_format=form), groups=3)
    return uint8(blurred.permute(0, 2, 3, 1).numpy())


def _disk(radius: float, softness: float, s: float) -> np.ndarray:
    """A disk of ones, its rim softened by a Gaussian of a pixel's reach, with sum 1."""
    reach, rim = int(radius * s), max(1, round(s))
    axis = np.arange(-reach - rim, reach + rim + 1)
    disk = (axis**2 + axis[:, None] ** 2 <= (radius * s) ** 2) * 1.0
    weights = np.exp(-(np.arange(-rim, rim + 1) ** 2) / (2 * (softness * s) ** 2))
    for _ in range(2):
        disk = np.apply_along_axis(np.convolve, 0, disk, weights, mode="same").T
    return disk / disk.sum()


def glass_blur(x: np.ndarray, c: tuple[float, int, int], rng: np.random.Generator) -> np.ndarray:
    """Each pixel takes the colour of one up and left of it: what the published generator's exchange amounts to."""
    n, H, W, _ = x.shape
    s = scale(x)
    reach = max(1, round(c[1] * s))
    x = uint8(_smooth(unit(x), c[0] * s))
    rows, columns = np.arange(reach + 1, H)[:, None], np.arange(reach + 1, W)
    for _ in range(c[2]):
        down, right = rng.integers(-reach, reach, size=(2, n, len(rows), len(columns)))
        moved = x[np.arange(n)[:, None, None], np.minimum(rows + down, H - 1), np.minimum(columns + right, W - 1)]
        x[:, reach + 1 :, reach + 1 :] = moved
    return uint8(_smooth(unit(x), c[0] * s))


def _smooth(u: np.ndarray, sigma: float) -> np.ndarray:
    return gaussian_filter(u, (0, sigma, sigma, 0), mode="nearest")


def motion_blur(x: np.ndarray, c: tuple[float, float], rng: np.random.Generator) -> np.ndarray:
    blurred = smear(x.astype(np.float32), c[0] * scale(x), c[1] * scale(x), rng.uniform(-45, 45, len(x)))
    return uint8(np.rint(blurred) / np.float32(255))


def smear(x: np.ndarray, radius: float, sigma: float, degrees: np.ndarray) -> np.ndarray:
    """ImageMagick's motion blur: half a Gaussian along whole-pixel steps in one direction, edges continued."""
    n, H, W, _ = x.shape
    steps = np.arange(2 * int(np.ceil(radius)) + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    weights /= weights.sum()
    steps = steps[weights > 1e-4]  # the others together stay far below a grey level
    angle = np.deg2rad(degrees)[:, None]
    down, right = (np.ceil(steps * towards - 0.5).astype(np.int64) for towards in (np.sin(angle), np.cos(angle)))
    pixels = x.reshape(n * H * W, -1)
    out = np.zeros_like(pixels)
    for step in steps:
        rows = (np.arange(H) + down[:, step, None]).clip(0, H - 1)  # (n, H)
        columns = (np.arange(W) + right[:, step, None]).clip(0, W - 1)  # (n, W)
        places = ((np.arange(n)[:, None] * H + rows) * W)[:, :, None] + columns[:, None, :]  # flat: three times faster
        out += np.float32(weights[step]) * pixels.take(places.reshape(-1), axis=0)
    return out.reshape(x.shape)


def zoom_blur(x: np.ndarray, end: float, rng: np.random.Generator) -> np.ndarray:
    u = unit(x)
    factors = tuple(np.arange(1, end, 0.01))
    return uint8((u + zoom(u, factors)) / (len(factors) + 1))


def zoom(u: np.ndarray, factors: tuple[float, ...]) -> np.ndarray:
    """The sum over factors of the middle of the image, enlarged linearly to the size of the image."""
    n, H, W, channels = u.shape
    pixels = u.reshape(n, H * W, channels).transpose(1, 0, 2).reshape(H * W, -1)
    zoomed = _zoom_operator(H, W, factors) @ pixels
    return zoomed.reshape(H * W, n, channels).transpose(1, 0, 2).reshape(u.shape)


@lru_cache(maxsize=2)
def _zoom_operator(H: int, W: int, factors: tuple[float, ...]) -> csr_array:
    """(HW, HW): one sparse product does all factors at once."""
    return csr_array(sum(kron(_zoom_axis(H, factor), _zoom_axis(W, factor), format="csr") for factor in factors))


def _zoom_axis(side: int, factor: float) -> csr_array:
    crop = int(np.ceil(side / factor))
    full = round(crop * factor)
    places = np.arange(full) * (crop - 1) / (full - 1)  # first and last pixel stay first and last
    places = places[(full - side) // 2 :][:side] + (side - crop) // 2
    low = np.minimum(places.astype(np.int64), side - 2)
    rows, high_share = np.arange(side), (places - low).astype(np.float32)
    entries = np.concatenate([1 - high_share, high_share])
    return csr_array((entries, (np.tile(rows, 2), np.concatenate([low, low + 1]))), shape=(side, side))
