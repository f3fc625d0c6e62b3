"""A run whose backbone is an ONNX file leaves the house as one graph."""

import json
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import odst
import tiny_encoder
from commands import fails
from commands import odst as command
from odst.classifier.export import Calibrated
from odst.classifier.merging import merged
from odst.data.decoding import decode
from odst.vision.backbones import onnx_file, open_backbone
from odst.vision.packaged import PACKAGED
from test_run_features import CLASSES, cache, config, rows_of, world  # noqa: F401

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


class Bytes(nn.Module):
    """Takes bytes with channels last; its other output is nobody's."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.permute(0, 3, 1, 2).float() / 255
        return x.std((2, 3), correction=0).unsqueeze(2), torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1)


class Half(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.mean((2, 3)), x.amax((2, 3))], 1)


def exported(net: nn.Module, file: Path, x: torch.Tensor, *, batch: bool = True, opset: int = 18, names=None) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(net.eval(), (x,), file, dynamo=True, verbose=False, opset_version=opset, output_names=names,
                          dynamic_shapes=({0: torch.export.Dim("n")},) if batch else None)  # fmt: skip
    return f"onnx:{file}"


def head(file: Path, width: int) -> tuple[nn.Module, object]:
    """A classifier of vectors, and its graph."""
    torch.manual_seed(0)
    net = Calibrated(nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 3)), 0.5).eval()
    exported(net, file, torch.zeros(2, width), names=["probabilities", "log_odds"])
    model = onnx.load(file)
    return net, model


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("planes", {}),
        ("planes?norm=clip", {}),
        ("planes", {"opset": 17}),
        ("planes", {"opset": 20}),
        ("planes", {"batch": False}),
        ("bytes", {}),
        ("half", {}),
    ],
)
def test_any_encoder_and_a_classifier_become_one_graph(kind: str, options: dict, tmp_path: Path) -> None:
    name, sign, norm = kind.partition("?")
    net, x = {
        "planes": (tiny_encoder.make(), torch.rand(2, 3, 24, 24)),
        "bytes": (Bytes(), torch.zeros(2, 24, 24, 3, dtype=torch.uint8)),
        "half": (Half(), torch.rand(2, 3, 24, 24).half()),
    }[name]
    spec = exported(net, tmp_path / "net.onnx", x, **options) + sign + norm
    backbone = open_backbone(spec)
    classifier, graph = head(tmp_path / "head.onnx", backbone.identity.dimension)
    model = merged(*onnx_file(spec), 24, graph)
    onnx.checker.check_model(model)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (given,), answers = session.get_inputs(), session.get_outputs()
    assert (given.name, given.type, given.shape[1:]) == ("images", "tensor(uint8)", [24, 24, 3])
    assert [one.name for one in answers] == ["probabilities", "log_odds"]
    assert given.shape[0] == (2 if options.get("batch") is False else "n")
    images = np.random.default_rng(0).integers(0, 256, (2, 24, 24, 3), dtype=np.uint8)
    with torch.inference_mode():
        expected = classifier(torch.from_numpy(backbone(images).astype(np.float32)))
    for found, wanted in zip(session.run(None, {"images": images}), expected, strict=True):
        np.testing.assert_allclose(found, wanted.numpy(), atol=1e-4)


def test_a_run_on_an_onnx_backbone_is_exported_with_it(world: Path, tmp_path: Path) -> None:  # noqa: F811
    exported(tiny_encoder.make(), tmp_path / "net.onnx", torch.zeros(2, 3, 24, 24))
    file = config(world / "onnx.toml", backbone=f"onnx:{tmp_path}/net.onnx?norm=half")
    assert command("run", file, "--out", tmp_path / "run", "--quiet").code == 0
    done = command("export", tmp_path / "run", "--onnx", tmp_path / "model.onnx", "--trust-code")
    assert done.code == 0, done.err
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    classifier = odst.load(tmp_path / "run", trust_code=True)
    _, x = rows_of(world / "test")
    x = np.ascontiguousarray(x[:, ::2, ::2])
    vectors = open_backbone(classifier.encoding.embedder.spec)(x)
    p, _ = session.run(None, {"images": x})
    np.testing.assert_allclose(p, classifier.predict_proba(vectors), atol=1e-4)
    meta = session.get_modelmeta().custom_metadata_map
    assert json.loads(meta["encoder"])["name"] == "onnx:net.onnx?norm=half"
    assert json.loads(meta["classes"]) == list(CLASSES)


def test_a_run_on_stored_pixels_is_not_exported(world: Path, tmp_path: Path) -> None:  # noqa: F811
    from odst.data.embedding import embed_pool
    from odst.data.packing import build_pool

    build_pool(world / "pool", tmp_path / "packed", size=16)
    embed_pool(tmp_path / "packed", f"torch:{world}/encoder.pth#tiny_encoder:make@24", from_pixels=True)
    file = config(world / "stored.toml", pool=str(tmp_path / "packed"))
    short = ("--set", "training.phases=[{steps=5, lr=0.05}]", "--set", "method.ratio=[]")
    assert command("run", file, "--out", tmp_path / "run", "--quiet", *short).code == 0
    said = fails("export", tmp_path / "run", "--onnx", tmp_path / "model.onnx", "--trust-code")
    assert "its vectors were made from stored pixels of 16 a side" in said
    assert not (tmp_path / "model.onnx").exists()


@pytest.mark.slow
def test_the_export_of_a_packaged_backbone_agrees_on_100_photographs(real_data: Path, tmp_path: Path) -> None:
    if not find_spec(PACKAGED["efficientnet-lite1"].package):
        pytest.skip("needs the extra odst[backbone]")
    photos = real_data / "scene_photos.parquet"
    (tmp_path / "odst.toml").write_text(
        f'[data]\nlabelled = "{photos}?split=labelled"\nval_in = "{photos}?split=val_in"\nsize = 32\n'
        '[method]\nname = "supervised"\n[model]\nname = "head"\nbackbone = "efficientnet-lite1"\n'
        "[training]\nphases = [{ steps = 60, lr = 0.01 }]\n"
    )
    assert command("run", tmp_path / "odst.toml", "--out", tmp_path / "run", "--quiet").code == 0
    done = command("export", tmp_path / "run", "--onnx", tmp_path / "model.onnx", "--trust-code")
    assert done.code == 0, done.err
    rows = pq.read_table(photos, columns=["image"], filters=[("split", "=", "test")])["image"].to_pylist()[:100]
    x = np.stack([decode(row["bytes"], 128)[0] for row in rows])
    p, _ = onnxruntime.InferenceSession(tmp_path / "model.onnx").run(None, {"images": x})
    classifier = odst.load(tmp_path / "run", trust_code=True)
    module = open_backbone("efficientnet-lite1", runtime="torch").module
    whole = Calibrated(classifier.model, classifier.temperature, module).eval()
    with torch.inference_mode():
        np.testing.assert_allclose(p, whole(torch.from_numpy(x))[0].numpy(), atol=1e-4)
    np.testing.assert_allclose(p, classifier.predict_proba(x), atol=5e-3)  # whose vectors are rounded to float16
