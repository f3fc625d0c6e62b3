"""`odst export --hub-folder`: a model that others load, and a card that tells the truth about it."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import odst
import tiny_encoder
from commands import fails
from commands import odst as command
from odst.files import digest
from odst.run.directory import RunDir
from odst.run.marks import write_marks
from reviewed import bar_run, truthful
from runs import NAMES, SIDE, bar_world, bars, config, make_run
from test_run_features import CLASSES, cache, pictures, world  # noqa: F401
from test_run_features import config as embedded

ROUND = 2


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[RunDir, Path]:
    """A run over pictures that somebody has audited, and its folder."""
    place = tmp_path_factory.mktemp("hub")
    run = bar_run(place)
    write_marks(place / "marks.json", truthful(run, ROUND))
    assert command("audit", run.path, "--marks", place / "marks.json", "--target", 0.5, "--round", ROUND).code == 0
    end = command("export", run.path, "--hub-folder", place / "model", "--round", ROUND)
    assert end.code == 0, end.err
    return run, place / "model"


def test_it_loads_to_the_same_probabilities_and_the_same_unknown(made: tuple[RunDir, Path]) -> None:
    run, folder = made
    x = bars(np.random.default_rng(5), np.arange(80) % 4 - 1)
    ours, theirs = odst.load(run.path, round=ROUND), odst.load(folder)
    assert np.array_equal(ours.predict_proba(x), theirs.predict_proba(x))
    assert ours.predict(x) == theirs.predict(x)
    assert {"unknown"} < set(theirs.predict(x))
    assert theirs.thresholds == ours.thresholds and theirs.name == ours.name


def test_it_holds_no_code_no_pickle_and_no_place_of_this_machine(made: tuple[RunDir, Path]) -> None:
    run, folder = made
    assert {file.name for file in folder.iterdir()} == {"model.safetensors", "config.json", "README.md"}
    assert load_file(folder / "model.safetensors").keys() == odst.load(run.path).model.state_dict().keys()
    for file in ("config.json", "README.md"):
        assert str(run.path.parent) not in (folder / file).read_text(encoding="utf-8")
    assert json.loads((folder / "config.json").read_text())["id2label"] == {
        str(i): name for i, name in enumerate(NAMES)
    }


def test_the_card_has_the_runs_own_numbers_and_the_certificate(made: tuple[RunDir, Path]) -> None:
    run, folder = made
    card = (folder / "README.md").read_text(encoding="utf-8")
    sets, t = run.info()["sets"], ROUND
    for name in ("labelled", "pool", "val_in", "val_out", "test"):
        assert f"| {name} | {sets[name]['images']:,} |" in card
    assert f"| **{t}** | {100 * run.metrics()[t]['error']:.2f} |" in card
    assert f"| 0 | {100 * run.metrics()[0]['error']:.2f} |" in card
    words = run.audit(t)["words"]  # type: ignore[index]
    assert card.count("certified at 50 %") == sum("certified at 50 %" in one for one in words) > 0
    assert run.note(t)["model_hash"] in card
    assert (f"The run says to use round {run.final()['use']}" in card) == (run.final()["use"] != t)  # type: ignore[index]


def test_names_are_text_in_the_card(made: tuple[RunDir, Path]) -> None:
    card = (made[1] / "README.md").read_text(encoding="utf-8")
    assert "<script>" not in card and "&lt;script&gt;" in card
    assert card.startswith("---\nlibrary_name: odst\n")


def test_a_run_without_test_val_out_and_audit_says_so(tmp_path: Path) -> None:
    data = replace(bar_world(classes=("a|b", "c\nd", "`e`")), test=None, val_out=None, out_tests={})
    run = make_run(tmp_path / "run", data, config(method={"name": "st"}), rounds=2)
    assert command("export", run.path, "--hub-folder", tmp_path / "m").code == 0
    card = (tmp_path / "m" / "README.md").read_text(encoding="utf-8")
    for said in (
        "There was no test set",
        "nobody has audited",
        "The run was not finished",
        "a\\|b",
        "| c d |",
        "\\`e\\`",
    ):
        assert said in card, said
    assert odst.load(tmp_path / "m").classes == ("a|b", "c\nd", "`e`")


def test_a_run_on_embeddings_takes_pictures_afterwards_too(world: Path, cache: None, tmp_path: Path) -> None:  # noqa: F811
    pytest.importorskip("onnxscript")
    from test_onnx_export import Half, exported

    (tmp_path / "secret").mkdir()
    spec = exported(Half(), tmp_path / "secret" / "encoder.onnx", torch.zeros(2, 3, 24, 24))
    end = command("run", embedded(world / "onnx.toml", backbone=f"{spec}@24"), "--out", tmp_path / "run")
    assert end.code == 0, end.err
    end = command("export", tmp_path / "run", "--hub-folder", tmp_path / "m")
    assert end.code == 0, end.err
    shutil.rmtree(tmp_path / "secret")  # the encoder came along
    x = pictures(list(CLASSES) * 4, "fresh")
    theirs = odst.load(tmp_path / "m")
    assert "secret" not in (tmp_path / "m" / "config.json").read_text()
    shutil.copytree(tmp_path / "m", tmp_path / "secret")  # and back for the run itself
    assert np.array_equal(odst.load(tmp_path / "run").predict_proba(x), theirs.predict_proba(x))


def test_a_backbone_that_cannot_come_along_is_one_line(world: Path, cache: None, tmp_path: Path) -> None:  # noqa: F811
    file = embedded(world / "torch.toml", backbone=tiny_encoder.save(tmp_path / "encoder.pt"))
    assert command("run", file, "--out", tmp_path / "run", "--set", "method.ratio=[2]").code == 0
    said = fails("export", tmp_path / "run", "--hub-folder", tmp_path / "m", "--trust-code")
    assert "lies on this machine" in said and "--onnx FILE" in said
    assert not list(tmp_path.glob("*m*part")) and not (tmp_path / "m").exists()


def test_predict_takes_a_folder_and_what_it_lacks_is_one_line(made: tuple[RunDir, Path], tmp_path: Path) -> None:
    run, folder = made
    np.save(tmp_path / "x.npy", bars(np.random.default_rng(1), np.arange(9) % 3))
    rows = [command("predict", *one, tmp_path / "x.npy").out for one in ((folder,), (run.path, "--round", ROUND))]
    assert rows[0] == rows[1] and len(rows[0].splitlines()) == 10
    assert "no images to evaluate on" in fails("evaluate", folder)
    assert "another alpha" in fails("predict", folder, tmp_path / "x.npy", "--alpha", 0.9)
    assert "one model" in fails("predict", folder, tmp_path / "x.npy", "--round", 1)
    assert "there already" in fails("export", run.path, "--hub-folder", folder)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda config: config.pop("odst"), "no part `odst`"),
        (lambda config: config["odst"].update(format=2), "newer one"),
        (lambda config: config["odst"].update(thresholds=[0.5]), "do not fit each other"),
        (lambda config: config["odst"].update(shape=[3]), "takes images"),
        (lambda config: config["odst"]["network"].update(name="os:getcwd"), "--trust-code"),
        (lambda config: config["odst"].update(temperature="hot"), "not a config"),
        (lambda config: config["odst"].update(temperature=0), "not a config"),
        (lambda config: config["odst"].update(temperature=-1.0), "not a config"),
        (lambda config: config["odst"].update(classes=["a", "a", "a"]), "do not fit each other"),
        (lambda config: config["odst"].update(size=0), "not a config"),
        (lambda config: config["odst"]["network"].update(evil=1), "not a config"),
        (lambda config: config["odst"]["network"].update(name=5), "not a config"),
    ],
)
def test_a_folder_that_says_what_cannot_be_is_one_line(
    made: tuple[RunDir, Path], tmp_path: Path, change: Any, said: str
) -> None:
    """Whoever hands a folder on can seal it, too."""
    shutil.copytree(made[1], tmp_path / "m")
    value = json.loads((tmp_path / "m" / "config.json").read_text())
    change(value)
    if "odst" in value:
        value["odst"].pop("digest")
        value["odst"]["digest"] = digest(value["odst"])
    (tmp_path / "m" / "config.json").write_text(json.dumps(value))
    np.save(tmp_path / "x.npy", np.zeros((1, SIDE, SIDE, 3), np.uint8))
    assert said in fails("predict", tmp_path / "m", tmp_path / "x.npy")


@pytest.mark.parametrize(
    "change", [lambda ours: ours["classes"].reverse(), lambda ours: ours.update(round=0, temperature=2.5)]
)
def test_a_config_that_was_changed_is_noticed(made: tuple[RunDir, Path], tmp_path: Path, change: Any) -> None:
    shutil.copytree(made[1], tmp_path / "m")
    value = json.loads((tmp_path / "m" / "config.json").read_text())
    change(value["odst"])
    (tmp_path / "m" / "config.json").write_text(json.dumps(value))
    np.save(tmp_path / "x.npy", np.zeros((1, SIDE, SIDE, 3), np.uint8))
    assert "config.json: this file has changed since it was written" in fails(
        "predict", tmp_path / "m", tmp_path / "x.npy"
    )


def test_what_a_killed_export_left_goes_with_the_next(made: tuple[RunDir, Path], tmp_path: Path) -> None:
    import socket
    import subprocess

    gone = subprocess.Popen(["true"])
    gone.wait()
    remnant, other = (tmp_path / f".m.{host}-{gone.pid}-00.part" for host in (socket.gethostname(), "elsewhere"))
    for folder in (remnant, other):
        folder.mkdir()
    assert command("export", made[0].path, "--hub-folder", tmp_path / "m").code == 0
    assert sorted(one.name for one in tmp_path.iterdir()) == [other.name, "m"]  # another machine may be at work


def test_other_weights_are_noticed(made: tuple[RunDir, Path], tmp_path: Path) -> None:
    run, folder = made
    shutil.copytree(folder, tmp_path / "m")
    shutil.copy(run.round(0) / "model.safetensors", tmp_path / "m" / "model.safetensors")
    np.save(tmp_path / "x.npy", np.zeros((1, SIDE, SIDE, 3), np.uint8))
    assert "has changed" in fails("predict", tmp_path / "m", tmp_path / "x.npy")


@pytest.mark.parametrize("begun", [False, True])
def test_a_network_of_timm_is_loaded_by_timm_to_the_same_logits(tmp_path: Path, begun: bool) -> None:
    try:
        import timm
    except Exception as error:
        pytest.skip(f"timm does not import: {error}")
    data = bar_world(classes=("a", "b", "c"))
    model: dict[str, Any] = {"name": "timm:resnet10t"}
    if begun:
        torch.save(timm.create_model("resnet10t").state_dict(), tmp_path / "w.pth")
        model["weights"] = str(tmp_path / "w.pth")
    run = make_run(tmp_path / "run", data, config(model=model, training={"batch": 8, "phases": [{"steps": 3, "lr": 0.01}]}), rounds=1)  # fmt: skip
    assert command("export", run.path, "--hub-folder", tmp_path / "m").code == 0
    ours = odst.load(tmp_path / "m")
    assert np.array_equal(ours.predict_proba(data.test.x), odst.load(run.path).predict_proba(data.test.x))
    said = json.loads((tmp_path / "m" / "config.json").read_text())
    net = timm.create_model(
        said["architecture"], num_classes=3, checkpoint_path=str(tmp_path / "m" / "model.safetensors")
    ).eval()
    mean, std = (torch.tensor(said["pretrained_cfg"][key]).view(1, 3, 1, 1) for key in ("mean", "std"))
    x = torch.from_numpy(data.test.x).permute(0, 3, 1, 2) / 255
    with torch.inference_mode():
        theirs = net((x - mean) / std).numpy()
    assert np.allclose(theirs, ours.logits(data.test.x), atol=1e-4)
