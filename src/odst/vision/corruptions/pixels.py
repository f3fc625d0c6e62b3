"""Between bytes and shares: what all corruptions stand on."""

import numpy as np


def scale(x: np.ndarray) -> float:
    """Pixels of these images for one pixel at 32×32."""
    return min(x.shape[1:3]) / 32


def unit(x: np.ndarray) -> np.ndarray:
    return x.astype(np.float32) / np.float32(255)


def uint8(shares: np.ndarray) -> np.ndarray:
    """Cut to whole numbers as the published files are; the margin keeps float32 dust from turning 7 into 6."""
    return (np.clip(shares, 0, 1) * np.float32(255) + np.float32(1e-3)).astype(np.uint8)
