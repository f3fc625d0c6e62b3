import json
import os
import shutil
import subprocess
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from processes import artefacts, fails, odst

STEPS = "training.phases=[{steps=6, lr=0.1}]"
QUICK = ("--set", STEPS, "--set", "method.ratio=[5]", "--set", "method.alpha=0.6")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "first"
    odst("run", "digits", "--out", out, *QUICK)
    return out


def test_a_run_leaves_every_artefact(run: Path):
    assert {file.name for file in run.iterdir()} >= {
        "config.toml", "run.json", "metrics.jsonl", "final.json", "log.txt", "timings.jsonl", "round-0", "round-1",
    }  # fmt: skip
    assert not list(run.rglob("*.part"))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 1]
    keys = {
        "round", "val_error", "val_od_auroc", "error", "ece", "nll", "od_auroc", "od_auroc_by_set", "temperature", "selected",
        "above", "repeats", "related", "correct",
    }  # fmt: skip
    assert keys <= lines[0].keys()
    assert lines[0]["selected"] is None
    final = json.loads((run / "final.json").read_text())
    assert final["round"] in (0, 1)
    info = json.loads((run / "run.json").read_text())
    assert info["format"] == 2
    assert {"odst", "torch", "numpy", "python"} <= info["versions"].keys()


def test_a_selection_says_what_was_taken_and_why(run: Path):
    table = pq.read_table(run / "round-1" / "selection.parquet").to_pydict()
    note = json.loads((run / "round-1" / "round.json").read_text())
    teacher = json.loads((run / "round-0" / "round.json").read_text())
    assert len(table["pool_id"]) == note["metrics"]["selected"] > 0
    assert set(table["model_hash"]) == {teacher["model_hash"]}
    assert all(odds > tau for odds, tau in zip(table["log_odds"], table["threshold"], strict=True))
    assert all(len(hash_) == 32 for hash_ in table["content_hash"])
    assert sum(table["repeats"]) - len(table["repeats"]) == note["metrics"]["repeats"]
    for name, row in note["selection"]["classes"].items():
        assert row["used"] == table["class"].count(name)
        assert row["stop"].split(":")[0] in ("full", "short", "empty", "closed")


def test_the_same_command_on_a_finished_run_changes_nothing(run: Path):
    before = artefacts(run)
    odst("run", "digits", "--out", run, *QUICK)
    assert artefacts(run) == before


def test_another_config_is_refused_and_its_keys_are_named(run: Path):
    before = artefacts(run)
    fails(
        "run",
        "digits",
        "--out",
        run,
        *QUICK,
        "--seed",
        "5",
        "--set",
        "method.damping=0.2",
        says="method.damping, run.seed",
    )
    assert artefacts(run) == before


@pytest.mark.slow
def test_fresh_moves_the_old_run_aside(tmp_path: Path):
    out = tmp_path / "run"
    odst("run", "digits", "--method", "supervised", "--out", out, *QUICK)
    before = artefacts(out)
    odst("run", "digits", "--method", "supervised", "--out", out, *QUICK, "--seed", "1", "--fresh")
    assert artefacts(tmp_path / "run.old-1") == before
    assert json.loads((out / "run.json").read_text())["seed"] == 1


@pytest.mark.parametrize(
    "name", ["round-0/model.safetensors", "round-1/selection.parquet", "round-0/round.json", "run.json"]
)
def test_a_damaged_file_is_named_and_never_used(run: Path, tmp_path: Path, name: str):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    (copy / "final.json").unlink()
    data = (copy / name).read_bytes()
    (copy / name).write_bytes(data[:-5] + b"#####")
    fails("run", copy, "--quiet", says=Path(name).name)


@pytest.mark.slow
def test_a_run_killed_before_its_first_file_was_whole_begins_again(run: Path, tmp_path: Path):
    (tmp_path / "config.toml").write_bytes((run / "config.toml").read_bytes())
    (tmp_path / ".run.json.x.part").write_text("{")
    odst("run", "digits", "--out", tmp_path, *QUICK)
    assert artefacts(tmp_path) == artefacts(run)


def test_an_edited_config_in_a_run_is_named(run: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    text = (copy / "config.toml").read_text()
    (copy / "config.toml").write_text(text.replace("max_copies = 3", "max_copies = 2"))
    fails("run", copy, "--quiet", says="config.toml: it has changed")


def test_fresh_leaves_the_old_run_alone_when_the_new_one_cannot_be(run: Path, tmp_path: Path):
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    fails("run", "digits", "--out", copy, "--fresh", "--set", "data.pool_size=99999", says="photos")
    assert artefacts(copy) == artefacts(run)
    assert [file.name for file in tmp_path.iterdir()] == ["copy"]


@pytest.mark.slow
def test_a_folder_with_the_name_of_a_preset_does_not_hide_it(tmp_path: Path):
    (tmp_path / "digits").mkdir()
    assert "25 images, 5 classes" in odst("run", "digits", "--dry-run", cwd=tmp_path).stdout


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path: Path):
    (tmp_path / "thesis.txt").write_text("mine")
    fails("run", "digits", "--out", tmp_path, says="not empty and holds no run")
    assert [file.name for file in tmp_path.iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("run", "digitz"), "Did you mean 'digits'?"),
        (("run", "no/such.toml"), "there is no such config"),
        (("run", "digits", "--method", "odts"), "Did you mean 'odst'?"),
        (("run", "digits", "--set", "method.alpha=99.8"), "The paper's 99.8 % is alpha = 0.998"),
        (("run", "digits", "--set", "method.k=[0]"), "k is from 1 to"),
        (("run", "digits", "--set", "model.name=resnett50"), "resnet50"),
        (("run", "digits", "--set", "data.pool_size=99999"), "photos"),
        (("run", "digits", "--device", "cuda"), "cuda is not available"),
        (("run", "digits", "--method", "given-selection"), "Set data.selection"),
        (("run", "digits", "--set", "training.momentum=-1"), "training.momentum is at least 0"),
        (("run", "digits", "--set", 'training.phases=[{steps=1, lr=0.1, augment=["crip:2"]}]'), "crop"),
        (("run", "digits", "--set", "data.labelled=x"), "labelled would be ignored"),
        (("run", "digits", "--set", "data.pool_size=-5"), "data.pool_size"),
        (("demo", "--world", "cats"), "Choose digits or photos"),
        (("demo", "--methods", "odst,magic"), "'magic' is no method"),
    ],
)
def test_bad_input_is_one_line_exit_2_and_nothing_half_written(tmp_path: Path, arguments, says):
    if "cuda" in arguments:
        import torch

        if torch.cuda.is_available():
            pytest.skip("this machine has CUDA")
    out = tmp_path / "out"
    fails(*arguments, "--out", out, says=says)
    assert not out.exists()


@pytest.fixture
def small_disk(tmp_path: Path):
    """A file system of 300 kB of its own: what a full disk is."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", disk], capture_output=True).returncode
    ):
        pytest.skip("mounting a small file system needs root")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.slow
def test_a_full_disk_is_one_line_and_the_run_goes_on_when_there_is_space(small_disk: Path):
    (small_disk / "ballast").write_bytes(bytes(270_000))
    fails("run", "digits", "--quiet", "--out", small_disk / "run", *QUICK, says="the disk is full")
    assert not list(small_disk.rglob("round.json"))
    subprocess.run(["mount", "-o", "remount,size=20m", small_disk], check=True)
    odst("run", "digits", "--quiet", "--out", small_disk / "run", *QUICK)


def test_a_read_only_folder_is_one_line(small_disk: Path):
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    fails("run", "digits", "--quiet", "--out", small_disk / "run", *QUICK, says="read-only")


@pytest.mark.slow
def test_harm_ends_the_run_where_that_is_asked_for(tmp_path: Path):
    # students that train for one step at a huge rate are worse than their teacher
    bad = "training.students=[{phases=[{steps=1, lr=3.0}]}]"
    good = "training.phases=[{steps=40, lr=0.1}]"
    out = tmp_path / "run"
    options = (
        "--set",
        good,
        "--set",
        bad,
        "--set",
        "method.alpha=0.6",
        "--set",
        "method.ratio=[5, 10, 15]",
        "--stop-on-harm",
    )
    odst("run", "digits", "--out", out, *options)
    final = json.loads((out / "final.json").read_text())
    assert final["stopped"] == "harm"
    assert final["round"] == 0
    assert final["harmful_rounds"] == [1]
    assert "round 1 harms" in (out / "log.txt").read_text()


def test_a_dry_run_says_what_it_would_do_and_writes_nothing(tmp_path: Path):
    text = odst("run", "digits", "--dry-run", "--out", tmp_path / "out").stdout
    for word in ("25 images, 5 classes", "2,300 images", "up to 75 images a class", "disk", "time"):
        assert word in text
    assert not (tmp_path / "out").exists()


def test_a_network_is_chosen_by_an_option(tmp_path: Path):
    fails("run", "digits", "--model", "smal", "--out", tmp_path / "out", says="no network 'smal'. Nearest: small")


def test_the_methods_are_listed_with_what_they_change():
    text = odst("methods").stdout
    for word in ("st-ot", "uniform-rest", "damping=1.0", "given-selection"):
        assert word in text
