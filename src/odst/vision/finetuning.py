"""Networks that begin with what others have learnt: where the weights come from, which layer is the head, what is frozen."""

from pathlib import Path
from typing import Any

import torch
from torch import nn

from odst.errors import UserError, one_line
from odst.vision.backbones import open_backbone
from odst.vision.foreign import checked, described, own_network
from odst.vision.hubs import blank_timm
from odst.vision.packaged import PACKAGED
from odst.vision.weights import read_weights, take_weights


def head_of(net: nn.Module) -> nn.Module:
    """What gives the logits, and everything else is the backbone: what `get_classifier()` names, else the last layer with
    weights in the order in which the network lists them."""
    for part in net.modules():
        names: Any = getattr(part, "get_classifier", None)
        named = names() if callable(names) else None
        if isinstance(named, nn.Module) and any(True for _ in named.parameters()):
            return named
    return [part for part in net.modules() if any(True for _ in part.parameters(recurse=False))][-1]


def freeze_backbone(net: nn.Module) -> None:
    """No gradient for anything but the head."""
    net.requires_grad_(False)
    head_of(net).requires_grad_(True)


def begun_network(
    name: str, K: int, shape: tuple[int, ...], pretrained: bool, weights: str | None, blank: bool
) -> nn.Module:
    """A network that has learnt something already."""
    if name in PACKAGED or name.startswith("timm:"):
        if len(shape) != 3:
            raise UserError(f"model: {name} takes images, the data are {described(shape)}. Take mlp.")
        net = _on_backbone(name, K, max(shape[:2]), weights, pretrained=pretrained, blank=blank)
    elif ":" not in name or pretrained:
        known = ", ".join(PACKAGED)
        raise UserError(
            f"model: {name} has no weights of its own to begin with. Set model.weights = FILE for a network of yours "
            f"(package.module:factory), or take timm:NAME or one of {known} with model.pretrained = true."
        )
    else:
        net = own_network(name, K)
        if weights and not blank:
            _load_backbone(name, net, weights)
    return checked(name, net, K, shape)


def _on_backbone(name: str, K: int, side: int, weights: str | None, *, pretrained: bool, blank: bool) -> nn.Module:
    """A backbone, which normalises by itself, and a fresh linear head. `blank` leaves the backbone's own weights out."""
    if blank or not (pretrained or weights):
        module = PACKAGED[name].build() if name in PACKAGED else blank_timm(name.removeprefix("timm:"))
    elif name in PACKAGED and weights:
        module = PACKAGED[name].build()
        _load(name, module, weights, {})
    else:
        opened = open_backbone(f"{name}{f'#{weights}' if weights else ''}@{side}", runtime="torch")
        assert opened.module is not None
        module = opened.module
    with torch.no_grad():
        width = module.eval()(torch.zeros(2, 3, side, side)).shape[1]
    return nn.Sequential(module, nn.Linear(width, K)).train()


def _load_backbone(name: str, net: nn.Module, weights: str) -> None:
    """Weights of a file into all of the network but its head, which is the new task's own."""
    head = {id(value) for value in head_of(net).state_dict(keep_vars=True).values()}
    fresh = {key: value for key, value in net.state_dict(keep_vars=True).items() if id(value) in head}
    _load(name, net, weights, fresh)


def _load(name: str, net: nn.Module, weights: str, fresh: dict[str, torch.Tensor]) -> None:
    if not Path(weights).is_file():
        raise UserError(f"model.weights: there is no file {weights}.")
    try:
        found = read_weights(Path(weights))
    except Exception as error:  # a pickle that is more than tensors, a damaged file
        raise UserError(
            f"model.weights: {weights} holds no plain tensors by name ({type(error).__name__}: {one_line(error)}). "
            "Save it with torch.save(net.state_dict(), FILE) or as safetensors."
        ) from error
    take_weights(f"model.weights: {weights} does not fit {name}", net, found, fresh)
