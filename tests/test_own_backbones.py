"""Encoders that a user brings: exported ones (onnx:FILE), and a state dict with the function that makes its network."""

import importlib
import linecache
import shutil
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from encoders import noise, one_line
from odst.errors import UserError
from odst.vision.backbones import open_backbone

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
    try:
        ours = open_backbone("mobilenetv2@64")
    except UserError as error:
        pytest.skip(str(error))
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


def test_a_pictures_vector_is_the_same_whichever_stand_beside_it(tmp_path):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(192, 3, 384, batch_first=True, dropout=0)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.cut, self.mix, self.out = nn.Conv2d(3, 192, 16, 16), layer, nn.Linear(192, 64)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.out(self.mix(self.cut(x).flatten(2).transpose(1, 2)).mean(1))

    spec = exported(Attention(), tmp_path / "e.onnx", torch.rand(2, 3, 64, 64))
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    backbone, images = open_backbone(spec), noise(37, 64)
    torch.set_num_threads(before)
    together = backbone(images)
    for n in (1, 3, 5):
        some = np.concatenate([backbone(images[i : i + n]) for i in range(0, 37, n)])
        np.testing.assert_array_equal(some, together)


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

def far():
    return nn.Sequential(nn.Conv2d(3, 5, 3, dilation=8), nn.AdaptiveAvgPool2d(1), nn.Flatten())
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


@pytest.mark.parametrize(
    ("file", "before", "after"),
    [
        ("my_encoders.py", "nn.ReLU()", "nn.Sigmoid()"),
        ("my_encoders.py", "return torch.relu(", "return torch.sigmoid("),
        ("my_parts.py", "nn.Tanh()", "nn.Sigmoid()"),
    ],
)
def test_other_code_for_the_same_weights_is_another_backbone(own_network, file, before, after):
    """Elsewhere the same file of code is the same one."""
    factories = (
        "import torch\nfrom torch import nn\nimport my_parts\n\nclass Last(nn.Module):\n    def forward(self, x):\n"
    )
    factories += "        return torch.relu(x)\n\ndef make():\n    return nn.Sequential(nn.Conv2d(3, 5, 3, 2), nn.ReLU(), Last(),"
    factories += " my_parts.squash(), nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
    parts = "from torch import nn\n\ndef squash():\n    return nn.Tanh()\n"
    identities = []
    for change in (False, False, True):
        Path("my_encoders.py").write_text(factories)
        Path("my_parts.py").write_text(parts)
        if change:
            text = Path(file).read_text()
            assert before in text
            Path(file).write_text(text.replace(before, after))
        for name in ("my_encoders", "my_parts"):
            sys.modules.pop(name, None)
        shutil.rmtree("__pycache__", ignore_errors=True)
        importlib.invalidate_caches()
        linecache.clearcache()
        identities.append(open_backbone("torch:weights.pt#my_encoders:make@24").identity)
    assert identities[0] == identities[1] != identities[2]


def test_an_encoder_that_draws_at_random_is_refused(own_network):
    Path("my_encoders.py").write_text(
        FACTORY.replace("import nn\n", "import nn\nfrom torch.nn.functional import dropout\n", 1)
        + "\nclass Masked(nn.Sequential):\n    def forward(self, x):\n        return super().forward(dropout(x, 0.5))\n"
        "\ndef masked():\n    return Masked(*make())\n"
    )
    with pytest.raises(UserError, match="it gives one picture two vectors") as error:
        open_backbone("torch:weights.pt#my_encoders:masked@24")
    one_line(error)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("torch:weights.pt#my_encoders:wider@24", "size mismatch"),
        ("torch:weights.pt#my_encoders:nothing@24", "no attribute 'nothing'"),
        ("torch:weights.pt#my_encoders:maps@24", "this one's output is of shape"),
        ("torch:weights.pt#my_encoders:far@12", "does not take pictures of 12 px"),
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
