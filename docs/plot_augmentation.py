"""Draw docs/img/augmentation.png: every AutoAugment operation over its magnitudes, then crop, flip and Cutout.

python docs/plot_augmentation.py
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from PIL import Image
from skimage.data import astronaut  # a NASA photograph, in the public domain

from odst.vision.augmentation import augmenter
from odst.vision.autoaugment import magnitude
from odst.vision.operations import NAMES, operate

SIDE = 96
FILL = (125, 123, 114)
SHOWN = [(9, -1), (5, -1), (2, -1), (2, 1), (5, 1), (9, 1)]  # levels and signs, from one end to the other
SIGNED = ["ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate", "Brightness", "Contrast", "Color", "Sharpness"]
PLAIN = ["Invert", "AutoContrast", "Equalize"]
UNITS = {"Shear": "{:+.2f}", "Trans": "{:+.0f} px", "Rotat": "{:+.0f}°", "Solar": "≥ {:.0f}", "Poste": "{:.0f} bits"}


def main() -> None:
    photograph = Image.fromarray(astronaut()[0:240, 100:340]).resize((SIDE, SIDE), Image.Resampling.LANCZOS)
    picture = torch.from_numpy(np.asarray(photograph).copy())
    rows = [(name, *shown(name, picture)) for name in [*SIGNED, "Solarize", "Posterize"]]
    rows.append(("no magnitude", *zip(*[(name, one(name, picture, 0)) for name in PLAIN], strict=True)))
    for names in (["crop:12"], ["flip"], ["cutout:48"], ["autoaugment:cifar10"]):
        augment = augmenter(names, FILL)
        batch = picture.permute(2, 0, 1).expand(len(SHOWN), -1, -1, -1)
        out = augment(batch, torch.Generator().manual_seed(1)).permute(0, 2, 3, 1)
        rows.append((names[0], [""] * len(SHOWN), list(out)))

    figure, axes = plt.subplots(len(rows), len(SHOWN) + 1, figsize=(8.4, 1.18 * len(rows)), layout="constrained")
    for line, (name, titles, images) in zip(axes, rows, strict=True):
        for axis in line:
            axis.axis("off")
        line[0].text(0.98, 0.5, name, ha="right", va="center", fontsize=9, transform=line[0].transAxes)
        for axis, title, image in zip(line[1:], titles, images, strict=False):
            axis.imshow(image.numpy())
            axis.set_title(title, fontsize=7, pad=2)
    out = Path(__file__).parent / "img" / "augmentation.png"
    out.parent.mkdir(exist_ok=True)
    figure.savefig(out, dpi=75)
    drawn = Image.open(out).convert("RGB")
    palette = drawn.quantize(256)
    drawn.quantize(palette=palette, dither=Image.Dither.FLOYDSTEINBERG).save(out, optimize=True)


def one(name: str, picture: torch.Tensor, value: float) -> torch.Tensor:
    code, fill = torch.tensor([NAMES.index(name)]), torch.tensor(FILL, dtype=torch.uint8)
    return operate(picture.unsqueeze(0), code, torch.tensor([value], dtype=torch.float64), fill)[0]


def shown(name: str, picture: torch.Tensor) -> tuple[list[str], list[torch.Tensor]]:
    unit = UNITS.get(name[:5], "× {:.1f}")
    signed = name in SIGNED
    levels = SHOWN if signed else [(level, 1) for level in (0, 2, 4, 6, 8, 9)]
    values = [magnitude(name, level, sign, SIDE, SIDE) for level, sign in levels]
    return [unit.format(value) for value in values], [one(name, picture, value) for value in values]


if __name__ == "__main__":
    main()
