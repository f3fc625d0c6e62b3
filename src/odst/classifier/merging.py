"""A backbone that is an ONNX file and a classifier, as one graph: bytes in, probabilities and log-odds out."""

from pathlib import Path
from typing import Any

import numpy as np

from odst.errors import UserError, one_line
from odst.vision.mobilenet import Normalise
from odst.vision.runtimes import Layout, layout_of
from odst.vision.sessions import needed, open_session


def merged(file: Path, normalise: Normalise | None, size: int, classifier: Any) -> Any:
    """A ModelProto: `images`, uint8 (n, size, size, 3), through the encoder of `file` into `classifier`, a ModelProto that
    takes vectors. Where the encoder was exported for a fixed number of pictures, so is this."""
    onnx, compose = needed("onnx"), needed("onnx.compose")
    layout = layout_of(file, open_session(str(file), 1))
    try:
        encoder, classifier = _of_one_opset(onnx.load(str(file)), classifier)
        encoder = compose.add_prefix(encoder, "backbone/")
        classifier = compose.add_prefix(classifier, "classifier/", rename_outputs=False)
        pixels = _pixels(layout, normalise, size, encoder)
        seen = compose.merge_models(
            pixels,
            encoder,
            [("pixels", f"backbone/{layout.input}")],
            outputs=[f"backbone/{layout.output}"],  # what only others need is left out
        )
        vectors = seen.graph.output[0].type.tensor_type.elem_type
        seen = _single(seen) if vectors != onnx.TensorProto.FLOAT else seen
        return compose.merge_models(seen, classifier, [(seen.graph.output[0].name, classifier.graph.input[0].name)])
    except Exception as error:  # of a graph that is not ours, in any type
        raise UserError(
            f"{file}: it cannot be joined with the classifier ({one_line(error)}). Serve with odst.load(), or export the "
            "encoder again with opset 18."
        ) from error


def _of_one_opset(encoder: Any, classifier: Any) -> tuple[Any, Any]:
    """Both at the newer of their operator sets."""
    convert = needed("onnx.version_converter").convert_version
    theirs, ours = (_opset(model) for model in (encoder, classifier))
    if theirs < ours:
        encoder = convert(encoder, ours)
    elif ours < theirs:
        classifier = convert(classifier, theirs)
    encoder.ir_version = classifier.ir_version = max(encoder.ir_version, classifier.ir_version)
    return encoder, classifier


def _opset(model: Any) -> int:
    return next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))


def _pixels(layout: Layout, normalise: Normalise | None, size: int, encoder: Any) -> Any:
    """`images` to `pixels`: what the encoder takes, as `runtimes.open_onnx` makes it."""
    steps: list[tuple[str, Any, dict[str, Any]]] = []
    if layout.dtype is not np.uint8:
        steps += [("Cast", None, {"to": _code("FLOAT")}), ("Div", np.float32(255), {})]
        if normalise is not None:  # channels stand last here
            mean, std = (one.numpy().reshape(3) for one in (normalise.mean, normalise.std))
            steps += [("Sub", mean, {}), ("Div", std, {})]
    if not layout.last:
        steps.append(("Transpose", None, {"perm": [0, 3, 1, 2]}))
    if layout.dtype is np.float16:
        steps.append(("Cast", None, {"to": _code("FLOAT16")}))
    kind = {"uint8": "UINT8", "float32": "FLOAT", "float16": "FLOAT16"}[np.dtype(layout.dtype).name]
    n = layout.batch or "n"
    shape = [n, size, size, 3] if layout.last else [n, 3, size, size]
    helper = needed("onnx.helper")
    given = helper.make_tensor_value_info("images", _code("UINT8"), [n, size, size, 3])
    made = helper.make_tensor_value_info("pixels", _code(kind), shape)
    return _chain(steps or [("Identity", None, {})], given, made, encoder)


def _single(seen: Any) -> Any:
    """Vectors of half precision, or of double, as the classifier takes them."""
    name = seen.graph.output[0].name
    node = needed("onnx.helper").make_node("Cast", [name], ["vectors"], to=_code("FLOAT"))
    seen.graph.node.append(node)
    seen.graph.output[0].name = "vectors"
    seen.graph.output[0].type.tensor_type.elem_type = _code("FLOAT")
    return seen


def _chain(steps: list[tuple[str, Any, dict[str, Any]]], given: Any, made: Any, like: Any) -> Any:
    """One operator after the other, each with its constant, in the operator set of another model."""
    helper, numpy_helper = needed("onnx.helper"), needed("onnx.numpy_helper")
    nodes, constants, x = [], [], given.name
    for i, (operator, constant, attributes) in enumerate(steps):
        inputs, out = [x], made.name if i == len(steps) - 1 else f"step{i}"
        if constant is not None:
            constants.append(numpy_helper.from_array(np.asarray(constant), f"constant{i}"))
            inputs.append(constants[-1].name)
        nodes.append(helper.make_node(operator, inputs, [out], **attributes))
        x = out
    graph = helper.make_graph(nodes, "pixels", [given], [made], constants)
    return helper.make_model(graph, opset_imports=like.opset_import, ir_version=like.ir_version)


def _code(kind: str) -> int:
    return needed("onnx").TensorProto.DataType.Value(kind)
