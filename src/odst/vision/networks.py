"""Every network by name. Normalisation sits inside: pixels in [0, 1] (or raw features) come in, logits out."""

import difflib
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import nn

from odst.errors import UserError
from odst.vision.finetuning import begun_network, freeze_backbone, head_of
from odst.vision.foreign import RESIZE, checked, described, own_network, timm_network
from odst.vision.packaged import PACKAGED
from odst.vision.pyramidnet import pyramidnet
from odst.vision.resnet import Residual, conv, conv_bn, initialise, resnet18, resnet50, wideresnet

Freeze = Literal["none", "backbone"]
LARGEST_SMALL_IMAGE = 64  # pixels; above it ResNets begin with the stem of ImageNet


class Normalised(nn.Module):
    """net((x - mean) / std). Of a frozen network only the head learns: the rest keeps to how it works after training."""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, net: nn.Module, mean: torch.Tensor, std: torch.Tensor, *, frozen: bool = False):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.net, self.frozen = net, frozen
        if frozen:
            freeze_backbone(net)

    def train(self, mode: bool = True) -> "Normalised":
        super().train(mode)
        if self.frozen:  # batch-norm's statistics and dropout too
            self.net.eval()
            head_of(self.net).train(mode)
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.net((x - self.mean) / self.std)
        return logits


class Scaled(nn.Module):
    """A fixed factor on the logits, so that training starts near the uniform prediction."""

    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.factor * x


def tiny(K: int) -> nn.Sequential:
    """Five layers, for digits: seconds on a CPU."""
    net = nn.Sequential(
        conv_bn(3, 16, 3),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        conv_bn(16, 32, 3),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        conv_bn(32, 64, 3),
        nn.ReLU(inplace=True),
        conv_bn(64, 64, 3),
        nn.ReLU(inplace=True),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(64, K),
        Scaled(1 / math.sqrt(64)),
    )
    initialise(net)
    return net


def small(K: int) -> nn.Sequential:
    """A residual network of eight convolutions that learns CIFAR-10 on a CPU in minutes.

    Thin where the picture is large: within a minute of CPU time the number of images seen counts for more than width,
    but full resolution in the first layers for more than the images that a strided stem would save.
    """

    def pooled(inputs: int, outputs: int) -> list[nn.Module]:
        return [conv(inputs, outputs, 3), nn.MaxPool2d(2), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)]

    net = nn.Sequential(
        conv_bn(3, 16, 3),
        nn.ReLU(inplace=True),
        *pooled(16, 32),
        *pooled(32, 64),
        Residual(64, 64, 1, bottleneck=False),
        *pooled(64, 128),
        Residual(128, 128, 1, bottleneck=False),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(128, K),
        Scaled(1 / math.sqrt(128)),
    )
    initialise(net)
    return net


def mlp(K: int, D: int) -> nn.Sequential:
    """Two hidden layers on frozen features. Features have no crops and flips: dropout keeps the network from knowing the few
    labelled rows by heart, and so from telling them from their own kind in the pool."""
    width = 256
    return nn.Sequential(
        nn.Dropout(0.2),
        nn.Linear(D, width, bias=False),
        nn.BatchNorm1d(width),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(width, width, bias=False),
        nn.BatchNorm1d(width),
        nn.ReLU(inplace=True),
        nn.Dropout(0.5),
        nn.Linear(width, K),
    )


class EqualLength(nn.Module):
    """Rows brought to one length, the square root of their width: a backbone's vectors differ in direction."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.normalize(x) * math.sqrt(x.shape[1])


def head(K: int, D: int) -> nn.Sequential:
    """One hidden layer on a backbone's vectors, without batch-norm: with few labels it is as good as logistic regression, and
    the push to uniform confidence costs it less than a deeper one (docs/log.md)."""
    width = 256
    return nn.Sequential(
        EqualLength(), nn.Dropout(0.5), nn.Linear(D, width), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(width, K)
    )


# name -> (smallest and largest image side in pixels, how to build it from K and that side)
IMAGE_NETWORKS: dict[str, tuple[int, int, Callable[[int, int], nn.Module]]] = {
    "tiny": (8, 64, lambda K, side: tiny(K)),
    "small": (16, 96, lambda K, side: small(K)),
    "resnet18": (16, 1024, lambda K, side: resnet18(K, side <= LARGEST_SMALL_IMAGE)),
    "resnet50": (16, 1024, lambda K, side: resnet50(K, side <= LARGEST_SMALL_IMAGE)),
    "wideresnet28-10": (16, 64, lambda K, side: wideresnet(K, 28, 10)),
    "pyramidnet272": (16, 64, lambda K, side: pyramidnet(K)),
}
FEATURE_NETWORKS = {"mlp": mlp, "head": head}
NAMES = [*IMAGE_NETWORKS, *FEATURE_NETWORKS, *PACKAGED]


def make_network(
    name: str,
    K: int,
    images: Any = None,
    *,
    shape: tuple[int, ...] = (),
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
    pretrained: bool = False,
    weights: str | None = None,
    freeze: Freeze = "none",
    blank: bool = False,
) -> nn.Module:
    """A fresh network for rows like the labelled `images` (or features), which normalises by their mean and spread.

    It takes float32 NCHW in [0, 1], or (B, D), to logits (B, K). Its weights are drawn from torch's global generator. Without
    images, `shape` is that of a row, (H, W, 3) or (D,), and `mean` and `std` are per channel in [0, 1], or per feature.

    With `pretrained` weights, or those of a file, only the head is fresh, and the network normalises as it has learnt to.
    `blank` makes the same network for weights that are still to come: of a finished run, say.
    """
    if images is not None and not hasattr(images, "shape"):
        raise UserError(
            f"model: make_network takes the labelled images, got {images!r}. A row's shape goes in as shape=."
        )
    if images is not None:
        shape, (mean, std) = tuple(images.shape[1:]), normalisation(name, images)
    if not shape:
        raise UserError(f"model: {name} for what rows? Give make_network the labelled images, or the shape of a row.")
    if pretrained or weights or name in PACKAGED:
        body, mean, std = begun_network(name, K, shape, pretrained, weights, blank), 0.0, 1.0
    else:
        body = _build(name, K, shape)
    dims = (1, -1, 1, 1) if len(shape) == 3 else (1, -1)
    levels = (torch.tensor(one).float().expand(shape[-1]).clone().view(dims) for one in (mean, std))
    return Normalised(body, *levels, frozen=freeze == "backbone")


def normalisation(name: str, images: Any) -> tuple[float | Sequence[float], float | Sequence[float]]:
    """The mean and spread that a network of this name divides by; `head` goes by directions, and few rows say little of them."""
    return (0.0, 1.0) if name == "head" else statistics(images)


def statistics(images: Any) -> tuple[list[float], list[float]]:
    """Mean and spread of the channels of labelled images in [0, 1], or of each feature: what a network normalises with."""
    rows = _sample(images).astype(np.float64) / (255 if len(images.shape) == 4 else 1)
    std = rows.std(axis=0)
    return rows.mean(axis=0).tolist(), np.where(std > 0, std, 1.0).tolist()


def mean_level(images: Any) -> tuple[int, ...]:
    """The mean colour of a set, 0 to 255: what crops, cutouts and turned corners are filled with."""
    return tuple(int(level) for level in _sample(images).mean(axis=0).round())


def _sample(images: Any) -> np.ndarray:
    """The pixels of at most 10,000 images at even distances, or so many rows of features."""
    rows: np.ndarray = images[np.linspace(0, len(images) - 1, min(len(images), 10_000)).astype(np.int64)]
    return rows.reshape(-1, rows.shape[-1])


def _build(name: str, K: int, shape: tuple[int, ...]) -> nn.Module:
    if name.startswith("timm:"):
        return checked(name, timm_network(name, name.removeprefix("timm:"), K), K, shape)
    if ":" in name:
        return checked(name, own_network(name, K), K, shape)
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, 3, 0.4) or NAMES
        raise UserError(
            f"model: there is no network {name!r}. Nearest: {', '.join(near)}. "
            "Others: timm:NAME, or package.module:factory for your own."
        )
    images = len(shape) == 3
    if name in FEATURE_NETWORKS:
        if images:
            raise UserError(
                f"model: {name} takes feature vectors, the data are {described(shape)}. Take small or resnet50."
            )
        return FEATURE_NETWORKS[name](K, shape[0])
    if not images:
        raise UserError(f"model: {name} takes images, the data are {described(shape)}. Take mlp.")
    smallest, largest, build = IMAGE_NETWORKS[name]
    if not smallest <= min(shape[:2]) <= max(shape[:2]) <= largest:
        others = [
            other for other, (lo, hi, _) in IMAGE_NETWORKS.items() if lo <= min(shape[:2]) <= max(shape[:2]) <= hi
        ]
        way_out = f"take {' or '.join(others)}" if others else "bring a package.module:factory"
        raise UserError(
            f"model: {name} takes images of {smallest} to {largest} pixels a side, the data are {described(shape)}. "
            f"{RESIZE}, or {way_out}."
        )
    return build(K, max(shape[:2]))
