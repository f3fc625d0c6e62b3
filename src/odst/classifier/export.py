"""A run for other tools: its classifier as ONNX, its numbers as TensorBoard events. Both are extras."""

import contextlib
import io
import json
import socket
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from odst.classifier.merging import merged
from odst.classifier.model import Classifier
from odst.errors import UserError
from odst.files import whole
from odst.method.labelling import as_input
from odst.run.directory import RunDir
from odst.run.round_note import number_to_json
from odst.seeds import stream
from odst.vision.backbones import Backbone, onnx_file, open_backbone
from odst.vision.runtimes import filled
from odst.vision.sessions import needed

TOLERANCE = 1e-4  # between torch's probabilities and onnxruntime's
OPSET = 18


class Calibrated(nn.Module):
    """What leaves the house: uint8 images (n, height, width, 3) or features (n, d) in, calibrated probabilities and the log-odds
    log(p / (1 - p)) of each out, (n, K) both. Thresholds are on log-odds: a probability in float32 is soon a plain 1.

    With a backbone inside it takes images where the model takes vectors. Only its vectors are not rounded to float16.
    """

    def __init__(self, model: nn.Module, temperature: float, backbone: nn.Module | None = None):
        super().__init__()
        self.model, self.temperature, self.backbone = model, temperature, backbone

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = as_input(x)
        z = self.model(x if self.backbone is None else self.backbone(x)) / self.temperature
        best = torch.arange(z.shape[1]) == z.argmax(dim=1, keepdim=True)
        # as calibration.log_odds: 1 - p cancels where p is near 1, and that can be the most probable class alone
        log_p = z - _log_sum(z)
        others = _log_sum(z.masked_fill(best, -1e30))
        odds = torch.where(best, z - others, log_p - torch.log(1 - log_p.exp().masked_fill(best, 0)))
        return torch.softmax(z, dim=1), odds


def _log_sum(z: torch.Tensor) -> torch.Tensor:
    """log of the sum of exp(z), in plain steps: ONNX Runtime's own is wrong where one of them is -inf."""
    top = z.amax(dim=1, keepdim=True)
    return top + torch.log(torch.exp(z - top).sum(dim=1, keepdim=True))


def export_onnx(classifier: Classifier, file: Path) -> float:
    """Write the classifier with normalisation, temperature and softmax inside, and return the largest difference to torch.

    The file's metadata hold the classes, their thresholds as log-odds and how they apply, and where it came from.
    """
    onnx, onnxruntime = needed("onnx", "onnx"), needed("onnxruntime", "onnx")
    needed("onnxscript", "onnx")
    x = example(classifier)
    backbone = _backbone(classifier)
    head = Calibrated(classifier.model.cpu(), classifier.temperature).eval()
    with whole(file) as temporary:
        if backbone is None or backbone.module is not None:
            module = head if backbone is None else Calibrated(head.model, head.temperature, backbone.module).eval()
            proto = _exported(module, x)
            expected = _answers(module, x)
        else:  # an ONNX file: its graph and the classifier's become one
            vectors = backbone(x)
            source, normalise = onnx_file(backbone.spec)
            proto = merged(source, normalise, backbone.identity.size, _exported(head, vectors))
            expected = _answers(head, vectors)
        onnx.helper.set_model_props(proto, _metadata(classifier))
        onnx.checker.check_model(proto)
        temporary.write_bytes(proto.SerializeToString())
        session = onnxruntime.InferenceSession(str(temporary), providers=["CPUExecutionProvider"])
        p, odds = _run(session, x)
        difference = float(np.abs(p - expected[0]).max())
        slack = np.abs(odds - expected[1]).max() / max(1.0, np.abs(expected[1]).max())
        if not (difference <= TOLERANCE and slack <= 10 * TOLERANCE):
            raise UserError(
                f"{file}: onnxruntime and torch differ by {max(difference, slack):.1e}, more than {TOLERANCE}. Nothing was written; "
                "this network does not export faithfully."
            )
    return difference


def _backbone(classifier: Classifier) -> Backbone | None:
    encoding = classifier.encoding
    if encoding is None:
        return None
    if encoding.side is not None:
        raise UserError(
            f"{classifier.path}: its vectors were made from stored pixels of {encoding.side} a side, which an "
            "exported model does not do. Serve with odst.load(), or embed the pool's originals and run again."
        )
    return open_backbone(encoding.embedder.spec)


def _exported(module: nn.Module, x: np.ndarray) -> Any:
    """A ModelProto."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):  # the exporter talks to itself
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            module,
            (torch.from_numpy(x[:2]),),
            input_names=["images" if x.ndim == 4 else "features"],
            output_names=["probabilities", "log_odds"],
            dynamic_shapes=({0: torch.export.Dim("n")},),
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    return program.model_proto


@torch.inference_mode()
def _answers(module: nn.Module, x: np.ndarray) -> list[np.ndarray]:
    return [one.numpy() for one in module(torch.from_numpy(x))]


def _run(session: Any, x: np.ndarray) -> list[np.ndarray]:
    """In pieces of as many rows as the graph takes, if that is a fixed number; the last one is filled up."""
    (given,) = session.get_inputs()
    n = given.shape[0] if isinstance(given.shape[0], int) else len(x)
    rows = filled(x, n)
    pieces = [session.run(None, {given.name: rows[i : i + n]}) for i in range(0, len(rows), n)]
    return [np.concatenate(some)[: len(x)] for some in zip(*pieces, strict=True)]


def example(classifier: Classifier, n: int = 32) -> np.ndarray:
    """Rows to compare on: noise from dark to bright, or from small to large."""
    rng, shape = stream(0, "export"), classifier.shape
    if classifier.encoding is not None:
        shape = (classifier.encoding.identity.size,) * 2 + (3,)
    scale = np.linspace(0.05, 1, n).reshape(-1, *[1] * len(shape))
    if len(shape) == 3:
        return (rng.integers(0, 256, size=(n, *shape)) * scale).astype(np.uint8)
    return (rng.normal(size=(n, *shape)) * 3 * scale).astype(np.float32)


def _metadata(classifier: Classifier) -> dict[str, str]:
    thresholds, encoding = classifier.thresholds, classifier.encoding
    run = classifier.of_run("compare with")
    audit = run.audit(classifier.round) if isinstance(classifier.round, int) else None
    return {
        **({} if audit is None else {"certificates": json.dumps(audit["certificate"], ensure_ascii=False)}),
        **({} if encoding is None else {"encoder": json.dumps(encoding.to_json())}),
        "classes": json.dumps(list(classifier.classes), ensure_ascii=False),
        "thresholds": json.dumps([thresholds[name] for name in classifier.classes]),
        "log_odds_thresholds": json.dumps([number_to_json(one) for one in classifier.tau]),
        "unknown": 'the class with the largest log_odds counts only if they exceed its log_odds_thresholds ("inf": never); '
        "`thresholds` are the same as probabilities, for people: rounded, they may read 1.0",
        "round": str(classifier.round),
        "model_hash": run.note(classifier.round)["model_hash"],
    }


def export_tensorboard(run: RunDir, folder: Path) -> int:
    """Every number of metrics.jsonl as a scalar over rounds; returns how many."""
    records = needed("tensorboard.summary.writer.record_writer", "tensorboard")
    event = needed("tensorboard.compat.proto.event_pb2", "tensorboard").Event
    scalar = needed("torch.utils.tensorboard.summary", "tensorboard").scalar
    now, count = time.time(), 0
    # SummaryWriter writes from a thread of its own, whose faults nobody can catch, and a piece at a time
    with (
        whole(folder / f"events.out.tfevents.{now:.0f}.{socket.gethostname()}") as temporary,
        temporary.open("wb") as file,
    ):
        writer = records.RecordWriter(file)
        writer.write(event(wall_time=now, file_version="brain.Event:2").SerializeToString())
        for one in run.metrics():
            for name, value in _scalars(one):
                written = event(wall_time=now, step=one["round"], summary=scalar(name, value))
                writer.write(written.SerializeToString())
                count += 1
        writer.flush()
    return count


def _scalars(values: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for key, value in values.items():
        if isinstance(value, dict):
            found += _scalars(value, f"{prefix}{key}/")
        elif isinstance(value, int | float) and key != "round":
            found.append((prefix + key, value))
    return found
