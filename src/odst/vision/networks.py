"""Every network by name. Normalisation sits inside: pixels in [0, 1] (or raw features) come in, logits out."""

import difflib
import importlib
import inspect
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from odst.errors import UserError
from odst.vision.pyramidnet import pyramidnet
from odst.vision.resnet import Residual, conv, conv_bn, initialise, resnet18, resnet50, wideresnet

RESIZE = "Set data.size (and build a packed pool again with --size)"
LARGEST_SMALL_IMAGE = 64  # pixels; above it ResNets begin with the stem of ImageNet


class Normalised(nn.Module):
    """net((x - mean) / std)"""

    mean: torch.Tensor
    std: torch.Tensor

    def __init__(self, net: nn.Module, mean: torch.Tensor, std: torch.Tensor):
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("std", std)
        self.net = net

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


# name -> (smallest and largest image side in pixels, how to build it from K and that side)
IMAGE_NETWORKS: dict[str, tuple[int, int, Callable[[int, int], nn.Module]]] = {
    "tiny": (8, 64, lambda K, side: tiny(K)),
    "small": (16, 96, lambda K, side: small(K)),
    "resnet18": (16, 1024, lambda K, side: resnet18(K, side <= LARGEST_SMALL_IMAGE)),
    "resnet50": (16, 1024, lambda K, side: resnet50(K, side <= LARGEST_SMALL_IMAGE)),
    "wideresnet28-10": (16, 64, lambda K, side: wideresnet(K, 28, 10)),
    "pyramidnet272": (16, 64, lambda K, side: pyramidnet(K)),
}
NAMES = [*IMAGE_NETWORKS, "mlp"]


def make_network(
    name: str,
    K: int,
    images: Any = None,
    *,
    shape: tuple[int, ...] = (),
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
) -> nn.Module:
    """A fresh network for rows like the labelled `images` (or features), which normalises by their mean and spread.

    It takes float32 NCHW in [0, 1], or (B, D), to logits (B, K). Its weights are drawn from torch's global generator. Without
    images, `shape` is that of a row, (H, W, 3) or (D,), and `mean` and `std` are per channel in [0, 1], or per feature.
    """
    if images is not None and not hasattr(images, "shape"):
        raise UserError(
            f"model: make_network takes the labelled images, got {images!r}. A row's shape goes in as shape=."
        )
    if images is not None:
        shape, (mean, std) = tuple(images.shape[1:]), statistics(images)
    if not shape:
        raise UserError(f"model: {name} for what rows? Give make_network the labelled images, or the shape of a row.")
    body = _build(name, K, shape)
    dims = (1, -1, 1, 1) if len(shape) == 3 else (1, -1)
    return Normalised(body, *(torch.tensor(one).float().expand(shape[-1]).clone().view(dims) for one in (mean, std)))


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
        return _checked(name, _timm(name, name.removeprefix("timm:"), K), K, shape)
    if ":" in name:
        return _checked(name, _from_factory(name, K), K, shape)
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, 3, 0.4) or NAMES
        raise UserError(
            f"model: there is no network {name!r}. Nearest: {', '.join(near)}. "
            "Others: timm:NAME, or package.module:factory for your own."
        )
    images = len(shape) == 3
    if name == "mlp":
        if images:
            raise UserError(
                f"model: mlp takes feature vectors, the data are {_described(shape)}. Take small or resnet50."
            )
        return mlp(K, shape[0])
    if not images:
        raise UserError(f"model: {name} takes images, the data are {_described(shape)}. Take mlp.")
    smallest, largest, build = IMAGE_NETWORKS[name]
    if not smallest <= min(shape[:2]) <= max(shape[:2]) <= largest:
        others = [
            other for other, (lo, hi, _) in IMAGE_NETWORKS.items() if lo <= min(shape[:2]) <= max(shape[:2]) <= hi
        ]
        way_out = f"take {' or '.join(others)}" if others else "bring a package.module:factory"
        raise UserError(
            f"model: {name} takes images of {smallest} to {largest} pixels a side, the data are {_described(shape)}. "
            f"{RESIZE}, or {way_out}."
        )
    return build(K, max(shape[:2]))


def _timm(name: str, architecture: str, K: int) -> nn.Module:
    try:
        import timm
    except Exception as error:  # torchvision beside a CPU-only torch raises RuntimeError, not ImportError
        raise UserError(
            f"model: {name} needs timm, which does not import here ({_one_line(error)}). "
            "Install timm and a torchvision that fits this torch, or take resnet50."
        ) from error
    if architecture not in timm.list_models():
        near = difflib.get_close_matches(architecture, timm.list_models(), 3, 0.4)
        raise UserError(f"model: timm has no network {architecture!r}. Nearest: {', '.join(near) or 'none'}.")
    net: nn.Module = timm.create_model(architecture, num_classes=K)
    return net


def _from_factory(name: str, K: int) -> nn.Module:
    module_name, _, attribute = name.partition(":")
    sys.path.append(str(Path.cwd()))  # at the end: a file here shadows no installed package
    try:
        factory = getattr(importlib.import_module(module_name), attribute)
        parameters = inspect.signature(factory).parameters
        positional = any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters.values())
        by_keyword = "num_classes" in parameters or not positional
        net = factory(num_classes=K) if by_keyword else factory(K)
    except Exception as error:
        raise UserError(
            f"model: {name} does not give a network ({type(error).__name__}: {_one_line(error)}). "
            "It must be package.module:factory, with factory(K) or factory(num_classes=K) returning a torch.nn.Module."
        ) from error
    finally:
        sys.path.pop()
    if not isinstance(net, nn.Module):
        raise UserError(f"model: {name} returned a {type(net).__name__}. The factory must return a torch.nn.Module.")
    return net


@torch.no_grad()
def _checked(name: str, net: nn.Module, K: int, shape: tuple[int, ...]) -> nn.Module:
    """Two rows through the network: does it take this shape, and give K logits for each?"""
    dummy = torch.zeros(2, *((shape[2], *shape[:2]) if len(shape) == 3 else shape))
    training = net.training
    try:
        logits = net.eval()(dummy)
    except Exception as error:
        raise UserError(
            f"model: {name} does not take {_described(shape)} ({type(error).__name__}: {_one_line(error)}). "
            f"{RESIZE}, or take another network."
        ) from error
    net.train(training)
    if not isinstance(logits, torch.Tensor) or logits.shape != (2, K):
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, torch.Tensor) else f"a {type(logits).__name__}"
        raise UserError(f"model: {name} must return logits of shape (batch, {K}), for a batch of 2 it returned {got}.")
    return net


def _described(shape: tuple[int, ...]) -> str:
    return f"{shape[0]}×{shape[1]} images" if len(shape) == 3 else f"feature vectors of length {shape[0]}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
