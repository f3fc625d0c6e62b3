"""Weights in files: how they are read, whether they fit a network, and hashes of what decides its answers."""

import hashlib
import inspect
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from odst.errors import UserError
from odst.files import digest, sha256


def read_weights(file: Path) -> dict[str, Any]:
    """Tensors by name. A pickle that holds more than tensors is not opened."""
    if file.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(file)
    return torch.load(file, map_location="cpu", weights_only=True)


def take_weights(what: str, net: nn.Module, found: Mapping[str, Any], fresh: Collection[str] = ()) -> None:
    """Every tensor of the network but the `fresh` ones, by its name; what is found beyond them is left. One line, which
    begins with `what`, if one is missing or of another shape: it would stay as it was drawn."""
    own = {key: value for key, value in net.state_dict().items() if key not in fresh}
    wrong = [key for key, value in own.items() if getattr(found.get(key), "shape", None) != value.shape]
    if wrong:
        raise UserError(
            f"{what}: {wrong[0]} is missing or of another shape ({len(wrong)} of {len(own)} such). "
            "Take a file that was saved from this network."
        )
    net.load_state_dict({key: found[key] for key in own}, strict=False)


def state_hash(state: Mapping[str, torch.Tensor]) -> str:
    """SHA-256 of names, types, shapes and bytes: the same however the file was cut."""
    total = hashlib.sha256()
    for name, value in sorted(state.items()):
        total.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        total.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()


def encoder_hash(
    state: Mapping[str, torch.Tensor],
    mean: Sequence[float],
    std: Sequence[float],
    config: Mapping[str, Any] | None = None,
) -> str:
    """Of the weights, of what is done to pixels before them, and of the settings of the network that no weight shows."""
    return digest([state_hash(state), list(mean), list(std), config])


def network_key(name: str, model: nn.Module) -> str:
    """A hash of what a network is: the shapes of its weights, and the code of a factory of one's own and of those of its parts
    that are not torch's or ours."""
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    own = {type(part) for part in model.modules() if type(part).__module__.split(".")[0] not in ("torch", "odst")}
    factory = sys.modules.get(name.partition(":")[0]) if ":" in name else None
    files = {file for one in [*own, *([factory] if factory else [])] if (file := _source(one)) is not None}
    return digest([shapes, repr(model), sorted(sha256(file) for file in files)])


def _source(code: Any) -> str | None:
    try:
        return inspect.getsourcefile(code)
    except (TypeError, OSError):  # made at a prompt
        return None
