"""A classifier as a folder to hand on: model.safetensors, config.json with labels, thresholds and preprocessing, README.md.

Nothing in it is code or a pickle. A network of timm's has timm's own names in it, so that timm loads it too.
"""

import json
import shutil
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as load_weights
from safetensors.torch import save as save_weights
from torch import nn

from odst.classifier.model import Classifier
from odst.data.decoding import Fit
from odst.data.encoding import Encoding
from odst.data.vectors import Embedder
from odst.errors import UserError, one_line
from odst.files import digest, sha256, whole_folder, write_json, write_text
from odst.run.directory import RunDir, Which
from odst.run.round_folder import model_file
from odst.run.trust import check_code, imported_by
from odst.seeds import stream
from odst.training.precision import pick_device
from odst.vision.backbones import onnx_file
from odst.vision.identity import Identity
from odst.vision.networks import Freeze, make_network

CONFIG, CARD, OURS, SEAL = "config.json", "README.md", "odst", "digest"
LEVELS = ("mean", "std")  # what our networks normalise with; timm's files have no place for them


class Network(BaseModel):
    """What make_network is told."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    name: str
    pretrained: bool
    weights: str | None
    freeze: Freeze


class ModelConfig(BaseModel):
    """`odst` of config.json, which holds a hash of it beside it."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())

    format: Literal[1]
    version: str  # of the odst that wrote it
    round: Which
    model_hash: str  # of the run's weights
    weights_hash: str  # of the file here
    network: Network
    names: Literal["odst", "timm"]  # whose names the weights have
    levels: dict[str, list[float]]  # of names = timm: mean and std by channel
    shape: tuple[PositiveInt, ...]  # of a row
    classes: tuple[Annotated[str, Field(min_length=1)], ...]
    temperature: PositiveFloat
    thresholds: tuple[float | None, ...]  # log-odds that a prediction must exceed; None: the class is closed
    size: Annotated[int, Field(ge=1, le=1 << 16)]
    fit: Fit
    backbone: str | None  # its spec; a file lies in this folder
    encoder: dict[str, Any] | None  # whose vectors it takes


# writing ---------------------------------------------------------------------------------------------------------------------


def write_folder(classifier: Classifier, out: Path, card: str) -> None:
    """The folder, which must not exist yet; `card` is its README.md. What was written is loaded and compared before it is there."""
    run = classifier.of_run("make a folder of")
    if out.exists() or out.is_symlink():
        raise UserError(
            f"{out}: it is there already, and nothing is overwritten. Choose another folder, or move it away."
        )
    network = run.config().model.network()
    if network["weights"]:  # what it began with is in the weights, and the file's place nobody's business
        network |= {"weights": Path(network["weights"]).name}
    names = _timm_names(classifier.model, network["name"])
    state = {key: value.cpu().contiguous() for key, value in classifier.model.state_dict().items()}
    levels = {} if names is None else {key: state.pop(key).flatten().tolist() for key in LEVELS}
    with whole_folder(out) as folder:
        write = state if names is None else {names[key]: value for key, value in state.items()}
        model_file(folder).write_bytes(save_weights(write, {"format": "pt"}))
        ours = ModelConfig(
            format=1,
            version=run.info().get("versions", {}).get("odst", ""),
            round=classifier.round,
            model_hash=run.note(classifier.round)["model_hash"],
            weights_hash=sha256(model_file(folder)),
            network=Network(**network),
            names="odst" if names is None else "timm",
            levels=levels,
            shape=classifier.shape,
            classes=classifier.classes,
            temperature=classifier.temperature,
            thresholds=tuple(None if np.isposinf(one) else float(max(one, -1e30)) for one in classifier.tau),
            size=classifier.size,
            fit=classifier.fit,
            backbone=_carried(classifier, folder),
            encoder=None if classifier.encoding is None else classifier.encoding.to_json(),
        )
        values: dict[str, Any] = {"id2label": dict(enumerate(classifier.classes))}
        if names is not None:
            values |= _timm_config(classifier, network["name"], levels)
        dumped = ours.model_dump(mode="json")
        write_json(folder / CONFIG, {**values, OURS: dumped | {SEAL: digest(dumped)}})
        write_text(folder / CARD, card)
        _check_same(classifier, read_folder(folder, device=classifier.device, trust_code=True), out)


def _carried(classifier: Classifier, folder: Path) -> str | None:
    """The backbone's spec as the folder has it; an ONNX file comes along."""
    encoding = classifier.encoding
    if encoding is None:
        return None
    spec = encoding.embedder.spec
    kind, _, rest = spec.partition(":")
    if kind == "onnx":
        file, _ = onnx_file(spec)
        if encoding.identity.weights == sha256(file):  # else its weights lie in further files
            shutil.copyfile(file, folder / file.name)
            return spec.replace(rest.partition("?")[0].partition("@")[0], file.name, 1)
    elif imported_by(spec) is None and "#" not in rest and not Path(rest.partition("@")[0]).is_dir():
        return spec
    raise UserError(
        f"{classifier.path}: its backbone {encoding.identity.name} lies on this machine, and a model folder does not hold it. "
        "Make one file of both with --onnx FILE."
    )


def _check_same(classifier: Classifier, read: Classifier, out: Path) -> None:
    """Loaded again it gives the same probabilities, to the bit."""
    rng, n = stream(0, "export"), 16
    if len(classifier.shape) == 3:
        x = rng.integers(0, 256, (n, *classifier.shape)).astype(np.uint8)
    else:
        x = rng.normal(size=(n, *classifier.shape)).astype(np.float16)
    if not np.array_equal(classifier.predict_proba(x), read.predict_proba(x)):
        raise UserError(f"{out}: what was written gives other probabilities than {classifier.path}. Nothing was kept.")


# timm's names ----------------------------------------------------------------------------------------------------------------


def _timm_names(model: nn.Module, name: str) -> dict[str, str] | None:
    """Our names of a timm network's weights -> timm's; None for other networks, and where timm has no single layer for our head."""
    if not name.startswith("timm:"):
        return None
    keys = [key for key in model.state_dict() if key not in LEVELS]
    if not any(key.startswith("net.0.1.") for key in keys):  # a whole network of timm's
        return {key: key.removeprefix("net.") for key in keys}
    backbone: Any = model.get_submodule("net.0.1")  # with a linear head of ours
    head = backbone.default_cfg.get("classifier")
    if not isinstance(head, str):
        return None
    own = {f"net.1.{part}": f"{head}.{part}" for part in ("weight", "bias")}
    return {key: own.get(key, key.removeprefix("net.0.1.")) for key in keys}


def _timm_config(classifier: Classifier, name: str, levels: dict[str, list[float]]) -> dict[str, Any]:
    """What timm reads of a folder on a hub."""
    model: Any = classifier.model
    begun = any(key.startswith("net.0.1.") for key in model.state_dict())
    net: Any = model.get_submodule("net.0.1" if begun else "net")
    if begun:  # which normalises by itself
        own: Any = model.get_submodule("net.0.0")
        levels = {key: getattr(own, key).flatten().tolist() for key in LEVELS}
    shown = {
        "input_size": [3, *classifier.shape[:2]],
        "interpolation": "bicubic",
        "crop_pct": 1.0,
        "crop_mode": "center",
        "classifier": net.default_cfg.get("classifier"),
        "first_conv": net.default_cfg.get("first_conv"),
        **levels,
    }
    return {
        "architecture": name.removeprefix("timm:").partition(".")[0],
        "num_classes": len(classifier.classes),
        "num_features": int(net.num_features),
        "label_names": list(classifier.classes),
        "pretrained_cfg": {**shown, "num_classes": len(classifier.classes)},
    }


# reading ---------------------------------------------------------------------------------------------------------------------


def is_model_folder(path: Path) -> bool:
    """A run directory has no such config."""
    return (path / CONFIG).is_file() and not RunDir(path).exists()


def read_folder(folder: Path, *, device: str = "auto", trust_code: bool = False) -> Classifier:
    ours, file = _read_config(folder / CONFIG), model_file(folder)
    check_code(folder, ours.network.name, trust_code)
    model = make_network(K=len(ours.classes), shape=ours.shape, blank=True, **ours.network.model_dump())
    try:
        raw = file.read_bytes()
        state = load_weights(raw)
        if ours.names == "timm":
            state = _renamed(state, ours, model)
        model.load_state_dict(state)
    except (SafetensorError, RuntimeError, KeyError, OSError) as error:
        raise UserError(f"{file}: these weights do not fit {folder / CONFIG} ({one_line(error)}).") from None
    if sha256(file) != ours.weights_hash:
        raise UserError(f"{file}: this file has changed since the folder was written. Fetch it again.")
    return Classifier(
        path=folder,
        run=None,
        round=ours.round,
        classes=ours.classes,
        shape=ours.shape,
        temperature=ours.temperature,
        tau=np.array([np.inf if one is None else one for one in ours.thresholds]),
        model=model.eval(),
        device=pick_device(device),
        size=ours.size,
        fit=ours.fit,
        see=partial(_see, folder.absolute(), ours, trust_code),
    )


def _read_config(file: Path) -> ModelConfig:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
        ours = dict(value[OURS])
        seal = ours.pop(SEAL, None)
        found = ModelConfig.model_validate(ours)
        if not len(found.thresholds) == len(found.classes) == len(set(found.classes)) or len(found.shape) not in (1, 3):
            raise ValueError("its parts do not fit each other")
        if seal != digest(ours):
            raise UserError(f"{file}: this file has changed since it was written. Fetch it again.")
        return found
    except (ValidationError, ValueError, KeyError, TypeError, RecursionError) as error:
        why = "it has no part `odst`" if isinstance(error, KeyError) else one_line(error)
        raise UserError(
            f"{file}: not a config that `odst export --hub-folder` has written, or a newer one ({why})."
        ) from None


def _renamed(state: dict[str, torch.Tensor], ours: ModelConfig, model: nn.Module) -> dict[str, torch.Tensor]:
    names = _timm_names(model, ours.network.name) or {}
    levels = {key: torch.tensor(ours.levels[key]).view(1, -1, 1, 1) for key in LEVELS}
    return {own: state[theirs] for own, theirs in names.items()} | levels


def _see(folder: Path, ours: ModelConfig, trust_code: bool) -> Encoding | None:
    if ours.backbone is None or ours.encoder is None:
        return None
    check_code(folder, ours.backbone, trust_code)
    kind, _, rest = ours.backbone.partition(":")
    spec = f"{kind}:{folder / Path(rest).name}" if kind == "onnx" else ours.backbone
    embedder = Embedder(spec)
    was = Identity.from_json({name: ours.encoder.get(name) for name in embedder.identity.to_json()})
    if was != embedder.identity:
        raise UserError(
            f"{folder}: its classifier takes vectors of {was}, and the backbone here is {embedder.identity}. Install the first one."
        )
    return Encoding(embedder, ours.encoder.get("side"))
