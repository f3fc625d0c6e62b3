"""Near duplicates made by hand, one function per kind, to measure what a search or a rule finds."""

import io

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

KINDS = ("noise", "blur", "shift", "jpeg", "brightness", "text")


def plant(image: np.ndarray, kind: str, rng: np.random.Generator) -> np.ndarray:
    """A near duplicate of a uint8 image (H, W, 3)."""
    picture = Image.fromarray(image)
    if kind == "noise":
        return np.clip(np.rint(image + rng.normal(0, 8, image.shape)), 0, 255).astype(np.uint8)
    if kind == "blur":
        return np.asarray(picture.filter(ImageFilter.GaussianBlur(0.7)))
    if kind == "shift":  # by one pixel, the border repeated
        rows, columns = [(0, 1), (1, 0), (0, -1), (-1, 0)][rng.integers(4)]
        padded = np.pad(image, ((1, 1), (1, 1), (0, 0)), mode="edge")
        return padded[1 + rows : padded.shape[0] - 1 + rows, 1 + columns : padded.shape[1] - 1 + columns].copy()
    if kind == "jpeg":
        file = io.BytesIO()
        picture.save(file, "JPEG", quality=70)
        return np.asarray(Image.open(file))
    if kind == "brightness":
        factor = rng.choice([0.85, 1.15])
        return np.clip(np.rint(image * factor), 0, 255).astype(np.uint8)
    assert kind == "text"
    draw = ImageDraw.Draw(picture)
    draw.text((2, image.shape[0] - 12), "(c)", fill=(255, 255, 255))
    return np.asarray(picture)


def planted(reference: np.ndarray, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`n` near duplicates of different references, the kinds in turn: images, reference ids, kinds."""
    ids = rng.choice(len(reference), n, replace=False)
    kinds = np.array([KINDS[i % len(KINDS)] for i in range(n)])
    return np.stack([plant(reference[j], kind, rng) for j, kind in zip(ids, kinds, strict=True)]), ids, kinds
