"""The 15 common corruptions of Hendrycks & Dietterich at 5 levels, on batches of uint8 images.

The parameters are those of CIFAR-10-C, for 32×32; lengths in pixels grow with the shorter side of the image. Like the
published files, results are cut (not rounded) to whole numbers. docs/corruptions.md says where we differ: frost.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from odst.errors import UserError
from odst.seeds import stream
from odst.vision.corruptions import blur, digital, noise, weather

LEVELS = (1, 2, 3, 4, 5)

# Per corruption its function and one parameter per level.
_TABLE: dict[str, tuple[Callable[..., np.ndarray], tuple]] = {
    "gaussian_noise": (noise.gaussian_noise, (0.04, 0.06, 0.08, 0.09, 0.10)),  # standard deviation
    "shot_noise": (noise.shot_noise, (500, 250, 100, 75, 50)),  # photons of a white pixel
    "impulse_noise": (noise.impulse_noise, (0.01, 0.02, 0.03, 0.05, 0.07)),  # share of values
    # radius, softness of the rim
    "defocus_blur": (blur.defocus_blur, ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1))),
    # sigma, reach, passes
    "glass_blur": (blur.glass_blur, ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))),
    "motion_blur": (blur.motion_blur, ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5))),  # radius, sigma
    "zoom_blur": (blur.zoom_blur, (1.06, 1.11, 1.16, 1.21, 1.26)),  # end of the zoom, in steps of 0.01
    "snow": (
        weather.snow,  # mean and deviation of the flakes, their size, cut-off, radius and sigma of the fall, image's weight
        (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
    ),
    # weights of image and frost
    "frost": (weather.frost, ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45))),
    "fog": (weather.fog, ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75))),  # thickness, decay of the fractal
    "brightness": (weather.brightness, (0.05, 0.1, 0.15, 0.2, 0.3)),  # added to the value of HSV
    "contrast": (digital.contrast, (0.75, 0.5, 0.4, 0.3, 0.15)),  # factor
    "elastic_transform": (
        digital.elastic_transform,  # strength, smoothness, affine jitter, as shares of the side
        ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    ),
    "pixelate": (digital.pixelate, (0.95, 0.9, 0.85, 0.75, 0.65)),  # share of the side
    "jpeg_compression": (digital.jpeg_compression, (80, 65, 58, 50, 40)),  # quality
}
CORRUPTIONS = tuple(_TABLE)

_PIXELS = 2**18  # per random stream, 256 images of 32×32: part of what a seed means, so streaming changes nothing


def parameters(name: str) -> tuple:
    """What the five levels of a corruption are made with."""
    if name not in _TABLE:
        raise UserError(f"corruption: there is no {name!r}. Choose one of {', '.join(CORRUPTIONS)}.")
    return _TABLE[name][1]


def corrupt(images: np.ndarray, name: str, level: int, seed: int) -> np.ndarray:
    """The corrupted copies of uint8 images (n, H, W, 3); the same seed gives the same bytes."""
    return np.concatenate([np.empty((0, *images.shape[1:]), np.uint8), *corrupted_blocks(images, name, level, seed)])


def corrupted_blocks(images: Any, name: str, level: int, seed: int) -> Iterator[np.ndarray]:
    """`corrupt`, a few hundred images at a time: they may lie on disk, so long as a slice of them is an array."""
    values = parameters(name)
    if level not in LEVELS:
        raise UserError(f"corruption level: {level} is not one of 1, 2, 3, 4, 5.")
    if len(images.shape) != 4 or images.shape[3] != 3 or images.dtype != np.uint8:
        raise UserError(
            f"corruptions change pictures (uint8, n×height×width×3), got {images.dtype} {tuple(images.shape)}. "
            "Compute features from corrupted pictures instead."
        )
    at_once = max(1, _PIXELS // (images.shape[1] * images.shape[2]))
    for start in range(0, len(images), at_once):
        block = np.ascontiguousarray(images[start : start + at_once])
        yield _TABLE[name][0](block, values[level - 1], stream(seed, "corrupt", name, level, start))
