"""Snow, frost, fog and brightness."""

from functools import lru_cache

import numpy as np
from scipy.ndimage import gaussian_filter

from odst.seeds import stream
from odst.vision.corruptions.blur import smear, zoom
from odst.vision.corruptions.pixels import scale, uint8, unit


def snow(x: np.ndarray, c: tuple[float, ...], rng: np.random.Generator) -> np.ndarray:
    mean, deviation, size, cut, radius, sigma, weight = c
    s = scale(x)
    flakes = (mean + deviation * rng.standard_normal((*x.shape[:3], 1))).astype(np.float32)
    flakes = zoom(flakes, (max(1, size * s),))
    flakes = uint8(np.where(flakes < cut, 0, flakes))
    fall = smear(flakes.astype(np.float32), radius * s, sigma * s, rng.uniform(-135, -45, len(x)))
    fall = np.rint(fall) / np.float32(255)
    u = unit(x)
    grey = u @ np.array([[0.299], [0.587], [0.114]], np.float32)
    pale = weight * u + (1 - weight) * np.maximum(u, grey * 1.5 + 0.5)
    return uint8(pale + fall + fall[:, ::-1, ::-1])


def frost(x: np.ndarray, c: tuple[float, float], rng: np.random.Generator) -> np.ndarray:
    texture = frost_texture(max(1, round(scale(x))))
    n, H, W, _ = x.shape
    top, left = rng.integers(len(texture), size=(2, n))
    rows, columns = (top[:, None] + np.arange(H)) % len(texture), (left[:, None] + np.arange(W)) % len(texture)
    return uint8(c[0] * unit(x) + c[1] * texture[rows[:, :, None], columns[:, None, :]])


@lru_cache(maxsize=2)
def frost_texture(s: int) -> np.ndarray:
    """Ice ferns on a cloudy pane, (side, side, 3) in [0, 1], seamless. It stands in for the published photographs."""
    rng = stream(0, "frost texture")  # one texture for all, as the photographs are
    side, fine = 256 * s, 3  # drawn three times finer than needed, so that twigs have smooth edges
    ice = np.zeros((side * fine, side * fine), np.float32)
    for _ in range(220):
        length, heading, shine = rng.uniform(12, 60), rng.uniform(0, 2 * np.pi), rng.uniform(0.5, 1)
        stem = np.arange(0, length, 0.2)[:, None]
        twig = np.arange(0, 0.4 * length, 0.2)
        grown = (twig < 0.4 * (length - stem)) & ((stem % 3 < 0.2) | (twig == 0))
        y, x = rng.uniform(0, 256, 2)
        for turn in np.deg2rad([-60, 60]):  # ice grows at 60°
            rows = y + stem * np.sin(heading) + twig * np.sin(heading + turn)
            columns = x + stem * np.cos(heading) + twig * np.cos(heading + turn)
            place = [(p[grown] * s * fine).astype(np.int64) % len(ice) for p in (rows, columns)]
            np.maximum.at(ice, tuple(place), shine * (1 - 0.6 * np.broadcast_to(stem / length, grown.shape)[grown]))
    ice = gaussian_filter(ice, 0.4 * s * fine, mode="wrap").reshape(side, fine, side, fine).mean(axis=(1, 3))
    pane = 0.12 + 0.35 * plasma(1, side, 1.6, rng)[0] + 1.4 * ice
    return np.clip(pane[..., None] * np.array([0.9, 0.97, 1.05], np.float32), 0, 1).astype(np.float32)


def fog(x: np.ndarray, c: tuple[float, float], rng: np.random.Generator) -> np.ndarray:
    thickness, decay = c
    n, H, W, _ = x.shape
    u = unit(x)
    cloud = plasma(n, 1 << (max(H, W) - 1).bit_length(), decay, rng)[:, :H, :W, None]
    brightest = u.max(axis=(1, 2, 3), keepdims=True)
    return uint8((u + thickness * cloud) * brightest / (brightest + thickness))


def plasma(n: int, side: int, decay: float, rng: np.random.Generator) -> np.ndarray:
    """n seamless height maps by diamonds and squares, each from 0 to 1; side is a power of two."""

    def wobbling(mean: np.ndarray) -> np.ndarray:
        return mean + spread**2 * rng.uniform(-1, 1, mean.shape)

    heights = np.zeros((n, side, side))
    step, spread = side, 100.0
    while step >= 2:
        half = step // 2
        corners = heights[:, ::step, ::step]
        pairs = corners + np.roll(corners, -1, 1)
        middles = wobbling((pairs + np.roll(pairs, -1, 2)) / 4)
        across = middles + np.roll(middles, 1, 1) + corners + np.roll(corners, -1, 2)
        upright = middles + np.roll(middles, 1, 2) + corners + np.roll(corners, -1, 1)
        heights[:, half::step, half::step] = middles
        heights[:, ::step, half::step] = wobbling(across / 4)
        heights[:, half::step, ::step] = wobbling(upright / 4)
        step, spread = half, spread / decay
    heights -= heights.min(axis=(1, 2), keepdims=True)
    return (heights / heights.max(axis=(1, 2), keepdims=True)).astype(np.float32)


def brightness(x: np.ndarray, more: float, rng: np.random.Generator) -> np.ndarray:
    """With hue and saturation fixed, a new value V scales red, green and blue alike; black becomes grey."""
    u = unit(x)
    value = u.max(axis=3, keepdims=True)
    brighter = np.minimum(value + more, 1)
    return uint8(np.where(value > 0, u * (brighter / np.where(value > 0, value, 1)), brighter))
