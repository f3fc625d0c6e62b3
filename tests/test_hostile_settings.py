"""Numbers, brackets, names, files and places that no config, list or option can mean: one line each, and nothing written."""

import pickle
import zipfile

import numpy as np
import pytest
import torch

from commands import fails

PHASE = "{epochs=1, lr=0.1}"
DEEP = "[" * 2000 + "]" * 2000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("training.phases=[{epochs=1, lr=1e308}]", "lr of a phase is a number from 0 to 1e+38, got 1e+308"),
        ("training.phases=[{epochs=1, lr=0.1, end=1e300}]", "end of a phase"),
        ("training.phases=[{epochs=1e308, lr=0.1}]", "epochs of a phase"),
        ("training.phases=[{steps=99999999999999999, lr=0.1}]", "steps of a phase"),
        ("training.batch=99999999999999999999999", "training.batch is from 1 to"),
        ("training.weight_decay=1e308", "training.weight_decay is from 0 to"),
        ("training.backbone_lr=1e308", "training.backbone_lr"),
        ("method.ratio=[1e308]", "ratio has one positive number per round"),
        ("method.k=[99999999999999999999999]", "k is from 1 to 1,000,000,000,000"),
        (f"method.ratio={DEEP}", "brackets inside brackets"),
        ("model.name=sys:exit", "model: sys:exit does not give a network"),
        ("model.name=builtins:quit", "model: builtins:quit does not give a network"),
        ("model.name=nowhere:at_all", "model: nowhere:at_all does not give a network"),
        ("data.pool_size=99999999999999999999", "the digits world holds"),
    ],
)
def test_settings_that_nothing_can_be_made_of_are_one_line(change, said, tmp_path):
    assert said in fails("run", "digits", "--set", change, "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_config_of_brackets_alone_is_one_line(tmp_path):
    (tmp_path / "deep.toml").write_text(f"[data]\nworld = {DEEP}\n")
    assert "brackets inside brackets" in fails("run", tmp_path / "deep.toml", "--out", tmp_path / "run")


@pytest.mark.parametrize("place", ["/proc", "/proc/self", "/proc/new", "/dev/null", "/dev/null/run", "a" * 300])
def test_a_run_into_a_place_that_holds_no_files_is_one_line(place, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert place in fails("run", "digits", "--out", place)
    np.save(tmp_path / "x.npy", np.zeros((3, 8, 8, 3), np.uint8))
    assert place in fails("pool", "build", "x.npy", "--size", 8, "--out", place)


def archive(path, members):
    with zipfile.ZipFile(path, "w") as opened:
        for name, text in members.items():
            opened.writestr(name, text)


@pytest.mark.parametrize(
    "kind", ["text.npz", "members.npz", "texts.npz", "other.npz", "text.pth", "pickle.pth", "list.pth", "odd.pth", "folder.pth"]
)  # fmt: skip
def test_lpips_weights_that_are_another_file_are_one_line(kind, tmp_path):
    np.save(tmp_path / "x.npy", np.random.default_rng(0).integers(0, 256, (3, 32, 32, 3), np.uint8))
    file = tmp_path / kind
    {
        "text.npz": lambda: file.write_text("hello"),
        "members.npz": lambda: archive(file, {"readme.txt": "hello"}),
        "texts.npz": lambda: np.savez(file, conv0_weight=np.array(["a", "b"])),
        "other.npz": lambda: np.savez(file, conv0_weight=np.zeros(3, np.float32)),
        "text.pth": lambda: file.write_text("hello"),
        "pickle.pth": lambda: file.write_bytes(pickle.dumps({"features.0.weight": print})),
        "list.pth": lambda: torch.save([1, 2], file),
        "odd.pth": lambda: torch.save({"features.0.weight": "a", 3: torch.zeros(3)}, file),
        "folder.pth": lambda: file.mkdir(),
    }[kind]()
    said = fails("dedup", tmp_path / "x.npy", "--against", tmp_path / "x.npy", "--lpips", file, "--out", tmp_path / "d")
    assert str(file) in said
