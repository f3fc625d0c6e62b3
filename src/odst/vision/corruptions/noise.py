"""Gaussian, shot and impulse noise."""

import numpy as np

from odst.vision.corruptions.pixels import uint8, unit


def gaussian_noise(x: np.ndarray, deviation: float, rng: np.random.Generator) -> np.ndarray:
    return uint8(unit(x) + deviation * rng.standard_normal(x.shape, dtype=np.float32))


def shot_noise(x: np.ndarray, photons: float, rng: np.random.Generator) -> np.ndarray:
    return uint8(rng.poisson(unit(x) * photons) / photons)


def impulse_noise(x: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    u = rng.random(x.shape, dtype=np.float32)
    return np.where(u < share / 2, np.uint8(0), np.where(u < share, np.uint8(255), x))
