"""How alike two pictures look: SSIM and LPIPS (AlexNet, version 0.1). Both take uint8 images of one size, pair by pair.

LPIPS here is the distance of Zhang et al. 2018 written out, because the packages that offer it need torchvision.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from odst.errors import UserError, refused

Scale = Literal["unit", "signed"]

SHIFT, SPREAD = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # LPIPS' own normalisation of inputs in [-1,1]
STRIDE, PADDING = (4, 1, 1, 1, 1), (2, 2, 1, 1, 1)
CONVOLUTIONS = {  # the five convolutions of AlexNet: shape, and number of the layer in torchvision's `features`
    0: ((64, 3, 11, 11), 0),
    1: ((192, 64, 5, 5), 3),
    2: ((384, 192, 3, 3), 6),
    3: ((256, 384, 3, 3), 8),
    4: ((256, 256, 3, 3), 10),
}
SMALLEST = 31  # pixels a side that leave one position after AlexNet's two poolings


def ssim(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """SSIM of each pair, (n,) float32: data range 1, 11×11 Gaussian window of 1.5, reflected borders."""
    x, y = _planes(a), _planes(b)
    rows, columns = _blur(x.shape[2]), _blur(x.shape[3])
    blurred = rows @ (torch.cat([x, y, x * x, y * y, x * y]) @ columns.T)
    mx, my, xx, yy, xy = blurred.chunk(5)
    vx, vy = (xx - mx * mx).clamp(min=0), (yy - my * my).clamp(min=0)
    c1, c2 = 0.01**2, 0.03**2
    value = (2 * mx * my + c1) * (2 * (xy - mx * my) + c2) / ((mx * mx + my * my + c1) * (vx + vy + c2))
    return value.view(len(a), -1).mean(1).numpy()


@dataclass(frozen=True)
class LpipsWeights:
    weight: tuple[Tensor, ...]  # five, out × in × height × width
    bias: tuple[Tensor, ...]
    head: tuple[Tensor, ...]  # five, (channels,)

    def fingerprint(self) -> str:
        state = hashlib.blake2b(digest_size=16)
        for tensor in (*self.weight, *self.bias, *self.head):
            state.update(tensor.contiguous().numpy().data)
        return state.hexdigest()


def lpips(a: np.ndarray, b: np.ndarray, weights: LpipsWeights, scale: Scale) -> np.ndarray:
    """LPIPS of each pair, (n,) float32.

    `signed` feeds the network pixels in [-1,1], as its authors define it; `unit` leaves them in [0,1].
    """
    check_lpips_size(*a.shape[1:3])
    total = torch.zeros(len(a))
    x, y = (_normalised(images, scale) for images in (a, b))
    with torch.no_grad():
        for k in range(5):
            if k in (1, 2):
                x, y = F.max_pool2d(x, 3, 2), F.max_pool2d(y, 3, 2)
            x, y = (F.relu(F.conv2d(z, weights.weight[k], weights.bias[k], STRIDE[k], PADDING[k])) for z in (x, y))
            difference = (_unit_length(x) - _unit_length(y)).square()
            total += torch.einsum("nchw,c->nhw", difference, weights.head[k]).mean((1, 2))
    return total.numpy()


def check_lpips_size(height: int, width: int) -> None:
    if min(height, width) < SMALLEST:
        raise UserError(
            f"LPIPS: images are {width}×{height}, and AlexNet needs at least {SMALLEST} pixels a side. "
            "Leave LPIPS out with `--lpips none`."
        )


def read_lpips_weights(path: str | os.PathLike[str], heads: str | os.PathLike[str] | None = None) -> LpipsWeights:
    """Read an .npz with `conv0_weight`, `conv0_bias`, … and `lin0` … `lin4`, or torchvision's AlexNet checkpoint.

    The checkpoint has no heads: they come from `heads`, by default the file torchmetrics carries where it is installed.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file of LPIPS weights. `odst data get lpips-alexnet` fetches one.")
    if path.suffix == ".npz":
        advice = "`odst data get lpips-alexnet` fetches one."
        with (
            refused(str(path), "an .npz of arrays", advice),
            open(path, "rb") as opened,
            np.load(opened, allow_pickle=False) as file,
        ):
            named = {name: torch.from_numpy(file[name]) for name in file.files if file[name].dtype.kind == "f"}
    else:
        named = {**_alexnet(path), **_heads(Path(heads) if heads is not None else _torchmetrics_heads(path))}
    weight = tuple(_take(named, f"conv{n}_weight", shape, path) for n, (shape, _) in CONVOLUTIONS.items())
    bias = tuple(_take(named, f"conv{n}_bias", shape[:1], path) for n, (shape, _) in CONVOLUTIONS.items())
    head = tuple(_take(named, f"lin{n}", shape[:1], path) for n, (shape, _) in CONVOLUTIONS.items())
    return LpipsWeights(weight, bias, head)


def _blur(n: int) -> Tensor:
    """The Gaussian window along n pixels as a matrix: products are far faster than convolutions of single planes."""
    offsets = torch.arange(-5, 6)
    window = torch.exp(-(offsets.double() ** 2) / (2 * 1.5**2))
    period = max(1, 2 * (n - 1))
    places = (torch.arange(n)[:, None] + offsets).remainder(period)
    places = torch.minimum(places, period - places).clamp(max=n - 1)  # reflected at both ends
    matrix = torch.zeros(n, n, dtype=torch.float64)
    matrix.scatter_add_(1, places, (window / window.sum()).expand(n, 11))
    return matrix.float()


def _planes(images: np.ndarray) -> Tensor:
    """uint8 (n, H, W, 3) → float32 (n, 3, H, W) in [0,1]."""
    return torch.from_numpy(np.array(images, order="C")).permute(0, 3, 1, 2).float() / 255


def _normalised(images: np.ndarray, scale: Scale) -> Tensor:
    x = _planes(images)
    if scale == "signed":
        x = 2 * x - 1
    return (x - torch.tensor(SHIFT).view(3, 1, 1)) / torch.tensor(SPREAD).view(3, 1, 1)


def _unit_length(features: Tensor) -> Tensor:
    return features / (features.square().sum(1, keepdim=True).sqrt() + 1e-10)


def _take(named: Mapping[str, Tensor], name: str, shape: tuple[int, ...], path: Path) -> Tensor:
    if name not in named:
        raise UserError(
            f"{path}: it has no {name}, so it is no LPIPS weights. `odst data get lpips-alexnet` fetches them."
        )
    value = named[name].float()
    if value.numel() != np.prod(shape):
        raise UserError(
            f"{path}: {name} has shape {tuple(value.shape)}, AlexNet's is {shape}. Give LPIPS' AlexNet weights."
        )
    return value.reshape(shape)


def _checkpoint(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        raise UserError(f"{path}: no such file of LPIPS weights. `odst data get lpips-alexnet` fetches one.")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        return {name: value for name, value in state.items() if isinstance(value, Tensor) and isinstance(name, str)}
    except Exception:  # torch raises its own, pickle's and zipfile's kinds, and advises to load what may run code
        raise UserError(f"{path}: not a checkpoint of plain tensors. Give an .npz or a state dict.") from None


def _alexnet(path: Path) -> dict[str, Tensor]:
    state = _checkpoint(path)
    named = {}
    for n, (_, layer) in CONVOLUTIONS.items():
        for kind in ("weight", "bias"):
            if f"features.{layer}.{kind}" in state:
                named[f"conv{n}_{kind}"] = state[f"features.{layer}.{kind}"]
    return named


def _heads(path: Path) -> dict[str, Tensor]:
    """The files of lpips and torchmetrics name them lin0.model.1.weight."""
    return {name.split(".")[0]: value for name, value in _checkpoint(path).items() if name.startswith("lin")}


def _torchmetrics_heads(path: Path) -> Path:
    found = find_spec("torchmetrics")
    if found is None or found.origin is None:
        raise UserError(
            f"{path}: an AlexNet checkpoint has no LPIPS heads. Install torchmetrics, whose heads are then read, or "
            "`odst data get lpips-alexnet`."
        )
    return Path(found.origin).parent / "functional" / "image" / "lpips_models" / "alex.pth"
