"""A run's classifier at work: in Python, over sources, as ONNX, and on other test sets."""

import contextlib
import csv
import json
import os
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from commands import fails, odst
from odst.classifier.export import example, export_onnx, export_tensorboard
from odst.classifier.load import load
from odst.data.checks import UNKNOWN, check_data
from odst.data.images import Data
from odst.evaluation.metrics import auroc, confidence_log_odds, error
from odst.method.calibration import probabilities, top_log_odds
from odst.run.directory import RunDir
from odst.seeds import stream
from odst.vision.corruptions import CORRUPTIONS
from runs import NAMES, bar_world, bars, config, make_run

CLASSES = ("across", "down", "diagonal")


@pytest.fixture(scope="module")
def world() -> Data:
    return bar_world(classes=CLASSES)


@pytest.fixture(scope="module")
def run(world: Data, tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    return make_run(tmp_path_factory.mktemp("runs") / "bars", world, config())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Task images, unrelated ones, a broken file, and one of another size."""
    place = tmp_path_factory.mktemp("pictures")
    rng = stream(1, "pictures")
    for c, name in enumerate(CLASSES):
        for i, x in enumerate(bars(rng, np.full(12, c))):
            Image.fromarray(x).save(place / f"{name}-{i}.png")
    for i, x in enumerate(bars(rng, np.full(30, -1))):
        Image.fromarray(x).save(place / f"other-{i}.png")
    (place / "broken.png").write_bytes((place / "down-0.png").read_bytes()[:60])
    Image.new("L", (40, 24), 90).save(place / "large & grey.png")
    return place


def test_loading_a_run_gives_its_calibrated_probabilities(run: RunDir, world: Data) -> None:
    classifier = load(run.path, device="cpu")
    note = run.note(classifier.round)
    logits = classifier.logits(world.test.x)
    np.testing.assert_array_equal(classifier.predict_proba(world.test.x), probabilities(logits, note["temperature"]))
    assert error(logits, world.test.y) == note["metrics"]["error"]


def test_a_prediction_is_known_only_strictly_above_its_threshold(run: RunDir, world: Data) -> None:
    classifier = load(run.path, device="cpu")
    x = np.concatenate([world.test.x, world.out_tests["blobs"]])
    odds = confidence_log_odds(classifier.logits(x), classifier.temperature)
    best = classifier.predict_proba(x).argmax(axis=1)
    for label, c, o in zip(classifier.predict(x), best, odds, strict=True):
        assert label == (CLASSES[c] if o > classifier.tau[c] else UNKNOWN)
    assert set(classifier.thresholds) == set(CLASSES)
    p = 1 / (1 + np.exp(-classifier.tau))
    np.testing.assert_allclose(list(classifier.thresholds.values()), p)


def test_a_prediction_at_its_own_threshold_is_unknown(run: RunDir, world: Data) -> None:
    from dataclasses import replace

    classifier = load(run.path, device="cpu")
    x = world.test.x[:1]
    odds = confidence_log_odds(classifier.logits(x), classifier.temperature)
    at = replace(classifier, tau=np.full(3, odds[0]))
    below = replace(classifier, tau=np.full(3, np.nextafter(odds[0], -np.inf)))
    closed = replace(classifier, tau=np.full(3, np.inf))
    assert at.predict(x) == closed.predict(x) == [UNKNOWN]
    assert below.predict(x) != [UNKNOWN]
    assert closed.thresholds["down"] == 1.0


def test_any_round_can_be_loaded_and_an_absent_one_is_named(run: RunDir) -> None:
    assert load(run.path, round=0, device="cpu").round == 0
    assert "no round 9" in fails("predict", run.path, run.path, "--round", 9)


def test_rows_of_another_shape_are_refused(run: RunDir) -> None:
    with pytest.raises(ValueError, match=r"takes \(12, 12, 3\)"):
        load(run.path, device="cpu").predict(np.zeros((2, 8, 8, 3), np.uint8))


def test_every_file_gets_one_row(run: RunDir, folder: Path, tmp_path: Path) -> None:
    table = tmp_path / "labels.csv"
    result = odst("predict", run.path, folder, "--csv", table, "--device", "cpu")
    assert result.code == 0, result.err
    with table.open(newline="", encoding="utf-8") as file:
        rows = {Path(row["source"]).name: row for row in csv.DictReader(file)}
    assert len(rows) == len(list(folder.iterdir()))
    unrelated = [row["class"] for name, row in rows.items() if name.startswith("other")]
    assert unrelated.count(UNKNOWN) > 0.8 * len(unrelated)
    task = [(name.split("-")[0], row["class"]) for name, row in rows.items() if name.split("-")[0] in CLASSES]
    assert sum(name == label for name, label in task) > 0.5 * len(task)
    assert sum(label not in (name, UNKNOWN) for name, label in task) <= 2
    broken = rows["broken.png"]
    assert broken["class"] == broken["confidence"] == "" and broken["reason"]
    assert 0 < float(rows["large%20%26%20grey.png"]["confidence"]) <= 1
    assert "1 not readable" in result.err


def test_parquet_and_csv_say_the_same(run: RunDir, folder: Path, tmp_path: Path) -> None:
    result = odst(
        "predict", run.path, folder, "--parquet", tmp_path / "a.parquet", "--csv", tmp_path / "a.csv", "--device", "cpu"
    )
    assert result.code == 0 and result.out == ""
    table = pq.read_table(tmp_path / "a.parquet").to_pylist()
    with (tmp_path / "a.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [row["source"] for row in table] == [row["source"] for row in lines]
    assert [row["class"] for row in table] == [row["class"] for row in lines]
    for row, line in zip(table, lines, strict=True):
        assert line["confidence"] == ("" if row["confidence"] is None else f"{row['confidence']:.6f}")


def test_rows_sent_to_a_file_arrive_there_while_the_bars_are_on_a_terminal(
    run: RunDir, folder: Path, tmp_path: Path
) -> None:
    ours, terminal = os.openpty()
    command = [sys.executable, "-c", "from odst.cli import main; main()", "predict", run.path, folder]
    with open(tmp_path / "rows.csv", "wb") as file:
        process = subprocess.Popen(command, stdout=file, stderr=terminal, env=os.environ | {"TERM": "xterm"})
    os.close(terminal)
    with contextlib.suppress(OSError):  # the terminal is gone when the command ends
        while os.read(ours, 65536):
            pass
    os.close(ours)
    assert process.wait() == 0
    rows = (tmp_path / "rows.csv").read_text().splitlines()
    assert len(rows) == 1 + len(list(folder.iterdir()))


def test_single_pictures_are_sources_too(run: RunDir, folder: Path) -> None:
    result = odst("predict", run.path, folder / "down-0.png", folder / "broken.png", "--device", "cpu")
    assert result.code == 0
    header, first, second = result.out.splitlines()
    assert header == "source,path,class,confidence,nearest,reason"
    assert "down-0.png" in first and "broken.png" in second


def test_rows_stand_in_the_order_of_the_command_line(run: RunDir, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "few").mkdir()
    shutil.copy(folder / "down-1.png", tmp_path / "few" / "in few.png")
    words = (folder / "down-0.png", folder / "other-0.png", tmp_path / "few", folder / "across-0.png")
    result = odst("predict", run.path, *words, "--device", "cpu")
    assert result.code == 0, result.err
    rows = list(csv.DictReader(result.out.splitlines()))
    assert [Path(row["path"]).name for row in rows] == ["down-0.png", "other-0.png", "in few.png", "across-0.png"]


def test_a_path_is_written_as_a_person_would_write_it(run: RunDir, folder: Path, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a shard.tar", "w") as tar:
        tar.add(folder / "down-0.png", "cats & dogs/é.png")
    np.save(tmp_path / "x.npy", np.zeros((2, 12, 12, 3), np.uint8))
    picture = (folder / "down-0.png").read_bytes()
    pq.write_table(pa.table({"image": [picture, picture]}), tmp_path / "t.parquet")
    sources = [folder / "large & grey.png", *(tmp_path / name for name in ("a shard.tar", "x.npy", "t.parquet"))]
    result = odst("predict", run.path, *sources, "--parquet", tmp_path / "p.parquet", "--device", "cpu")
    assert result.code == 0, result.err
    assert pq.read_table(tmp_path / "p.parquet")["path"].to_pylist() == [
        str(folder / "large & grey.png"),
        f"{tmp_path}/a shard.tar: cats & dogs/é.png",
        *(f"{tmp_path}/{name}: row {j}" for name in ("x.npy", "t.parquet") for j in range(2)),
    ]


def test_a_name_that_is_not_utf_8_gets_a_row_in_valid_tables(run: RunDir, folder: Path, tmp_path: Path) -> None:
    strange = os.fsencode(tmp_path) + b"/caf\xe9 \xff.png"
    try:
        shutil.copy(folder / "down-0.png", strange)
    except OSError:
        pytest.skip("this file system has UTF-8 names only")
    command = [
        sys.executable,
        "-c",
        "from odst.cli import main; main()",
        "predict",
        run.path,
        strange,
        "--device",
        "cpu",
    ]
    tables = ["--csv", tmp_path / "a.csv", "--parquet", tmp_path / "a.parquet"]
    for more in ([], tables):
        done = subprocess.run([*command, *more], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr
        text = (tmp_path / "a.csv").read_bytes() if more else done.stdout
        (row,) = csv.DictReader(text.decode("utf-8").splitlines())
        assert row["source"].endswith("/caf%E9%20%FF.png") and row["class"]
        assert row["path"] == f"{tmp_path}/caf\\xe9 \\xff.png"
    assert pq.read_table(tmp_path / "a.parquet")["path"].to_pylist() == [row["path"]]


def test_a_source_that_is_not_there_is_refused_before_a_line_is_printed(run: RunDir, tmp_path: Path) -> None:
    result = odst("predict", run.path, tmp_path / "nothing")
    assert result.code == 2 and result.out == "" and "no such file or folder" in result.err


def test_a_class_called_unknown_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a class is called 'unknown'.*val_out"):
        check_data(config().recipe(), bar_world(pool=20, classes=("across", "down", UNKNOWN)))


def test_features_and_images_are_not_mixed_up(run: RunDir, tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.zeros((3, 5), np.float32))
    assert "takes images" in fails("predict", run.path, tmp_path / "f.npy")


def test_evaluating_on_a_labelled_folder_counts_its_errors(run: RunDir, tmp_path: Path) -> None:
    rng = stream(2, "pictures")
    kinds = np.arange(60) % 3
    x = bars(rng, kinds)
    for i, (k, picture) in enumerate(zip(kinds, x, strict=True)):
        (tmp_path / "test" / CLASSES[k]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(tmp_path / "test" / CLASSES[k] / f"{i:02}.png")
    others = bars(rng, np.full(40, -1))
    np.save(tmp_path / "others.npy", others)
    result = odst(
        "evaluate", run.path, "--on", tmp_path / "test", "--out", f"blobs={tmp_path / 'others.npy'}",
        "--save", tmp_path / "e.json", "--device", "cpu",
    )  # fmt: skip
    assert result.code == 0, result.err
    found = json.loads((tmp_path / "e.json").read_text())
    classifier = load(run.path, device="cpu")
    logits = classifier.logits(x)
    assert found["error"] == pytest.approx(error(logits, kinds))
    low, high = found["error_interval"]
    assert low <= found["error"] <= high
    T = classifier.temperature
    expected = auroc(confidence_log_odds(logits, T), confidence_log_odds(classifier.logits(others), T))
    assert found["out"]["blobs"]["auroc"] == found["od_auroc"] == pytest.approx(expected)
    assert {"fpr_at_95_tpr", "fpr_at_95_tpr_out_positive"} <= found["out"]["blobs"].keys()
    assert "FPR95 % (in positive)" in result.out


def test_bad_sources_of_an_evaluation_are_one_line(run: RunDir, folder: Path, tmp_path: Path) -> None:
    assert "no label for" in fails("evaluate", run.path, "--on", folder)
    (tmp_path / "birds").mkdir()
    Image.new("RGB", (12, 12)).save(tmp_path / "birds" / "a.png")
    line = fails("evaluate", run.path, "--on", tmp_path)
    assert "its class 'birds' is none of" in line and "across, down, diagonal" in line
    (tmp_path / "ok" / "down").mkdir(parents=True)
    Image.new("RGB", (12, 12)).save(tmp_path / "ok" / "down" / "a.png")
    assert "NAME=SOURCE" in fails("evaluate", run.path, "--on", tmp_path / "ok", "--out", "flowers")


def labelled_folder(place: Path) -> Path:
    for c, name in enumerate(CLASSES):
        (place / name).mkdir(parents=True)
        Image.fromarray(bars(stream(3, "pictures", c), np.array([c]))[0]).save(place / name / "a.png")
    return place


def test_published_corruption_files_are_measured_by_the_command(run: RunDir, tmp_path: Path) -> None:
    on, place, y = labelled_folder(tmp_path / "on"), tmp_path / "C", np.arange(9) % 3
    place.mkdir()
    x = {name: bars(stream(4, name), np.tile(y, 5)) for name in CORRUPTIONS}
    for name, images in x.items():
        np.save(place / f"{name}.npy", images)
    np.save(place / "labels.npy", np.tile(y, 5).astype(np.uint8))
    command = ("evaluate", run.path, "--on", on, "--corruption-files", place, "--device", "cpu")
    result = odst(*command, "--save", tmp_path / "e.json")
    assert result.code == 0, result.err
    found = json.loads((tmp_path / "e.json").read_text())
    classifier = load(run.path, device="cpu")
    wrong = {name: classifier.logits(images).argmax(axis=1) != np.tile(y, 5) for name, images in x.items()}
    assert found["corruption_error"] == pytest.approx(np.mean(list(wrong.values())))
    assert found["corruption_errors"]["fog"] == pytest.approx(wrong["fog"].reshape(5, 9).mean(axis=1))
    assert f"{100 * found['corruption_error']:.2f}" in result.out
    np.save(place / "labels.npy", np.tile(np.arange(9), 5))
    assert "labels run from 0 to 8, and this run has 3 classes" in fails(*command)
    assert "give one of them" in fails(*command, "--corruptions")


def test_out_sets_say_what_they_leave_out_and_have_names_of_their_own(
    run: RunDir, folder: Path, tmp_path: Path
) -> None:
    on = labelled_folder(tmp_path / "on")
    result = odst("evaluate", run.path, "--on", on, "--out", f"mixed={folder}")
    assert result.code == 0 and "1 images could not be used" in result.err and "broken.png" in result.err
    twice = ("--out", f"mixed={folder}", "--out", f"mixed={folder}")
    assert "'mixed' is given twice" in fails("evaluate", run.path, "--on", on, *twice)
    np.save(tmp_path / "wide.npy", np.zeros((3, 7), np.float32))
    line = fails("evaluate", run.path, "--on", on, "--out", f"wide={tmp_path / 'wide.npy'}")
    assert "--out wide: its rows have shape (7,)" in line


def test_a_run_that_is_none_or_too_old_is_one_line(run: RunDir, tmp_path: Path) -> None:
    for command in ("report", "predict", "evaluate", "compare", "export"):
        more = [tmp_path] if command == "predict" else ["--onnx", tmp_path / "m.onnx"] if command == "export" else []
        assert "no run directory" in fails(command, tmp_path / "nothing", *more)
    (tmp_path / "page.html").write_text("")
    assert "no run directory" in fails("compare", tmp_path / "page.html")
    old = tmp_path / "old"
    old.mkdir()
    (old / "run.json").write_text(json.dumps({"format": 0}))
    for command in ("report", "evaluate", "compare"):
        assert "format 0" in fails(command, old)


def test_a_damaged_final_json_is_named(run: RunDir, folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "run"
    shutil.copytree(run.path, copy)
    (copy / "final.json").write_text("{")
    for command in (("predict", copy, folder), ("evaluate", copy), ("compare", copy)):
        assert "final.json: this file is damaged" in fails(*command)


def test_a_folder_where_a_file_is_to_be_written_is_one_line(run: RunDir, folder: Path, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.mkdir()
    for command in (
        ("predict", run.path, folder, "--csv", there),
        ("compare", run.path, "--no-images", "--out", there),
    ):
        assert "this is a folder" in fails(*command)
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


@pytest.mark.slow
def test_onnx_and_torch_agree_and_the_file_knows_its_classes(run: RunDir, world: Data, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra odst[onnx] is not installed")
    classifier = load(run.path, device="cpu")
    assert export_onnx(classifier, tmp_path / "m.onnx") <= 1e-4
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    x = np.concatenate([world.test.x[:7], world.pool.x[:30]])
    found = session.run(None, {"images": x})[0]
    np.testing.assert_allclose(found, classifier.predict_proba(x), atol=1e-4)
    np.testing.assert_allclose(session.run(None, {"images": x[:1]})[0], found[:1], atol=1e-6)
    notes = session.get_modelmeta().custom_metadata_map
    assert json.loads(notes["classes"]) == list(CLASSES)
    assert json.loads(notes["thresholds"]) == list(classifier.thresholds.values())


def test_an_exported_file_labels_by_its_own_words_what_predict_labels(run: RunDir, world: Data, tmp_path: Path) -> None:
    """Where all probabilities are 1 in float32, and so are the thresholds; one class closed, one open to all."""
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra odst[onnx] is not installed")
    x = np.concatenate([world.test.x, world.pool.x])
    sharp = replace(load(run.path, device="cpu"), temperature=0.005)
    c, odds = top_log_odds(sharp.logits(x), sharp.temperature)
    middles = [float(np.median(odds[c == k])) for k in range(3)]
    assert min(middles) > 40 and set(np.float32(1 / (1 + np.exp(-np.array(middles))))) == {1}
    for tau in (middles, [middles[0], np.inf, -np.inf]):
        classifier = replace(sharp, tau=np.array(tau))
        export_onnx(classifier, tmp_path / "m.onnx")
        session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
        notes = session.get_modelmeta().custom_metadata_map
        names, least = json.loads(notes["classes"]), [float(one) for one in json.loads(notes["log_odds_thresholds"])]
        (found,) = session.run(["log_odds"], {"images": x})
        best = found.argmax(axis=1)
        labels = [names[k] if row[k] > least[k] else "unknown" for k, row in zip(best, found, strict=True)]
        off = np.abs(odds - np.array(tau)[c]) > 0.05  # the image that the threshold was taken from may fall either way
        wanted = np.array(classifier.predict(x))
        assert (np.array(labels)[off] == wanted[off]).all() and off.sum() >= len(x) - 3
        assert {"unknown", *CLASSES} - {CLASSES[1]} <= set(wanted)


@pytest.mark.slow
def test_a_feature_classifier_exports_too(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra odst[onnx] is not installed")
    from blobs import blob_world

    run = make_run(tmp_path / "features", blob_world(pool=200), config(model={"name": "mlp"}), rounds=1)
    classifier = load(run.path, device="cpu")
    assert export_onnx(classifier, tmp_path / "m.onnx") <= 1e-4
    assert example(classifier).dtype == np.float32


def test_tensorboard_events_repeat_metrics_jsonl(run: RunDir, tmp_path: Path) -> None:
    loader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_file_loader", reason="the extra odst[tensorboard] is not installed"
    )
    count = export_tensorboard(run, tmp_path)
    file = next(tmp_path.glob("events*"))
    found = [
        (value.tag, event.step, value.tensor.float_val[0])
        for event in loader.EventFileLoader(str(file)).Load()
        for value in event.summary.value
    ]
    assert len(found) == count
    for line in run.metrics():
        assert ("error", line["round"], pytest.approx(line["error"], rel=1e-6)) in found
        assert any(tag == "od_auroc_by_set/blobs" and step == line["round"] for tag, step, _ in found)


def test_an_export_without_a_target_says_what_to_give(run: RunDir) -> None:
    assert "--onnx FILE" in fails("export", run.path)


def test_awkward_class_names_come_out_as_they_are(tmp_path: Path) -> None:
    world = bar_world()
    run = make_run(tmp_path / "awkward", world, config(), rounds=1)
    classifier = load(run.path, device="cpu")
    assert set(classifier.predict(world.test.x)) <= {*NAMES, UNKNOWN}
