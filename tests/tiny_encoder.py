"""A backbone of a few random convolutions: tests name it as torch:FILE#tiny_encoder:make@24."""

from pathlib import Path

import torch
from torch import nn


def make() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 24, 7, 2), nn.ReLU(), nn.AdaptiveMaxPool2d(3), nn.Flatten())


class Faulty(nn.Sequential):
    """Infinite for a dark picture."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).masked_fill((x.mean((1, 2, 3)) < 0.16)[:, None], float("inf"))


def faulty() -> nn.Module:
    return Faulty(*make())


def save(file: Path, seed: int = 0) -> str:
    """Weights in a file, and the spec that opens them."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        torch.save(make().state_dict(), file)
    return f"torch:{file}#tiny_encoder:make@24"
