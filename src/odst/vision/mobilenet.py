"""MobileNetV2 (Sandler et al. 2018) as an encoder, and the inverted residual that it shares with EfficientNet-Lite."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import nn


class Stage(NamedTuple):
    """`repeats` blocks; the first changes channels and resolution."""

    repeats: int
    kernel: int
    stride: int
    expansion: int
    outputs: int


MOBILENETV2 = (
    Stage(1, 3, 1, 1, 16),
    Stage(2, 3, 2, 6, 24),
    Stage(3, 3, 2, 6, 32),
    Stage(4, 3, 2, 6, 64),
    Stage(3, 3, 1, 6, 96),
    Stage(3, 3, 2, 6, 160),
    Stage(1, 3, 1, 6, 320),
)
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Normalise(nn.Module):
    """Float NCHW in [0, 1] to what the weights were trained on."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]):
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values, dtype=torch.float32).view(1, -1, 1, 1), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x - self.mean) / self.std


class SamePadding(nn.Module):
    """TensorFlow's padding: ceil(size / stride) outputs, and where the zeros cannot be even, one more right and below."""

    def __init__(self, kernel: int, stride: int):
        super().__init__()
        self.kernel, self.stride = kernel, stride

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        height, width = (self.zeros(size) for size in x.shape[-2:])
        return F.pad(x, (width // 2, width - width // 2, height // 2, height - height // 2))

    def zeros(self, size: int) -> int:
        return max((math.ceil(size / self.stride) - 1) * self.stride + self.kernel - size, 0)


def convolution(
    inputs: int, outputs: int, kernel: int, stride: int, *, groups: int = 1, tensorflow: bool, relu: bool = True
) -> nn.Sequential:
    """Convolution, batch-norm, ReLU6. The weights of TensorFlow's networks know its padding and its epsilon."""
    uneven = tensorflow and stride > 1  # at stride 1 both pad alike
    pad: list[nn.Module] = [SamePadding(kernel, stride)] if uneven else []
    conv = nn.Conv2d(inputs, outputs, kernel, stride, 0 if uneven else kernel // 2, groups=groups, bias=False)
    norm = nn.BatchNorm2d(outputs, eps=1e-3 if tensorflow else 1e-5)
    return nn.Sequential(*pad, conv, norm, *([nn.ReLU6(inplace=True)] if relu else []))


class InvertedResidual(nn.Module):
    """Widen, convolve each channel by itself, narrow without a nonlinearity; a shortcut where the shape is kept."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int, tensorflow: bool):
        super().__init__()
        middle = inputs * expansion
        widen = [convolution(inputs, middle, 1, 1, tensorflow=tensorflow)] if expansion > 1 else []
        self.body = nn.Sequential(
            *widen,
            convolution(middle, middle, kernel, stride, groups=middle, tensorflow=tensorflow),
            convolution(middle, outputs, 1, 1, tensorflow=tensorflow, relu=False),
        )
        self.shortcut = inputs == outputs and stride == 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x) if self.shortcut else self.body(x)


def encoder(
    stages: Sequence[Stage], mean: Sequence[float], std: Sequence[float], *, tensorflow: bool, outputs: int = 1280
) -> nn.Sequential:
    """Float NCHW in [0, 1] to (n, outputs): what the classifier's last linear layer would get."""
    layers: list[nn.Module] = [Normalise(mean, std), convolution(3, 32, 3, 2, tensorflow=tensorflow)]
    inputs = 32
    for stage in stages:
        for unit in range(stage.repeats):
            stride = stage.stride if unit == 0 else 1
            layers.append(
                InvertedResidual(inputs, stage.outputs, stage.kernel, stride, stage.expansion, tensorflow=tensorflow)
            )
            inputs = stage.outputs
    layers.append(convolution(inputs, outputs, 1, 1, tensorflow=tensorflow))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def mobilenetv2() -> nn.Sequential:
    return encoder(MOBILENETV2, IMAGENET_MEAN, IMAGENET_STD, tensorflow=False)
