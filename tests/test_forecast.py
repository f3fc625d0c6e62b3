"""The trial behind --dry-run is the run's own step, and what has no room is one line."""

import sys
from pathlib import Path

import pytest

from commands import fails
from odst.errors import UserError
from odst.run.config import read_config
from odst.run.forecast import rates
from odst.run.preparation import prepare

FRUGAL = """
from torch import nn

class Frugal(nn.Module):
    def __init__(self, K):
        super().__init__()
        self.net = nn.Sequential(nn.AvgPool2d(4), nn.Flatten(), nn.Linear(147, K))

    def forward(self, x):
        if self.training and len(x) > 40 or len(x) == 512 and self.no_room:
            raise RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB.")
        return self.net(x)

    no_room = False

class NoRoomToLabel(Frugal):
    no_room = True
"""


@pytest.fixture
def frugal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "frugal.py").write_text(FRUGAL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "frugal", raising=False)
    return "frugal:Frugal"


def test_the_trial_takes_the_batch_in_the_runs_own_parts(frugal: str) -> None:
    """64 images of T and 64 of the rest in four parts are 32 at a time; whole they have no room."""
    config = read_config("digits", {"model.name": frugal, "training.accumulate": 4})
    training, labelling = rates(prepare(config, None), config.schedules()[0])
    assert training > 0 < labelling
    config = read_config("digits", {"model.name": frugal})
    with pytest.raises(UserError, match=r"too little memory for batch = 64.*training\.accumulate = 2"):
        rates(prepare(config, None), config.schedules()[0])


def test_a_pool_that_cannot_be_labelled_for_lack_of_memory_is_one_line(frugal: str) -> None:
    steps = "training.phases=[{steps=1, lr=0.1}]"
    said = fails(
        "run", "digits", "-q", "--model", "frugal:NoRoomToLabel", "--set", "training.accumulate=4", "--set", steps
    )
    assert "out of memory (CUDA out of memory. Tried to allocate 20.00 MiB.)" in said
    assert "smaller network in model.name" in said
