"""Networks that are not ours: timm's, and a user's own."""

import difflib
import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from odst.errors import UserError, one_line

RESIZE = "Set data.size (and build a packed pool again with --size)"


def hub_package(package: str, what: str) -> Any:
    """timm, transformers or the hub's own, for `what`, which the one line begins with if it does not import."""
    try:
        if package == "transformers":  # its top module is lazy: only this finds a torchvision that does not fit
            importlib.import_module("transformers.modeling_utils")
            importlib.import_module("transformers.image_processing_utils")
        return importlib.import_module(package)
    except Exception as error:  # a torchvision of another build raises RuntimeError, not ImportError
        raise UserError(
            f"{what}: needs {package}, which does not import here ({one_line(error)}). "
            f"pip install {package}, with a torchvision that fits this torch or with none."
        ) from error


def timm_network(name: str, architecture: str, K: int) -> nn.Module:
    timm = hub_package("timm", f"model: {name}")
    if architecture not in timm.list_models():
        near = difflib.get_close_matches(architecture, timm.list_models(), 3, 0.4)
        raise UserError(f"model: timm has no network {architecture!r}. Nearest: {', '.join(near) or 'none'}.")
    net: nn.Module = timm.create_model(architecture, num_classes=K)
    return net


def imported_here(name: str) -> Any:
    """What package.module:attribute names, of this folder too. Whatever goes wrong in a user's module comes out."""
    module_name, _, attribute = name.partition(":")
    sys.path.append(str(Path.cwd()))  # at the end: a file here shadows no installed package
    try:
        return getattr(importlib.import_module(module_name), attribute)
    finally:
        sys.path.pop()


def own_network(name: str, K: int) -> nn.Module:
    try:
        factory = imported_here(name)
        parameters = inspect.signature(factory).parameters
        positional = any(p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) for p in parameters.values())
        by_keyword = "num_classes" in parameters or not positional
        net = factory(num_classes=K) if by_keyword else factory(K)
    except (Exception, SystemExit) as error:  # sys:exit, or a script that ends when it is imported
        raise UserError(
            f"model: {name} does not give a network ({type(error).__name__}: {one_line(error)}). "
            "It must be package.module:factory, with factory(K) or factory(num_classes=K) returning a torch.nn.Module."
        ) from error
    if not isinstance(net, nn.Module):
        raise UserError(f"model: {name} returned a {type(net).__name__}. The factory must return a torch.nn.Module.")
    return net


@torch.no_grad()
def checked(name: str, net: nn.Module, K: int, shape: tuple[int, ...]) -> nn.Module:
    """Two rows through the network: does it take this shape, and give K logits for each?"""
    dummy = torch.zeros(2, *((shape[2], *shape[:2]) if len(shape) == 3 else shape))
    training = net.training
    try:
        logits = net.eval()(dummy)
    except Exception as error:
        raise UserError(
            f"model: {name} does not take {described(shape)} ({type(error).__name__}: {one_line(error)}). "
            f"{RESIZE}, or take another network."
        ) from error
    net.train(training)
    if not isinstance(logits, torch.Tensor) or logits.shape != (2, K):
        got = f"shape {tuple(logits.shape)}" if isinstance(logits, torch.Tensor) else f"a {type(logits).__name__}"
        raise UserError(f"model: {name} must return logits of shape (batch, {K}), for a batch of 2 it returned {got}.")
    return net


def described(shape: tuple[int, ...]) -> str:
    return f"{shape[0]}×{shape[1]} images" if len(shape) == 3 else f"feature vectors of length {shape[0]}"
