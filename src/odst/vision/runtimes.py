"""How a backbone runs: uint8 pictures (n, size, size, 3) in, float32 vectors (n, d) out, in torch or in ONNX Runtime.

On a CPU the networks of mobilenet.py run in ONNX Runtime, which is the faster (docs/embeddings.md has the numbers).
Their graph is written out here: torch's exporter needs six seconds for it. It travels to processes that do without torch.
"""

import copy
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from odst.errors import UserError, one_line
from odst.vision.mobilenet import InvertedResidual, Normalise, SamePadding
from odst.vision.sessions import BATCH, Run, needed, open_session

OPSET = 18


class Encoder(NamedTuple):
    """A backbone before it runs."""

    module: nn.Module | None  # float NCHW in [0, 1] -> (n, d); None: an ONNX file
    size: int
    revision: str
    weights: str  # SHA-256


def fold(module: nn.Module) -> nn.Module:
    """A copy for inference: each batch-norm that follows a convolution in a sequence is inside that convolution."""
    module = copy.deepcopy(module).eval()
    for sequence in [part for part in module.modules() if isinstance(part, nn.Sequential)]:
        for i in range(len(sequence) - 1):
            conv, norm = sequence[i], sequence[i + 1]
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                sequence[i], sequence[i + 1] = fuse_conv_bn_eval(conv, norm), nn.Identity()
    return module


def in_torch(module: nn.Module, device: torch.device) -> Run:
    """`module` takes float NCHW in [0, 1]. It is moved to the device and stays the caller's.

    A batch is filled up to BATCH: torch picks its kernels by the batch size, and then the last bits of a vector would
    depend on how many pictures stood beside it. ONNX Runtime's convolutions do not, its matrix products do.
    """
    module = module.eval().to(device).to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @torch.inference_mode()
    def run(images: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(filled(images, BATCH)).to(device).permute(0, 3, 1, 2)  # a view; channels-last in memory
        return module(x.float().div_(255)).float().cpu().numpy()[: len(images)]

    return run


def filled(x: np.ndarray, batch: int) -> np.ndarray:
    """With black pictures, to a multiple of `batch`."""
    spare = np.zeros((-len(x) % batch, *x.shape[1:]), x.dtype)
    return np.concatenate([x, spare]) if len(spare) else x


def onnx_graph(module: nn.Module) -> bytes:
    """A network of mobilenet.py, batch-norm folded, as an ONNX file: `images`, uint8 NHWC, in; `vectors` out."""
    helper, numpy_helper = needed("onnx.helper"), needed("onnx.numpy_helper")
    FLOAT, UINT8 = (needed("onnx").TensorProto.DataType.Value(name) for name in ("FLOAT", "UINT8"))
    nodes: list[Any] = []
    constants: list[Any] = []

    def node(operator: str, *inputs: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(operator, list(inputs), [f"x{len(nodes)}"], **attributes))
        return nodes[-1].output[0]

    def constant(value: torch.Tensor | float) -> str:
        array = torch.as_tensor(value, dtype=torch.float32).detach().numpy()
        constants.append(numpy_helper.from_array(array, f"w{len(constants)}"))
        return constants[-1].name

    def layer(part: nn.Module, x: str) -> str:
        match part:
            case nn.Sequential():
                for inner in part:
                    x = layer(inner, x)
                return x
            case InvertedResidual():
                return node("Add", x, layer(part.body, x)) if part.shortcut else layer(part.body, x)
            case Normalise():
                return node("Div", node("Sub", x, constant(part.mean)), constant(part.std))
            case nn.Conv2d():
                assert part.bias is not None and isinstance(part.padding, tuple)
                same = part.padding == (0, 0) and part.stride != (1, 1)  # SamePadding stands before it
                padding = {"auto_pad": "SAME_UPPER"} if same else {"pads": [*part.padding, *part.padding]}
                sizes = {"kernel_shape": part.kernel_size, "strides": part.stride, "group": part.groups}
                return node("Conv", x, constant(part.weight), constant(part.bias), **sizes, **padding)
            case nn.ReLU6():
                return node("Clip", x, constant(0.0), constant(6.0))
            case nn.AdaptiveAvgPool2d():
                return node("GlobalAveragePool", x)
            case nn.Flatten():
                return node("Flatten", x)
            case SamePadding() | nn.Identity():
                return x
        raise AssertionError(f"no ONNX for a {type(part).__name__}")

    pixels = node("Cast", node("Transpose", "images", perm=[0, 3, 1, 2]), to=FLOAT)
    vectors = layer(fold(module), node("Div", pixels, constant(255.0)))
    nodes.append(helper.make_node("Identity", [vectors], ["vectors"]))
    inputs = [helper.make_tensor_value_info("images", UINT8, ["n", "size", "size", 3])]
    outputs = [helper.make_tensor_value_info("vectors", FLOAT, ["n", "d"])]
    graph = helper.make_graph(nodes, "backbone", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
    return model.SerializeToString()


class Layout(NamedTuple):
    """How an exported encoder takes pictures and gives vectors."""

    input: str
    dtype: type  # np.uint8, np.float32 or np.float16
    last: bool  # NHWC; else NCHW
    batch: int | None  # it was exported for so many pictures at a time
    output: str


def open_onnx(file: Path, size: int | None, normalise: Normalise | None, device: torch.device) -> tuple[Run, int]:
    """Any exported encoder, and the size of its pictures. Float inputs get pixels in [0, 1], normalised if asked for."""
    try:
        session = open_session(str(file), torch.get_num_threads(), cuda=device.type == "cuda")
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{file}: ONNX Runtime cannot read it ({one_line(error)}). Export it again.") from error
    layout = layout_of(file, session)
    if normalise is not None and layout.dtype is np.uint8:
        raise UserError(f"{file}: it takes bytes, so its normalisation is inside. Leave ?norm= out.")
    shape = session.get_inputs()[0].shape
    size = _side(file, shape[1:3] if layout.last else shape[2:], size)

    def run(images: np.ndarray) -> np.ndarray:
        x = images
        if layout.dtype is not np.uint8:
            pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float().div_(255)
            pixels = pixels if normalise is None else normalise(pixels)
            x = (pixels.permute(0, 2, 3, 1) if layout.last else pixels).contiguous().numpy().astype(layout.dtype)
        elif not layout.last:
            x = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
        # as in torch: with a free number of pictures its kernels, and so the last bits, would go by how many there are
        batch = layout.batch or BATCH
        parts = np.split(x := filled(x, batch), len(x) // batch)
        return np.concatenate([session.run([layout.output], {layout.input: part})[0] for part in parts])[: len(images)]

    return run, size


def layout_of(file: Path, session: Any) -> Layout:
    inputs = session.get_inputs()
    shape = inputs[0].shape
    if len(inputs) != 1 or len(shape) != 4 or not (_may_be(shape[1], 3) or _may_be(shape[3], 3)):
        said = ", ".join(f"{i.name} {i.type} {i.shape}" for i in inputs)
        raise UserError(f"{file}: a backbone takes one batch of colour pictures, this one takes {said}.")
    types = {"tensor(uint8)": np.uint8, "tensor(float)": np.float32, "tensor(float16)": np.float16}
    if inputs[0].type not in types:
        raise UserError(f"{file}: pictures go in as {', '.join(types)}, this one takes {inputs[0].type}.")
    last = (inputs[0].type == "tensor(uint8)" and _may_be(shape[3], 3)) or not _may_be(shape[1], 3)
    batch = shape[0] if isinstance(shape[0], int) else None
    return Layout(inputs[0].name, types[inputs[0].type], last, batch, _vector_output(file, session.get_outputs()))


def _may_be(dimension: Any, value: int) -> bool:
    return not isinstance(dimension, int) or dimension == value


def _side(file: Path, sides: list[Any], wanted: int | None) -> int:
    fixed = {side for side in sides if isinstance(side, int)}
    if len(fixed) > 1 or (wanted and fixed and fixed != {wanted}):
        raise UserError(f"{file}: it takes pictures of {sides[1]}×{sides[0]}, not {wanted or 'square ones'}.")
    if not fixed and wanted is None:
        raise UserError(f"{file}: it takes pictures of any size. Say which: onnx:{file}@224")
    return fixed.pop() if fixed else int(wanted or 0)


def _vector_output(file: Path, outputs: list[Any]) -> str:
    """`image_embeds` and `pooler_output` are what exporters call the vector; else the first that has one row a picture."""
    vectors = [output.name for output in outputs if len(output.shape) == 2]
    if not vectors:
        said = ", ".join(f"{output.name} {output.shape}" for output in outputs)
        raise UserError(
            f"{file}: a backbone gives one vector a picture, this one gives {said}. Export it with pooling."
        )
    return next((name for name in ("image_embeds", "pooler_output") if name in vectors), vectors[0])
