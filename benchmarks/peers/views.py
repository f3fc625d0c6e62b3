"""Weak and strong views of image batches, random per image, drawn by (seed, step, name).

Weak is crop and flip. Strong is weak, then RandAugment as FixMatch has it (two operations of its list in turn, each with a
chance of one half and a magnitude drawn anew from its range), then Cutout of half the side. The operations are those of
odst's AutoAugment, on whole batches. Borders and Cutout show the mean colour of T, where the originals reflect or fill with grey.
"""

import numpy as np
import torch

from odst.data.images import Images
from odst.method.labelling import as_input, as_tensor
from odst.seeds import key
from odst.vision.augmentation import augmenter, cutout
from odst.vision.networks import mean_level
from odst.vision.operations import NAMES, NOTHING, operate

# FixMatch, table 12: the range of each magnitude, in Pillow's units; a translation's in shares of the side
RANGES: dict[str, tuple[float, float]] = {
    "Identity": (0, 0),
    "AutoContrast": (0, 0),
    "Equalize": (0, 0),
    "Brightness": (0.05, 0.95),
    "Color": (0.05, 0.95),
    "Contrast": (0.05, 0.95),
    "Sharpness": (0.05, 0.95),
    "Posterize": (4, 9),  # cut off to whole bits: 4 to 8
    "Solarize": (0, 256),
    "Rotate": (-30, 30),
    "ShearX": (-0.3, 0.3),
    "ShearY": (-0.3, 0.3),
    "TranslateX": (-0.3, 0.3),
    "TranslateY": (-0.3, 0.3),
}


def rand_augment(x: torch.Tensor, fill: torch.Tensor, generator: torch.Generator, places: int = 2) -> torch.Tensor:
    """`x` is (n, H, W, 3) uint8, and so is the result."""
    code, magnitude = draw(len(x), x.shape[1], x.shape[2], generator, places)
    for place in range(places):
        x = operate(x, code[:, place], magnitude[:, place], fill)
    return x


def draw(n: int, height: int, width: int, generator: torch.Generator, places: int) -> tuple[torch.Tensor, torch.Tensor]:
    """For each image and place the code of an operation (or NOTHING) and its magnitude, (n, places)."""
    codes = torch.tensor([NAMES.index(name) if name in NAMES else NOTHING for name in RANGES])
    side = {"TranslateX": width, "TranslateY": height}
    low, high = (
        torch.tensor([bounds[end] * side.get(name, 1) for name, bounds in RANGES.items()], dtype=torch.float64)
        for end in (0, 1)
    )
    which = torch.randint(len(RANGES), (n, places), generator=generator)
    level = torch.rand(n, places, dtype=torch.float64, generator=generator)
    happens = torch.rand(n, places, generator=generator) < 0.5
    return torch.where(happens, codes[which], NOTHING), low[which] + level * (high - low)[which]


class Views:
    def __init__(self, T: Images, seed: int, cutout: int = 0):
        self.seed, self.fill = seed, torch.tensor(mean_level(T), dtype=torch.uint8)
        self.crop_and_flip = augmenter(["crop:4", "flip"], self.fill.tolist())
        self.of_labelled = augmenter(["crop:4", "flip", *([f"cutout:{cutout}"] if cutout else [])], self.fill.tolist())

    def weak(self, x: np.ndarray, step: int, name: str) -> torch.Tensor:
        """What the network is given of rows (n, H, W, 3); `name` tells the views of a step apart."""
        return as_input(as_tensor(x, "cpu"), lambda images: self.crop_and_flip(images, self._generator(step, name)))

    def labelled(self, x: np.ndarray, step: int, name: str = "labelled") -> torch.Tensor:
        return as_input(as_tensor(x, "cpu"), lambda images: self.of_labelled(images, self._generator(step, name)))

    def strong(self, x: np.ndarray, step: int, name: str) -> torch.Tensor:
        def augment(images: torch.Tensor) -> torch.Tensor:
            generator = self._generator(step, name)
            rows = self.crop_and_flip(images, generator).permute(0, 2, 3, 1).contiguous()
            rows = rand_augment(rows, self.fill, generator)
            return cutout(rows, self.fill, generator, min(rows.shape[1:3]) // 2).permute(0, 3, 1, 2)

        return as_input(as_tensor(x, "cpu"), augment)

    def _generator(self, step: int, name: str) -> torch.Generator:
        return torch.Generator().manual_seed(key(self.seed, "peer", name, step))
