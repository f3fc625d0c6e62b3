"""AutoAugment (Cubuk et al. 2019): the published policies, drawn per image and applied to whole batches.

A policy is 25 sub-policies of two operations, each (name, probability, level). A level 0..9 is one of ten even steps
over the operation's range (table 6 of the paper); shears, translations, rotations and enhancements take a random sign.
"""

import torch

from odst.vision.operations import NAMES, NOTHING, operate

Step = tuple[str, float, int | None]

CIFAR10: tuple[tuple[Step, Step], ...] = (
    (("Invert", 0.1, None), ("Contrast", 0.2, 6)),
    (("Rotate", 0.7, 2), ("TranslateX", 0.3, 9)),
    (("Sharpness", 0.8, 1), ("Sharpness", 0.9, 3)),
    (("ShearY", 0.5, 8), ("TranslateY", 0.7, 9)),
    (("AutoContrast", 0.5, None), ("Equalize", 0.9, None)),
    (("ShearY", 0.2, 7), ("Posterize", 0.3, 7)),
    (("Color", 0.4, 3), ("Brightness", 0.6, 7)),
    (("Sharpness", 0.3, 9), ("Brightness", 0.7, 9)),
    (("Equalize", 0.6, None), ("Equalize", 0.5, None)),
    (("Contrast", 0.6, 7), ("Sharpness", 0.6, 5)),
    (("Color", 0.7, 7), ("TranslateX", 0.5, 8)),
    (("Equalize", 0.3, None), ("AutoContrast", 0.4, None)),
    (("TranslateY", 0.4, 3), ("Sharpness", 0.2, 6)),
    (("Brightness", 0.9, 6), ("Color", 0.2, 8)),
    (("Solarize", 0.5, 2), ("Invert", 0.0, None)),
    (("Equalize", 0.2, None), ("AutoContrast", 0.6, None)),
    (("Equalize", 0.2, None), ("Equalize", 0.6, None)),
    (("Color", 0.9, 9), ("Equalize", 0.6, None)),
    (("AutoContrast", 0.8, None), ("Solarize", 0.2, 8)),
    (("Brightness", 0.1, 3), ("Color", 0.7, 0)),
    (("Solarize", 0.4, 5), ("AutoContrast", 0.9, None)),
    (("TranslateY", 0.9, 9), ("TranslateY", 0.7, 9)),
    (("AutoContrast", 0.9, None), ("Solarize", 0.8, 3)),
    (("Equalize", 0.8, None), ("Invert", 0.1, None)),
    (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, None)),
)

SVHN: tuple[tuple[Step, Step], ...] = (
    (("ShearX", 0.9, 4), ("Invert", 0.2, None)),
    (("ShearY", 0.9, 8), ("Invert", 0.7, None)),
    (("Equalize", 0.6, None), ("Solarize", 0.6, 6)),
    (("Invert", 0.9, None), ("Equalize", 0.6, None)),
    (("Equalize", 0.6, None), ("Rotate", 0.9, 3)),
    (("ShearX", 0.9, 4), ("AutoContrast", 0.8, None)),
    (("ShearY", 0.9, 8), ("Invert", 0.4, None)),
    (("ShearY", 0.9, 5), ("Solarize", 0.2, 6)),
    (("Invert", 0.9, None), ("AutoContrast", 0.8, None)),
    (("Equalize", 0.6, None), ("Rotate", 0.9, 3)),
    (("ShearX", 0.9, 4), ("Solarize", 0.3, 3)),
    (("ShearY", 0.8, 8), ("Invert", 0.7, None)),
    (("Equalize", 0.9, None), ("TranslateY", 0.6, 6)),
    (("Invert", 0.9, None), ("Equalize", 0.6, None)),
    (("Contrast", 0.3, 3), ("Rotate", 0.8, 4)),
    (("Invert", 0.8, None), ("TranslateY", 0.0, 2)),
    (("ShearY", 0.7, 6), ("Solarize", 0.4, 8)),
    (("Invert", 0.6, None), ("Rotate", 0.8, 4)),
    (("ShearY", 0.3, 7), ("TranslateX", 0.9, 3)),
    (("ShearX", 0.1, 6), ("Invert", 0.6, None)),
    (("Solarize", 0.7, 2), ("TranslateY", 0.6, 7)),
    (("ShearY", 0.8, 4), ("Invert", 0.8, None)),
    (("ShearX", 0.7, 9), ("TranslateY", 0.8, 3)),
    (("ShearY", 0.8, 5), ("AutoContrast", 0.7, None)),
    (("ShearX", 0.7, 2), ("Invert", 0.1, None)),
)

IMAGENET: tuple[tuple[Step, Step], ...] = (
    (("Posterize", 0.4, 8), ("Rotate", 0.6, 9)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
    (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
    (("Posterize", 0.6, 7), ("Posterize", 0.6, 6)),
    (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
    (("Equalize", 0.4, None), ("Rotate", 0.8, 8)),
    (("Solarize", 0.6, 3), ("Equalize", 0.6, None)),
    (("Posterize", 0.8, 5), ("Equalize", 1.0, None)),
    (("Rotate", 0.2, 3), ("Solarize", 0.6, 8)),
    (("Equalize", 0.6, None), ("Posterize", 0.4, 6)),
    (("Rotate", 0.8, 8), ("Color", 0.4, 0)),
    (("Rotate", 0.4, 9), ("Equalize", 0.6, None)),
    (("Equalize", 0.0, None), ("Equalize", 0.8, None)),
    (("Invert", 0.6, None), ("Equalize", 1.0, None)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Rotate", 0.8, 8), ("Color", 1.0, 2)),
    (("Color", 0.8, 8), ("Solarize", 0.8, 7)),
    (("Sharpness", 0.4, 7), ("Invert", 0.6, None)),
    (("ShearX", 0.6, 5), ("Equalize", 1.0, None)),
    (("Color", 0.4, 0), ("Equalize", 0.6, None)),
    (("Equalize", 0.4, None), ("Solarize", 0.2, 4)),
    (("Solarize", 0.6, 5), ("AutoContrast", 0.6, None)),
    (("Invert", 0.6, None), ("Equalize", 1.0, None)),
    (("Color", 0.6, 4), ("Contrast", 1.0, 8)),
    (("Equalize", 0.8, None), ("Equalize", 0.6, None)),
)

POLICIES = {"cifar10": CIFAR10, "svhn": SVHN, "imagenet": IMAGENET}


def magnitude(name: str, level: int | None, sign: int, height: int, width: int) -> float:
    """What Pillow is given for this operation at this level."""
    share = (level or 0) / 9
    match name:
        case "ShearX" | "ShearY":
            return sign * 0.3 * share
        case "TranslateX":  # the paper's 150 of 331 pixels, in whole pixels
            return sign * int(150 / 331 * width * share)
        case "TranslateY":
            return sign * int(150 / 331 * height * share)
        case "Rotate":
            return sign * 30 * share
        case "Brightness" | "Color" | "Contrast" | "Sharpness":
            return 1 + sign * 0.9 * share
        case "Solarize":
            return 256 * (1 - share)
        case "Posterize":
            return 8 - round(4 * share)
    return 0.0


class AutoAugment:
    """One policy as tables, indexed by (sub-policy, place in it, sign)."""

    def __init__(self, policy: str):
        self.steps = POLICIES[policy]
        self.code = torch.tensor([[NAMES.index(name) for name, _, _ in sub] for sub in self.steps])  # (25, 2)
        self.probability = torch.tensor([[p for _, p, _ in sub] for sub in self.steps], dtype=torch.float64)

    def draw(self, n: int, height: int, width: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
        """For each image and each of two places the code of an operation (or NOTHING) and its magnitude, (n, 2)."""
        values = [
            [[magnitude(name, level, sign, height, width) for sign in (-1, 1)] for name, _, level in sub]
            for sub in self.steps
        ]
        sub = torch.randint(len(self.steps), (n,), generator=generator)
        sign = torch.randint(2, (n, 2), generator=generator)
        happens = torch.rand(n, 2, dtype=torch.float64, generator=generator) < self.probability[sub]
        code = torch.where(happens, self.code[sub], NOTHING)
        return code, torch.tensor(values, dtype=torch.float64)[sub].gather(2, sign.unsqueeze(2)).squeeze(2)

    def __call__(self, x: torch.Tensor, fill: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """`x` is (n, H, W, 3) uint8."""
        code, values = self.draw(len(x), x.shape[1], x.shape[2], generator)
        for place in range(2):
            x = operate(x, code[:, place], values[:, place], fill)
        return x
