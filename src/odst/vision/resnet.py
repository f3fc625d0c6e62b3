"""Residual networks: ResNet-18 and ResNet-50 (He et al. 2015), WideResNet-28-10 (Zagoruyko & Komodakis 2016)."""

import torch
import torch.nn.functional as F
from torch import nn


def conv(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(inputs, outputs, size, stride, padding=size // 2, bias=False)


def conv_bn(inputs: int, outputs: int, size: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(conv(inputs, outputs, size, stride), nn.BatchNorm2d(outputs))


def initialise(net: nn.Module) -> None:
    """He's normal initialisation by fan-out, so that gradients keep their scale; batch-norm starts as the identity."""
    for module in net.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        elif isinstance(module, nn.BatchNorm2d):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)


class Residual(nn.Module):
    """relu(body(x) + shortcut(x)), the post-activation unit of ResNet."""

    def __init__(self, inputs: int, outputs: int, stride: int, bottleneck: bool):
        super().__init__()
        if bottleneck:
            middle = outputs // 4
            self.body = nn.Sequential(
                conv_bn(inputs, middle, 1),
                nn.ReLU(inplace=True),
                conv_bn(middle, middle, 3, stride),
                nn.ReLU(inplace=True),
                conv_bn(middle, outputs, 1),
            )
        else:
            self.body = nn.Sequential(
                conv_bn(inputs, outputs, 3, stride), nn.ReLU(inplace=True), conv_bn(outputs, outputs, 3)
            )
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else conv_bn(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


def resnet(K: int, units: tuple[int, int, int, int], bottleneck: bool, small_images: bool) -> nn.Sequential:
    """Small images keep their resolution: a 3×3 stem without max-pool. Others get the 7×7 stem of ImageNet."""
    if small_images:
        stem = [conv_bn(3, 64, 3), nn.ReLU(inplace=True)]
    else:
        stem = [conv_bn(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, padding=1)]
    layers: list[nn.Module] = []
    inputs = 64
    for stage, count in enumerate(units):
        outputs = 64 * 2**stage * (4 if bottleneck else 1)
        for unit in range(count):
            layers.append(Residual(inputs, outputs, 2 if stage > 0 and unit == 0 else 1, bottleneck))
            inputs = outputs
    net = nn.Sequential(*stem, *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, K))
    initialise(net)
    return net


def resnet18(K: int, small_images: bool) -> nn.Sequential:
    return resnet(K, (2, 2, 2, 2), bottleneck=False, small_images=small_images)


def resnet50(K: int, small_images: bool) -> nn.Sequential:
    return resnet(K, (3, 4, 6, 3), bottleneck=True, small_images=small_images)


class PreActivation(nn.Module):
    """x + body(relu(bn(x))), the pre-activation unit; where the shape changes, the shortcut starts after the relu."""

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.bn1, self.conv1 = nn.BatchNorm2d(inputs), conv(inputs, outputs, 3, stride)
        self.bn2, self.conv2 = nn.BatchNorm2d(outputs), conv(outputs, outputs, 3)
        self.shortcut = None if inputs == outputs and stride == 1 else conv(inputs, outputs, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = F.relu(self.bn1(x))
        x = x if self.shortcut is None else self.shortcut(a)
        return x + self.conv2(F.relu(self.bn2(self.conv1(a))))


def wideresnet(K: int, depth: int, width: int) -> nn.Sequential:
    layers: list[nn.Module] = [conv(3, 16, 3)]
    inputs = 16
    for stage in range(3):
        outputs = 16 * 2**stage * width
        for unit in range((depth - 4) // 6):
            layers.append(PreActivation(inputs, outputs, 2 if stage > 0 and unit == 0 else 1))
            inputs = outputs
    head = [nn.BatchNorm2d(inputs), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, K)]
    net = nn.Sequential(*layers, *head)
    initialise(net)
    return net
