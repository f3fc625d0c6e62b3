"""Random crops, flips, Cutout and AutoAugment on whole batches, on the batch's device, random per image."""

import difflib
from collections.abc import Callable, Sequence

import torch

from odst.errors import UserError
from odst.vision.autoaugment import POLICIES, AutoAugment
from odst.vision.operations import fetch

Augmenter = Callable[[torch.Tensor, torch.Generator], torch.Tensor]
Step = Callable[[torch.Tensor, torch.Tensor, torch.Generator], torch.Tensor]  # (n, H, W, 3) images, fill, randomness

EXAMPLES = ["crop:4", "flip", "cutout:16", *[f"autoaugment:{policy}" for policy in POLICIES]]


def augmenter(names: Sequence[str], fill: Sequence[int]) -> Augmenter:
    """The named steps in their order, as a function of an image batch (B, 3, H, W) and a CPU generator.

    uint8 in, uint8 out, in the same memory format; a float batch in [0, 1] is augmented in its 256 levels. All
    parameters are drawn on the CPU, so a seed gives the same images on every device. `fill` is the mean level of each
    channel: what a crop, a geometric operation or Cutout shows where there is no picture.
    """
    steps = [_step(name) for name in names]
    level = torch.tensor(fill, dtype=torch.uint8)

    def augment(batch: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        if not steps:
            return batch
        if batch.is_floating_point():
            return augment((batch * 255).round().to(torch.uint8), generator).to(batch.dtype) / 255
        if batch.device.type == "mps":  # it has no float64, which Pillow's results need
            return augment(batch.cpu(), generator).to(batch.device)
        x = batch.permute(0, 2, 3, 1).contiguous()  # no copy for a batch that was made of (n, H, W, 3) rows
        for step in steps:
            x = step(x, level.to(x.device), generator)
        out = x.permute(0, 3, 1, 2)
        return out.contiguous() if batch.is_contiguous() else out

    return augment


def _step(name: str) -> Step:
    kind, _, argument = name.partition(":")
    if kind == "flip" and not argument:
        return flip
    if kind == "crop" and argument.isdecimal():
        return lambda x, fill, generator: crop(x, fill, generator, int(argument))
    if kind == "cutout" and argument.isdecimal():
        return lambda x, fill, generator: cutout(x, fill, generator, int(argument))
    if kind == "autoaugment" and argument in POLICIES:
        return AutoAugment(argument)
    near = difflib.get_close_matches(name, EXAMPLES, 3, 0.4) or EXAMPLES
    raise UserError(f"augmentation: there is no {name!r}. Nearest: {', '.join(near)}.")


def crop(x: torch.Tensor, fill: torch.Tensor, generator: torch.Generator, padding: int) -> torch.Tensor:
    """A window of the old size, anywhere in the image padded by `padding` on each side."""
    n, height, width, _ = x.shape
    down, right = torch.randint(-padding, padding + 1, (2, n), generator=generator, dtype=torch.int32).to(x.device)
    row = torch.arange(height, dtype=torch.int32, device=x.device).view(1, -1, 1) + down.view(-1, 1, 1)
    column = torch.arange(width, dtype=torch.int32, device=x.device).view(1, 1, -1) + right.view(-1, 1, 1)
    return fetch(x, row, column, fill)


def flip(x: torch.Tensor, fill: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Left to right, for every second image on average."""
    flipped = torch.randint(2, (len(x), 1, 1, 1), generator=generator).to(x.device)
    return _choose(_mask(flipped), x.flip(2), x)


def cutout(x: torch.Tensor, fill: torch.Tensor, generator: torch.Generator, side: int) -> torch.Tensor:
    """A square about a uniformly random pixel is filled; at the border it is cut off (DeVries & Taylor 2017)."""
    n, height, width, channels = x.shape
    top = torch.randint(height, (n, 1), generator=generator).to(x.device) - side // 2
    left = torch.randint(width, (n, 1), generator=generator).to(x.device) - side // 2
    row = torch.arange(height, device=x.device)
    column = torch.arange(width, device=x.device).repeat_interleave(channels)
    rows = _mask((row >= top) & (row < top + side)).unsqueeze(2)
    columns = _mask((column >= left) & (column < left + side)).unsqueeze(1)
    return _choose(rows & columns, fill.repeat(width), x.view(n, height, width * channels)).view(x.shape)


def _mask(condition: torch.Tensor) -> torch.Tensor:
    """All bits set where the condition holds."""
    return -condition.to(torch.uint8)


def _choose(mask: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """torch.where for uint8 in bits: several times as fast on a CPU."""
    return b ^ ((a ^ b) & mask)
