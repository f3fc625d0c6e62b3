"""SIGKILL at any moment, resume, and compare the bits with an undisturbed run."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from processes import artefacts, command, environment, odst

STEPS = 'training.phases=[{steps=12, lr=0.1, augment=["crop:2"]}]'
QUICK = (
    "--set",
    STEPS,
    "--set",
    "method.ratio=[5, 10]",
    "--set",
    "method.alpha=0.8",
    "--set",
    "run.checkpoint_seconds=0",
)


def kill_when(arguments: tuple, reached, seconds: float = 120) -> None:
    """Start the command and kill it, without warning, as soon as `reached()` holds."""
    process = subprocess.Popen(
        command(*arguments), env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + seconds
    while not reached():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline, "the point to kill at was never reached"
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.wait()


def ranges(folder: Path) -> int:
    """How many ranges of the pool's rows a scan has written."""
    return len(list(folder.glob("[0-9]*.npy")))


@pytest.mark.slow
def test_killing_a_run_in_training_between_rounds_and_after_a_scan_changes_no_bit(tmp_path: Path):
    whole, broken = tmp_path / "whole", tmp_path / "elsewhere" / "broken"
    odst("run", "digits", "--out", whole, *QUICK)
    run = ("run", "digits", "--out", broken, *QUICK)
    kill_when(run, (broken / "scratch" / "train-0.safetensors").exists)
    kill_when(run, (broken / "round-0" / "round.json").exists)
    kill_when(run, (broken / "scratch" / "pool-logits-0" / "manifest.json").exists)
    kill_when(run, (broken / "scratch" / "train-1.safetensors").exists)
    kill_when(run, (broken / "round-1" / "model.safetensors").exists)
    assert not (broken / "final.json").exists()
    odst("run", broken)  # a run directory is enough to go on
    assert artefacts(broken) == artefacts(whole)


@pytest.mark.slow
def test_killing_a_run_in_the_middle_of_a_scan_changes_no_bit(tmp_path: Path):
    pool = (
        "--set",
        "data.pool_size=100000",
        "--set",
        "training.phases=[{steps=3, lr=0.1}]",
        "--set",
        "method.ratio=[5]",
    )
    whole, broken = tmp_path / "whole", tmp_path / "elsewhere" / "broken"
    run = ("run", "photos", *pool, "--set", "method.alpha=0.5")
    odst(*run, "--out", whole)
    logits = broken / "scratch" / "pool-logits-0"
    kill_when((*run, "--out", broken), lambda: 0 < ranges(logits) < 4)
    assert 0 < ranges(logits) < 4
    odst(*run, "--out", broken)
    assert artefacts(broken) == artefacts(whole)


@pytest.mark.slow
def test_two_runs_with_one_seed_are_the_same_and_sharing_a_base_changes_no_bit(tmp_path: Path):
    alone, beside = tmp_path / "a" / "st-ot", tmp_path / "b" / "st-ot"
    odst("run", "digits", "--method", "st-ot", "--out", alone, *QUICK)
    odst("run", "digits", "--method", "st", "--out", beside.parent / "st", *QUICK)
    shared = odst("run", "digits", "--method", "st-ot", "--out", beside, *QUICK)
    assert "the base of st is the same" in (beside / "log.txt").read_text()
    assert "the base of st is the same" in shared.stderr
    assert artefacts(alone) == artefacts(beside)
    odst("run", "digits", "--method", "odst", "--out", beside.parent / "odst", *QUICK)
    assert "the base of" not in (beside.parent / "odst" / "log.txt").read_text()
