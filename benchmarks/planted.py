"""Near duplicates made by hand, one per kind, to measure what a search or a rule finds.

    ODST_TEST_DATA=... python -m benchmarks.planted WEIGHTS.npz

prints the table of docs/leak_guard.md: 200 planted images of each kind among 20,000 unrelated ones.
"""

import io
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from PIL import Image, ImageDraw, ImageFilter

from odst.data.images import Pool
from odst.data.reading import read_set
from odst.duplicates import Guard, Rule, audit
from odst.vision.perceptual import read_lpips_weights

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


def main() -> None:
    folder = Path(os.environ["ODST_TEST_DATA"])
    reference = read_set(folder / "cifar10_test.parquet", 32).x
    unrelated = read_set(folder / "cifar100_train.parquet", 32).x[:20_000]
    copies, _, kinds = planted(reference, 1200, np.random.default_rng(0))
    pool = Pool(np.concatenate([unrelated, copies]))
    weights = read_lpips_weights(sys.argv[1])
    guards = {
        "the paper's rule, LPIPS on [0,1]": Guard({"test": reference}, Rule(), weights),
        "LPIPS on [-1,1]": Guard({"test": reference}, Rule(lpips_input="signed"), weights),
        "SSIM alone": Guard({"test": reference}, Rule(ssim_alone=True)),
        "L2 < 3.0 alone": Guard({"test": reference}),
        "L2 < 2000/255 alone": Guard({"test": reference}, Rule(l2=2000 / 255)),
    }
    print(
        "| rule | "
        + " | ".join(KINDS)
        + " | recall | unrelated that leave | precision |\n|"
        + "---|" * (len(KINDS) + 4)
    )
    for name, guard in guards.items():
        with tempfile.TemporaryDirectory() as out:
            audit(pool, guard, Path(out))
            gone = np.unique(pq.read_table(Path(out) / "excluded.parquet", columns=["pool_id"])["pool_id"].to_numpy())
        found, wrong = gone[gone >= len(unrelated)] - len(unrelated), int((gone < len(unrelated)).sum())
        cells = [f"{(kinds[found] == kind).sum() / (kinds == kind).sum():.1%}" for kind in KINDS]
        cells += [f"{len(found) / len(copies):.1%}", f"{wrong:,}", f"{len(found) / max(1, len(gone)):.1%}"]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
