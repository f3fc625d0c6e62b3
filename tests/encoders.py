"""Pictures for backbones, and the one line that a fault is."""

import numpy as np
import pytest
from PIL import Image

from odst.seeds import stream


def noise(n: int, size: int) -> np.ndarray:
    """Pictures from dark to bright, smooth and rough."""
    rng = stream(0, "pictures")
    coarse = rng.integers(0, 256, size=(n, 8, 8, 3), dtype=np.uint8)
    smooth = np.stack(
        [np.asarray(Image.fromarray(one).resize((size, size), Image.Resampling.BICUBIC)) for one in coarse]
    )
    rough = rng.integers(-20, 21, size=smooth.shape)
    return np.clip(smooth * np.linspace(0.3, 1, n)[:, None, None, None] + rough, 0, 255).astype(np.uint8)


def one_line(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text and len(text) < 500
    return text
