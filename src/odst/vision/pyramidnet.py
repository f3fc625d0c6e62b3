"""PyramidNet (Han et al. 2017) with bottleneck units, and ShakeDrop (Yamada et al. 2018) on each of them."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.function import FunctionCtx, once_differentiable

from odst.vision.resnet import conv, initialise


class ShakeDrop(torch.autograd.Function):
    """G(x) = (b + α - bα) x with gate b; backwards the same with β in place of α.

    An open gate (b = 1) lets the branch through as it is. A closed one scales each image by its own α on the way
    forward and by an independent β on the way back.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, x: torch.Tensor, gate: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor
    ) -> torch.Tensor:
        ctx.save_for_backward(gate, beta)
        return (gate + alpha - gate * alpha) * x

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None, None]:
        gate, beta = ctx.saved_tensors  # type: ignore[attr-defined]
        return (gate + beta - gate * beta) * gradient, None, None, None


def shakedrop(x: torch.Tensor, p: float, training: bool) -> torch.Tensor:
    """One gate per layer and batch, closed with probability p; α per image in [-1, 1], β per image in [0, 1].

    α has mean 0, so the expected scale is P(b = 1) = 1 - p: evaluation multiplies by it.
    """
    if not training:
        return (1 - p) * x
    per_image = (len(x), *[1] * (x.dim() - 1))
    gate = (torch.rand((), device=x.device) >= p).to(x.dtype)
    alpha = torch.empty(per_image, dtype=x.dtype, device=x.device).uniform_(-1, 1)
    beta = torch.empty(per_image, dtype=x.dtype, device=x.device).uniform_(0, 1)
    return ShakeDrop.apply(x, gate, alpha, beta)


def closing_probabilities(layers: int, last: float) -> list[float]:
    """p_l = l/L · last: the survival probability 1 - p_l falls linearly over the depth."""
    return [last * (layer + 1) / layers for layer in range(layers)]


class Bottleneck(nn.Module):
    """bn-conv1×1, bn-relu-conv3×3, bn-relu-conv1×1, bn; the shortcut has no parameters (pooled, new channels zero)."""

    def __init__(self, inputs: int, outputs: int, stride: int, p: float):
        super().__init__()
        middle = outputs // 4
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs),
            conv(inputs, middle, 1),
            nn.BatchNorm2d(middle),
            nn.ReLU(inplace=True),
            conv(middle, middle, 3, stride),
            nn.BatchNorm2d(middle),
            nn.ReLU(inplace=True),
            conv(middle, outputs, 1),
            nn.BatchNorm2d(outputs),
        )
        self.shortcut = nn.Identity() if stride == 1 else nn.AvgPool2d(2, stride, ceil_mode=True)
        self.new_channels = outputs - inputs
        self.p = p

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = F.pad(self.shortcut(x), (0, 0, 0, 0, 0, self.new_channels))
        return shortcut + shakedrop(self.body(x), self.p, self.training)


def widths(units: int, alpha: int) -> Iterator[int]:
    """Each of the 3 × `units` layers is alpha / (3 · units) channels wider than the one before it, from 16 on."""
    width = 16.0
    for _ in range(3 * units):
        width += alpha / (3 * units)
        yield round(width)


def pyramidnet(K: int, depth: int = 272, alpha: int = 200, last: float = 0.5) -> nn.Sequential:
    """`last` is ShakeDrop's closing probability at the deepest unit; 0 is the plain PyramidNet."""
    units = (depth - 2) // 9
    layers: list[nn.Module] = [conv(3, 16, 3), nn.BatchNorm2d(16)]
    inputs = 16
    for index, (width, p) in enumerate(zip(widths(units, alpha), closing_probabilities(3 * units, last), strict=True)):
        layers.append(Bottleneck(inputs, 4 * width, 2 if index in (units, 2 * units) else 1, p))
        inputs = 4 * width
    head = [nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, K)]
    net = nn.Sequential(*layers, *head)
    initialise(net)
    return net
