"""A stranger's run is not code: nothing that its config names is imported before somebody says that he trusts it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from commands import fails
from odst.run.config import parse_config
from odst.run.trust import imported_by
from runs import bar_world, make_run

FACTORY = """
from pathlib import Path
import torch
Path(__file__).with_name("it-ran").touch()

def make(K):
    return torch.nn.Sequential(torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(12, K))
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a stranger's run, and beside it the module that the run's config names."""
    place = tmp_path_factory.mktemp("stranger")
    (place / "strangers_net.py").write_text(FACTORY)
    sys.path.insert(0, str(place))
    try:
        settings = {
            "data": {"world": "digits"},
            "method": {"ratio": [4]},
            "model": {"name": "strangers_net:make"},
            "training": {"batch": 8, "phases": [{"steps": 3, "lr": 0.01}]},
        }
        make_run(place / "run", bar_world(pool=60, classes=("a", "b", "c")), parse_config(settings, "test"))
    finally:
        sys.path.remove(str(place))
        sys.modules.pop("strangers_net", None)
    np.save(place / "x.npy", np.zeros((3, 12, 12, 3), np.uint8))
    return place


def run_in(place: Path, *words: object) -> subprocess.CompletedProcess[str]:
    (place / "it-ran").unlink(missing_ok=True)
    code = "from odst.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, words)], cwd=place, capture_output=True, text=True, timeout=300
    )


@pytest.mark.parametrize(
    "words",
    [
        ("predict", "run", "x.npy"),
        ("evaluate", "run"),
        ("export", "run", "--onnx", "x.onnx"),
        ("run", "run"),
        ("run", "run/config.toml"),
        ("run", "run", "--dry-run"),
        ("forecast", "run"),
    ],
    ids=lambda words: " ".join(words),
)
def test_what_needs_the_network_of_a_strangers_run_says_what_it_would_import_and_imports_nothing(words, place):
    end = run_in(place, *words)
    assert end.returncode == 2, end.stderr
    said = end.stderr.strip().splitlines()[-1]
    assert "import strangers_net:make" in said and "--trust-code" in said and "trust_code=True" in said
    assert not (place / "it-ran").exists()


@pytest.mark.parametrize(
    "words",
    [
        ("report", "run", "--no-images"),
        ("compare", "run"),
        ("export", "run", "--tensorboard", "tb"),
    ],
    ids=lambda words: " ".join(words),
)
def test_what_needs_no_network_is_done_without_the_strangers_code(words, place):
    end = run_in(place, *words)
    assert end.returncode == 0 or "is not installed" in end.stderr or "have changed" in end.stderr, end.stderr
    assert not (place / "it-ran").exists()


def test_who_trusts_a_run_gets_its_network(place):
    end = run_in(place, "predict", "run", "x.npy", "--trust-code")
    assert end.returncode == 0, end.stderr
    assert (place / "it-ran").exists()


def test_load_is_no_exception(place):
    code = (
        "import odst\n"
        "try:\n    odst.load('run')\nexcept ValueError as error:\n    print(error)\n"
        "print(odst.load('run', trust_code=True).classes)\n"
    )
    (place / "it-ran").unlink(missing_ok=True)
    end = subprocess.run([sys.executable, "-c", code], cwd=place, capture_output=True, text=True, timeout=300)
    assert "trust_code=True" in end.stdout.splitlines()[0]
    assert end.stdout.splitlines()[1] == "('a', 'b', 'c')"


@pytest.mark.slow
def test_a_config_of_ones_own_and_a_model_on_the_command_line_are_ones_own(place, tmp_path):
    (place / "own.toml").write_text((place / "run" / "config.toml").read_text())
    end = run_in(place, "run", "own.toml", "--dry-run", "--out", tmp_path / "own")
    assert end.returncode == 0, end.stderr
    assert (place / "it-ran").exists()
    end = run_in(place, "run", "run", "--model", "strangers_net:make", "--dry-run", "--out", tmp_path / "own")
    assert end.returncode == 0, end.stderr


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ("small", None),
        (None, None),
        ("timm:resnet18", None),
        ("hf:somebody/model", None),
        ("onnx:encoder.onnx?norm=clip@32", None),
        ("efficientnet-lite1@96", None),
        ("a.b:make", "a.b:make"),
        ("os:system", "os:system"),
        ("torch:/a#b/weights.pt#my.encoders:make?norm=clip@24", "my.encoders:make"),
    ],
)
def test_only_what_somebody_wrote_himself_is_code(spec, code):
    assert imported_by(spec) == code


def test_the_backbone_of_a_strangers_run_is_code_too(tmp_path, place):
    text = (place / "run" / "config.toml").read_text()
    text = text.replace('name = "strangers_net:make"', 'name = "head"\nbackbone = "torch:w.pt#strangers_net:make@24"')
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.toml").write_text(text)
    said = fails("run", tmp_path / "other")
    assert "import strangers_net:make" in said and "--trust-code" in said
