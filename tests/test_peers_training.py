"""The training of benchmarks.peers: its budget, its running mean, that it learns, kill and resume."""

import json
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.peers.methods import LOSSES
from benchmarks.peers.runs import run, sets_of
from benchmarks.peers.settings import decay_of, images_of, momentum_of, rate, rejections, settings_of, steps_of
from benchmarks.peers.training import begin, fresh, train
from torch import nn

from interruption import Interrupted, StopAfter
from odst.data.packing import build_pool
from odst.data.worlds import load_world
from odst.errors import UserError
from odst.method.labelling import model_hash
from odst.progress import listening
from odst.vision.networks import Normalised

ROOT = Path(__file__).parent.parent

# budget --------------------------------------------------------------------------------------------------------------------


def digits_world(folder: Path) -> Path:
    """The built-in digits at half their size, 40 labelled a class, written as benchmarks.open_world writes its worlds."""
    data = load_world("digits", 0)
    folder.mkdir()
    names = np.array(data.classes)
    mixed = np.arange(len(data.val_in)) % 3
    others = data.out_tests["other-digits"]
    sets = {
        "labelled": (data.val_in.x[mixed > 0], names[data.val_in.y[mixed > 0]]),
        "val_in": (data.val_in.x[mixed == 0], names[data.val_in.y[mixed == 0]]),
        "test": (data.test.x, names[data.test.y]),
        "val_out": (data.val_out, np.full(len(data.val_out), "other")),
        "out_digits": (others, np.full(len(others), "other")),
        "pool": (data.pool.x, np.where(data.pool.truth < 0, "other", names[data.pool.truth])),
        "corrupted": (255 - data.test.x[:50], names[data.test.y[:50]]),
    }
    for name, (x, labels) in sets.items():
        np.savez(folder / f"{name}.npz", x=x[:, ::2, ::2], labels=labels)
    build_pool(folder / "pool.npz", folder / "pool")
    (folder / "pool.npz").unlink()
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return digits_world(tmp_path_factory.mktemp("peers") / "world-digits")


SMALL = {"network": "tiny", "batch": 16, "lr": 0.1}


@pytest.mark.parametrize("method", LOSSES)
def test_as_many_images_go_through_the_network_as_were_asked_for(method: str, world: Path, tmp_path: Path) -> None:
    data = sets_of(world)
    s = settings_of(method, 15_000, 0, looks=2, **SMALL)
    steps = steps_of(s)
    assert images_of(s, steps) <= s.images < images_of(s, steps + 1)
    seen = {"training": 0, "looking": 0}

    def count(module: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        if isinstance(module, Normalised):
            n = len(output)
            if module.training:
                seen["training"] += n
            elif n > 1:  # a single image asks for the number of outputs
                seen["looking"] += n

    hook = torch.nn.modules.module.register_module_forward_hook(count)
    try:
        train(data, s, tmp_path)
    finally:
        hook.remove()
    looks = 2 if method == "openmatch" else 0
    assert seen["looking"] == 5 * len(data.val_in) + looks * len(data.pool)
    assert seen["training"] == images_of(s, steps)


def test_openmatch_looks_at_the_pool_as_often_as_it_is_told_from_the_end_of_its_warm_up_on() -> None:
    for images in (1_300_000, 60_000):
        s = settings_of("openmatch", images, 0)
        steps = steps_of(s)
        points = rejections(s, steps)
        assert len(points) == 10 and points[0] == round(0.2 * steps) and points[-1] < steps
        assert max(np.diff(points)) - min(np.diff(points)) <= 1


def test_the_rate_is_the_originals_or_rises_and_falls_along_lines() -> None:
    original, short = (
        settings_of("fixmatch", 1000, 0),
        settings_of("fixmatch", 1000, 0, lr=0.2, rise=0.12, fall="linear"),
    )
    assert [rate(original, at) for at in (0, 0.5, 1)] == pytest.approx([0.03, 0.03 * 0.7730, 0.03 * 0.1951], abs=1e-5)
    assert [rate(short, at) for at in (0, 0.06, 0.12, 0.56, 1)] == pytest.approx([0.02, 0.11, 0.2, 0.1, 0])


def test_too_few_images_and_unknown_settings_are_refused_in_one_line(world: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="100 images are not enough for one step of fixmatch, which takes 960"):
        steps_of(settings_of("fixmatch", 100, 0))
    with pytest.raises(UserError, match="there is no method 'mixmatch'"):
        settings_of("mixmatch", 100, 0)
    with pytest.raises(UserError, match="fixmatch has no warm-up"):
        settings_of("fixmatch", 100, 0, warm_up=0.1)
    with pytest.raises(UserError, match="rise is a share of the steps below 1, got 1"):
        settings_of("fixmatch", 100, 0, rise=1.0)
    with pytest.raises(UserError, match="this is no world"):
        run(tmp_path / "nowhere", settings_of("fixmatch", 1000, 0), tmp_path / "out.json")


# running mean --------------------------------------------------------------------------------------------------------------


def test_the_running_mean_and_batch_norm_look_back_over_a_share_of_the_training() -> None:
    s = settings_of("fixmatch", 1_300_000, 0)
    assert decay_of(s, 1 << 20) == pytest.approx(0.999) and momentum_of(0.999) == pytest.approx(0.01)
    assert decay_of(s, 2000) == pytest.approx(0.99) and momentum_of(0.99) == pytest.approx(0.1)
    data = load_world("digits", 0)
    training = begin(fresh(data, replace(s, network="tiny")), s, 0.99)
    norms = [module for module in training.model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert norms and all(norm.momentum == pytest.approx(0.1) for norm in norms)
    groups = training.optimizer.param_groups
    assert [group["weight_decay"] for group in groups] == [5e-4, 0.0]
    assert {id(norm.weight) for norm in norms} <= {id(one) for one in groups[1]["params"]}

    weight = next(training.model.parameters())
    mean = weight.detach().clone()
    for step in range(1, 40):
        training.optimizer.zero_grad()
        training.model(torch.rand(4, 3, 28, 28)).square().sum().backward()
        training.update(0.01, 0.9)
        kept = min(0.9, (1 + step) / (10 + step))
        mean = kept * mean + (1 - kept) * weight.detach()
    assert torch.allclose(next(training.judged.parameters()), mean, atol=1e-6)
    assert not torch.allclose(weight, mean, atol=1e-4)


# training ------------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", LOSSES)
def test_a_short_training_learns_and_its_row_has_every_number(method: str, world: Path, tmp_path: Path) -> None:
    rows = run(world, settings_of(method, 40_000, 0, **SMALL), tmp_path / "out.json")
    (row,) = rows
    assert rows == json.loads((tmp_path / "out.json").read_text())
    assert [file.name for file in tmp_path.iterdir()] == ["out.json"]
    assert (row["share"], row["method"], row["seed"], row["round"]) == ("digits", method, 0, 0)
    assert row["error"] < 0.35 and row["val_error"] < 0.35  # chance is 0.8
    assert row["od_auroc"] == row["od_auroc_by_set"]["digits"] > 0.5
    assert row["own_od_auroc"] == row["own_od_auroc_by_set"]["digits"] > 0.5
    assert 0.5 < row["val_od_auroc"] < 1 and 0.5 < row["own_val_od_auroc"] < 1
    assert 0 <= row["correct"] <= row["related"] <= 1 and 0 < row["selected"] <= 2300
    assert row["corruption_error"] > row["error"]
    assert run(world, settings_of(method, 40_000, 0, **SMALL), tmp_path / "out.json") == rows
    with pytest.raises(UserError, match="rows of other settings"):
        run(world, settings_of(method, 40_000, 1, **SMALL), tmp_path / "out.json")


# kill and resume -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("method", LOSSES)
def test_a_training_that_was_stopped_twice_ends_with_the_same_bits(method: str, world: Path, tmp_path: Path) -> None:
    data, s = sets_of(world), settings_of(method, 15_000, 0, looks=2, **SMALL)
    whole, _ = train(data, s, tmp_path / "whole")
    for images in (5_000, 7_000):
        with pytest.raises(Interrupted), listening(StopAfter(images)):
            train(data, s, tmp_path / "parts", checkpoint_seconds=0)
    parts, _ = train(data, s, tmp_path / "parts")
    assert model_hash(parts) == model_hash(whole)
    other, _ = train(data, replace(s, seed=1), tmp_path / "other")
    assert model_hash(other) != model_hash(whole)
    with pytest.raises(UserError, match="belongs to another training"):
        train(data, replace(s, lr=0.2), tmp_path / "parts")


@pytest.mark.slow
def test_the_command_goes_on_after_a_kill_to_the_same_row(world: Path, tmp_path: Path) -> None:
    def command(out: Path) -> list[str]:
        changes = ["--network", "tiny", "--batch", "16", "--lr", "0.1", "--checkpoint-seconds", "0.2"]
        base = [sys.executable, "-m", "benchmarks.peers", "--world", str(world), "--method", "openmatch"]
        return [*base, "--images", "30000", "--seed", "3", "--out", str(out), *changes]

    subprocess.run(command(tmp_path / "whole.json"), cwd=ROOT, check=True, capture_output=True, timeout=300)
    killed = subprocess.Popen(command(tmp_path / "parts.json"), cwd=ROOT, stderr=subprocess.DEVNULL)
    state = tmp_path / "parts.training" / "state.safetensors"
    end = time.monotonic() + 120
    while not list(state.parent.glob("inliers-*.npy")) or not state.exists():
        assert killed.poll() is None and time.monotonic() < end
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert not (tmp_path / "parts.json").exists()
    subprocess.run(command(tmp_path / "parts.json"), cwd=ROOT, check=True, capture_output=True, timeout=300)
    (whole,), (parts,) = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("whole", "parts"))
    assert whole | {"seconds": 0} == parts | {"seconds": 0}
    refused = subprocess.run(
        [*command(tmp_path / "x.json"), "--mu", "0"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert refused.returncode == 2 and len(refused.stderr.splitlines()) == 1 and not (tmp_path / "x.json").exists()
