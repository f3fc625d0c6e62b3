"""Graphs in ONNX Runtime, without torch: a process that only decodes and embeds starts in a third of the time so."""

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from odst.errors import UserError

Run = Callable[[np.ndarray], np.ndarray]  # uint8 (n, size, size, 3) -> float32 (n, d)
BATCH = 16  # pictures at a time; with 64 both runtimes are slower on a CPU, its caches overflow


def open_session(model: bytes | str, threads: int, *, cuda: bool = False) -> Any:
    """An InferenceSession of a graph or of a file."""
    onnxruntime = needed("onnxruntime")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # a warning on stderr for each unused initialiser helps nobody
    wanted = ["CUDAExecutionProvider"] * cuda + ["CPUExecutionProvider"]
    available = onnxruntime.get_available_providers()
    return onnxruntime.InferenceSession(model, options, providers=[name for name in wanted if name in available])


def open_graph(graph: bytes, threads: int) -> Run:
    """A graph of `runtimes.onnx_graph`."""
    session = open_session(graph, threads)
    return lambda images: session.run(None, {"images": images})[0]


def in_batches(run: Run, images: np.ndarray, dimension: int) -> np.ndarray:
    out = np.empty((len(images), dimension), np.float32)
    for i in range(0, len(images), BATCH):
        out[i : i + BATCH] = run(np.ascontiguousarray(images[i : i + BATCH]))
    return out


def needed(module: str, extra: str = "backbone") -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        package = module.split(".")[0]
        raise UserError(f"{package} is not installed. It comes with an extra: pip install 'odst[{extra}]'") from None
