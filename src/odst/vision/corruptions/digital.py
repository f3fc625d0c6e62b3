"""Contrast, elastic transform, pixelation and JPEG."""

from io import BytesIO

import numpy as np
import torch
from PIL import Image
from scipy.ndimage import gaussian_filter
from torch.nn import functional as F

from odst.vision.corruptions.pixels import uint8, unit


def contrast(x: np.ndarray, factor: float, rng: np.random.Generator) -> np.ndarray:
    u = unit(x)
    mean = u.mean(axis=(1, 2), keepdims=True)
    return uint8((u - mean) * factor + mean)


def elastic_transform(x: np.ndarray, c: tuple[float, float, float], rng: np.random.Generator) -> np.ndarray:
    n, H, W, _ = x.shape
    strength, smoothness, jitter = (share * min(H, W) for share in c)
    middle, reach = np.array([W // 2, H // 2]), min(H, W) // 3
    corners = middle + reach * np.array([[1, 1], [1, -1], [-1, -1]])
    moved = corners + rng.uniform(-jitter, jitter, (n, 3, 2))
    # the affine map that takes `moved` back to `corners`: where in the image each pixel of the result lies
    back = np.linalg.solve(np.concatenate([moved, np.ones((n, 3, 1))], axis=2), corners[None])  # (n, 3, 2)
    columns, rows = np.meshgrid(np.arange(W), np.arange(H))
    grid = np.stack([columns, rows, np.ones_like(rows)], axis=-1)  # (H, W, 3)
    warped = _sample(unit(x), np.einsum("hwi,nij->nhwj", grid, back), about_centres=True)
    if strength > 0:
        noise = rng.uniform(-1, 1, (n, H, W, 2))
        shift = strength * gaussian_filter(noise, (0, smoothness, smoothness, 0), mode="reflect", truncate=3)
        warped = _sample(warped, grid[..., :2] + shift, about_centres=False)
    return uint8(warped)


def _sample(x: np.ndarray, places: np.ndarray, about_centres: bool) -> np.ndarray:
    """x at (column, row) places (n, H, W, 2), linearly; beyond the rim mirrored about pixel centres, or about edges."""
    size = np.array([x.shape[2], x.shape[1]])
    grid = 2 * places / np.maximum(size - 1, 1) - 1 if about_centres else (2 * places + 1) / size - 1
    planes = torch.from_numpy(x).permute(0, 3, 1, 2)
    out = F.grid_sample(
        planes, torch.from_numpy(grid.astype(np.float32)), padding_mode="reflection", align_corners=about_centres
    )
    return out.permute(0, 2, 3, 1).numpy()


def pixelate(x: np.ndarray, share: float, rng: np.random.Generator) -> np.ndarray:
    H, W = x.shape[1:3]
    small = (max(1, int(W * share)), max(1, int(H * share)))
    box = Image.Resampling.BOX
    return np.stack([np.asarray(Image.fromarray(one).resize(small, box).resize((W, H), box)) for one in x])


def jpeg_compression(x: np.ndarray, quality: int, rng: np.random.Generator) -> np.ndarray:
    out = np.empty_like(x)
    for j, one in enumerate(x):
        file = BytesIO()
        Image.fromarray(one).save(file, "JPEG", quality=quality)
        out[j] = np.asarray(Image.open(file))
    return out
