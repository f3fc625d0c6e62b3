"""Two processes, on one machine or two, do what one does with the joint batch."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from odst.errors import UserError
from odst.training.processes import check_devices

HERE = Path(__file__).parent
SCRIPT = HERE / "two_processes.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess:
    return subprocess.run([*map(str, command)], cwd=cwd, env=environment(), capture_output=True, text=True, timeout=300)


def environment() -> dict[str, str]:
    return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}


@pytest.mark.slow
def test_two_processes_have_the_loss_and_the_weights_of_one_with_the_joint_batch(tmp_path: Path) -> None:
    for processes in (1, 2):
        done = run(*TORCHRUN, processes, SCRIPT, f"{processes}.safetensors", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    one, two = (load_file(tmp_path / f"{processes}.safetensors") for processes in (1, 2))
    torch.testing.assert_close(two["loss"], one["loss"], rtol=1e-6, atol=0)
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_checkpoint_that_only_process_0_sees_is_gone_on_with_by_all(tmp_path: Path) -> None:
    whole = run(*TORCHRUN, 2, SCRIPT, "whole.safetensors", "scratch", cwd=tmp_path)
    assert whole.returncode == 0, whole.stderr
    assert {file.name for file in (tmp_path / "scratch").iterdir()} == {"train-0.safetensors", "train-1.safetensors"}
    resumed = run(*TORCHRUN, 2, SCRIPT, "resumed.safetensors", "scratch", cwd=tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert (tmp_path / "resumed.safetensors").read_bytes() == (tmp_path / "whole.safetensors").read_bytes()


@pytest.mark.slow
def test_two_machines_train_the_model_of_two_processes_on_one(tmp_path: Path) -> None:
    done = run(*TORCHRUN, 2, SCRIPT, "one.safetensors", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    machine = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    machine += ["--master-addr", "127.0.0.1", "--master-port", str(port), "--node-rank"]
    nodes = [
        subprocess.Popen(
            [*machine, str(node), SCRIPT, "two.safetensors"], cwd=tmp_path, env=environment(), stderr=subprocess.PIPE
        )
        for node in (0, 1)
    ]
    for node in nodes:
        _, said = node.communicate(timeout=300)
        assert node.returncode == 0, said
    assert (tmp_path / "two.safetensors").read_bytes() == (tmp_path / "one.safetensors").read_bytes()


@pytest.mark.slow
def test_the_run_command_works_under_torchrun_and_only_process_0_writes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from torch import nn\n"
        "def plain(K): return nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(147, 32), nn.ReLU(), nn.Linear(32, K))\n"
    )
    steps = "training.phases=[{steps = 20, lr = 0.05, augment = ['crop:2']}]"
    options = [
        "run",
        "digits",
        "--set",
        "model.name=mine:plain",
        "--set",
        steps,
        "--set",
        "method.ratio=[2]",
        "--quiet",
    ]
    entry = ["-c", "from odst.cli import main; main()"]
    alone = run(sys.executable, *entry, *options, "--out", "one", cwd=tmp_path)
    assert alone.returncode == 0, alone.stderr
    (tmp_path / "odst_main.py").write_text("from odst.cli import main\nmain()\n")
    both = run(*TORCHRUN, 2, "odst_main.py", *options, "--out", "two", cwd=tmp_path)
    assert both.returncode == 0, both.stderr
    assert both.stdout.count("Use round") == 1
    one, two = (
        [json.loads(line) for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()]
        for name in ("one", "two")
    )
    assert len(one) == len(two)
    for a, b in zip(one, two, strict=True):
        assert b["val_error"] == pytest.approx(a["val_error"], abs=0.01)
        assert b["nll"] == pytest.approx(a["nll"], rel=1e-2)


@pytest.mark.slow
def test_a_mistake_is_told_once_and_not_buried_under_the_other_processes(tmp_path: Path) -> None:
    (tmp_path / "odst_main.py").write_text("from odst.cli import main\nmain()\n")
    done = run(*TORCHRUN, 2, "odst_main.py", "run", "digits", "--model", "resnet5", "--out", "out", cwd=tmp_path)
    assert done.returncode != 0
    assert done.stderr.count("odst: model: there is no network 'resnet5'") == 1
    assert "RuntimeError" not in done.stderr
    assert not (tmp_path / "out").exists()


def test_every_process_needs_a_gpu_of_its_own() -> None:
    check_devices("cuda", 2, 2)
    check_devices("cpu", 8, 0)
    with pytest.raises(UserError, match=r"3 processes for 2 GPUs\. Give it --nproc-per-node 2"):
        check_devices("cuda", 3, 2)
    with pytest.raises(UserError, match="one mps device"):
        check_devices("mps", 2, 0)
