"""What `odst selection` writes is what other tools read: each by its documented schema, and with the tool where it is here."""

import csv
import json
import shutil
import tarfile
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from commands import fails, odst
from odst.data.packing import build_pool
from odst.data.reading import read_set
from odst.exchange.imports import Imported, described
from odst.exchange.names import folder_names
from odst.run.audit import check_own, drawn_ranks, ranked
from odst.run.config import read_config
from odst.run.directory import RunDir
from odst.run.execution import execute
from odst.run.marks import Mark, read_marks, run_hash, write_marks
from runs import SIDE, bars

NAMES = ("Cat", "a/b", "cat")  # none of them a folder's name everywhere: a slash, and two that differ in case


def write_pictures(folder: Path, kind: np.ndarray, seed: int, ending: str = "png") -> None:
    """Noisy bars, three times as large as they are packed."""
    folder.mkdir(parents=True)
    for j, picture in enumerate(bars(np.random.default_rng(seed), kind)):
        large = Image.fromarray(picture).resize((3 * SIDE, 3 * SIDE), Image.Resampling.NEAREST)
        large.save(folder / f"picture {j} é#.{ending}")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on folders, a tar and a table: files that can be linked to, and members that cannot."""
    root = tmp_path_factory.mktemp("exchange")
    for name, kind in zip(("first", "second", "third"), range(3), strict=True):
        write_pictures(root / "labelled" / name, np.full(12, kind), kind)
    rng = np.random.default_rng(9)
    write_pictures(root / "pool", np.where(rng.random(150) < 0.6, rng.integers(3, size=150), -1), 10)
    write_pictures(root / "loose", np.arange(60) % 3, 11, "jpg")
    with tarfile.open(root / "more.tar", "w") as tar:
        for j, file in enumerate(sorted((root / "loose").iterdir())[:30]):
            tar.add(file, f"deep/{j:03d}.jpg")
    rows = [{"bytes": file.read_bytes(), "path": None} for file in sorted((root / "loose").iterdir())[30:]]
    pq.write_table(pa.table({"image": rows}), root / "rest.parquet")
    write_pictures(root / "val_in", np.arange(120) % 3, 12)
    files = sorted((root / "val_in").iterdir(), key=lambda file: int(file.name.split()[1]))
    lines = [[f"val_in/{file.name}", ("first", "second", "third")[j % 3]] for j, file in enumerate(files)]
    with open(root / "val_in.csv", "w", newline="") as file:
        csv.writer(file).writerows([["path", "label"], *lines])
    write_pictures(root / "val_out", np.full(80, -1), 13)
    for old, new in zip(("first", "second", "third"), NAMES, strict=True):  # awkward names come from a table
        lines = [[path, new if label == old else label] for path, label in lines]
    with open(root / "val_in.csv", "w", newline="") as file:
        csv.writer(file).writerows([["path", "label"], *lines])
    with open(root / "labelled.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "label"])
        for old, new in zip(("first", "second", "third"), NAMES, strict=True):
            table.writerows([f"labelled/{old}/{one.name}", new] for one in (root / "labelled" / old).iterdir())
    (root / "odst.toml").write_text(
        f"""
[data]
labelled = "labelled.csv"
pool = ["pool", "more.tar", "rest.parquet"]
val_in = "val_in.csv"
val_out = "val_out"
size = {SIDE}
[method]
alpha = 0.9
ratio = [3, 6]
[model]
name = "tiny"
[training]
batch = 24
phases = [{{ steps = 60, lr = 0.1, shape = "cosine" }}]
"""
    )
    execute(read_config(str(root / "odst.toml"), {}), root / "run")
    return root / "run"


@pytest.fixture
def table(run: Path) -> list[dict[str, Any]]:
    found = RunDir(run).selection_table(2)
    assert found is not None
    rows = found.to_pylist()
    assert {row["class"] for row in rows} == set(NAMES)
    assert {kind for row in rows for kind in ("#member", "#row", ".png") if kind in row["source"]} == {
        "#member",
        "#row",
        ".png",
    }
    return rows


def inside(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def marked(row: dict[str, Any]) -> str:
    return f"{row['pool_id']:012d}-{row['content_hash'][:8]}"


def take(run: Path, to: str, out: Path, *words: str) -> str:
    result = odst("selection", run, "--to", to, "--round", "2", "--out", out, "-q", *words)
    assert result.code == 0, result.err
    return result.out


def original(row: dict[str, Any], run: Path) -> bytes:
    """The bytes that a row's address stands for, found by another way than odst's."""
    path, _, inside = row["source"].partition("#")
    from urllib.parse import unquote, urlsplit

    file = Path(unquote(urlsplit(path).path))
    if inside.startswith("member="):
        with tarfile.open(file) as tar:
            member = tar.extractfile(unquote(inside.removeprefix("member=")))
            assert member is not None
            return member.read()
    if inside.startswith("row="):
        return pq.read_table(file)["image"][int(inside.removeprefix("row="))].as_py()["bytes"]
    return file.read_bytes()


def test_class_folders_hold_the_originals_byte_for_byte_and_read_as_a_labelled_set(run, table, tmp_path) -> None:
    take(run, "folder", tmp_path / "out")
    assert inside(tmp_path / "out") == ["Cat", "a%2Fb", "cat~2"]
    places = dict(zip(NAMES, ("Cat", "a%2Fb", "cat~2"), strict=True))
    for row in table:
        (file,) = (tmp_path / "out" / places[row["class"]]).glob(f"{row['pool_id']:012d}.*")
        assert file.read_bytes() == original(row, run)
        assert file.suffix == (".jpg" if "#" in row["source"] else ".png")
    found = read_set(tmp_path / "out", SIDE, labelled=True)
    assert not found.rejected and len(found.labels) == len(table)
    assert sorted(found.hashes) == sorted(row["content_hash"] for row in table)


def test_links_point_at_originals_that_are_files_and_members_are_copied(run, table, tmp_path) -> None:
    take(run, "folder", tmp_path / "out", "--links")
    linked = {int(file.stem) for file in (tmp_path / "out").rglob("*.*") if file.is_symlink()}
    assert linked == {row["pool_id"] for row in table if "#" not in row["source"]}
    assert {row["pool_id"] for row in table} == {int(file.stem) for file in (tmp_path / "out").rglob("*.*")}
    assert read_set(f"{tmp_path / 'out'}?links=follow", SIDE, labelled=True).x.shape[0] == len(table)


def test_a_selection_as_parquet_or_csv_feeds_given_selection(run, table, tmp_path) -> None:
    take(run, "parquet", tmp_path / "chosen.parquet")
    assert pq.read_table(tmp_path / "chosen.parquet").to_pylist() == table
    take(run, "csv", tmp_path / "chosen.csv")
    with open(tmp_path / "chosen.csv", newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert [(int(line["pool_id"]), line["class"], float(line["log_odds"])) for line in lines] == [
        (row["pool_id"], row["class"], row["log_odds"]) for row in table
    ]
    changes = {"method.name": "given-selection", "data.selection": str(tmp_path / "chosen.parquet")}
    config = read_config(str(run.parent / "odst.toml"), changes)
    execute(config, tmp_path / "again")
    given = RunDir(tmp_path / "again").selection(1)
    assert given is not None
    assert sorted(given["pool_id"].to_pylist()) == sorted(row["pool_id"] for row in table)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it leaves metadata.csv open
def test_hugging_faces_imagefolder_reads_it(run, table, tmp_path) -> None:
    datasets = pytest.importorskip("datasets")
    take(run, "hf", tmp_path / "out")
    loaded = datasets.load_dataset("imagefolder", data_dir=str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    assert list(loaded) == ["train"]
    rows = {row["pool_id"]: row for row in loaded["train"]}
    assert len(rows) == len(table)
    for row in table:
        found = rows[row["pool_id"]]
        assert found["label"] == row["class"] and found["content_hash"] == row["content_hash"]
        assert found["probability"] == pytest.approx(row["probability"]) and found["repeats"] == row["repeats"]
        assert found["image"].size == (3 * SIDE, 3 * SIDE) and found["picture"] == "original"
    assert str(run.parent) not in (tmp_path / "out" / "train" / "metadata.csv").read_text()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning")
def test_webdataset_reads_it_and_so_does_a_pool(run, table, tmp_path) -> None:
    wds = pytest.importorskip("webdataset")
    take(run, "webdataset", tmp_path / "out")
    (shard,) = (tmp_path / "out").iterdir()
    samples = list(wds.WebDataset(str(shard), shardshuffle=False).decode("rgb8"))
    found = {sample["json"]["pool_id"]: sample for sample in samples}
    assert len(samples) == len(found) == len(table)
    for row in table:
        sample = found[row["pool_id"]]
        assert sample["__key__"] == f"{row['pool_id']:012d}" and sample["json"]["label"] == row["class"]
        assert NAMES.index(row["class"]) == sample["cls"]
        picture = sample["jpg" if "#" in row["source"] else "png"]
        assert picture.shape == (3 * SIDE, 3 * SIDE, 3)
    manifest = build_pool(tmp_path / "out", tmp_path / "pool", size=SIDE)
    assert manifest["count"] == len({row["content_hash"] for row in table})


def test_label_studio_gets_tasks_with_the_class_as_a_prediction(run, table, tmp_path) -> None:
    """By the schema of its documentation: data, and predictions with results of the control tag that the config names."""
    said = take(run, "labelstudio", tmp_path / "for label studio")
    assert f"LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={tmp_path}" in said
    view = ET.parse(tmp_path / "for label studio" / "labeling_config.xml").getroot()
    image, choices = view.find("Image"), view.find("Choices")
    assert view.tag == "View" and image is not None and choices is not None
    offered = [choice.get("value") for choice in choices]
    assert offered == [*NAMES, "none of these"]
    tasks = json.loads((tmp_path / "for label studio" / "tasks.json").read_text())
    assert [task["data"]["pool_id"] for task in tasks] == [row["pool_id"] for row in table]
    for task, row in zip(tasks, table, strict=True):
        place = task["data"][str(image.get("value")).removeprefix("$")]
        assert place.startswith("/data/local-files/?d=")
        file = tmp_path / place.removeprefix("/data/local-files/?d=")  # below the document root
        assert file.read_bytes() == original(row, run)
        (prediction,) = task["predictions"]
        assert prediction["score"] == row["probability"] and 0 <= prediction["score"] <= 1
        (result,) = prediction["result"]
        assert result["type"] == "choices" and result["value"] == {"choices": [row["class"]]}
        assert (result["from_name"], result["to_name"]) == (choices.get("name"), image.get("name"))
        assert choices.get("toName") == image.get("name")
    assert len({task["predictions"][0]["result"][0]["id"] for task in tasks}) == len(tasks)


def test_fiftyone_gets_its_image_classification_layout(run, table, tmp_path) -> None:
    """By the schema of its documentation: data/UUID.ext, and labels.json with classes and a target for every UUID."""
    take(run, "fiftyone", tmp_path / "out")
    assert inside(tmp_path / "out") == ["data", "labels.json"]
    labels = json.loads((tmp_path / "out" / "labels.json").read_text())
    assert set(labels) == {"classes", "labels"} and labels["classes"] == list(NAMES)
    files = {file.stem for file in (tmp_path / "out" / "data").iterdir()}
    assert files == set(labels["labels"]) == set(map(marked, table))
    for row in table:
        found = labels["labels"][marked(row)]
        assert labels["classes"][found["label"]] == row["class"] and found["confidence"] == row["probability"]
        assert found["attributes"]["content_hash"] == row["content_hash"]


def test_only_what_an_audit_certified_leaves_with_certified(run, table, tmp_path) -> None:
    """Every picture of two classes was seen and is right, every one of the third is wrong."""
    copy = RunDir(Path(shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns("selection-*", "marks"))))
    sets = ranked(copy, 2)
    marks = [
        Mark(
            pool_id=int(one.ids[rank]), content_hash=one.hashes[rank], run_hash=run_hash(copy, 2), round=2, mode="audit",
            name=one.name, verdict="wrong" if one.name == NAMES[2] else "right", draws=500, who="x", when="now",
        )
        for one, ranks in zip(sets, drawn_ranks(copy, 2, sets, 500), strict=True)
        for rank in ranks
    ]  # fmt: skip
    write_marks(tmp_path / "marks.json", marks)
    result = odst("audit", copy.path, "--marks", tmp_path / "marks.json", "--round", "2", "--target", "0.9")
    assert result.code == 0, result.err
    take(copy.path, "parquet", tmp_path / "certified.parquet", "--certified")
    found = pq.read_table(tmp_path / "certified.parquet").to_pylist()
    assert found == [row for row in table if row["class"] != NAMES[2]]


def test_a_picture_that_has_gone_or_changed_comes_from_the_pools_pixels_and_the_command_says_how_many(
    run, table, tmp_path
) -> None:
    from urllib.parse import unquote, urlsplit

    gone, changed = [row for row in table if "#" not in row["source"]][:2]
    files = [Path(unquote(urlsplit(row["source"]).path)) for row in (gone, changed)]
    kept = [file.read_bytes() for file in files]
    try:
        files[0].unlink()
        Image.new("RGB", (40, 40), (250, 10, 10)).save(files[1])
        said = take(run, "folder", tmp_path / "out")
    finally:
        for file, data in zip(files, kept, strict=True):
            file.write_bytes(data)
    assert "2 pictures are the pixels that the pool holds" in said
    for row in (gone, changed):
        (file,) = (tmp_path / "out").rglob(f"{row['pool_id']:012d}.png")
        with Image.open(file) as picture:
            assert picture.size == (SIDE, SIDE)
    hashes = read_set(tmp_path / "out", SIDE, labelled=True).hashes
    assert sorted(hashes) == sorted(row["content_hash"] for row in table)


def test_a_built_in_world_has_no_originals_and_its_pixels_are_taken(tmp_path) -> None:
    steps = {"training.phases": [{"steps": 60, "lr": 0.1, "shape": "cosine"}], "method.alpha": 0.8, "method.ratio": [5]}
    execute(read_config("digits", steps), tmp_path / "run")
    result = odst("selection", tmp_path / "run", "--to", "fiftyone", "-q")
    assert result.code == 0 and "All pictures are the pixels that the pool holds" in result.out
    assert (tmp_path / "run" / "selection-1-fiftyone" / "labels.json").is_file()


def test_what_cannot_be_written_is_one_line_and_leaves_nothing(run, tmp_path) -> None:
    assert "there is no such format. Take one of folder, csv" in fails("selection", run, "--to", "coco")
    for t in ("7", "0"):
        assert f"round {t} has no selection" in fails("selection", run, "--to", "csv", "--round", t)
    assert "round 2 has no audit yet" in fails("selection", run, "--to", "csv", "--round", "2", "--certified")
    assert "--links is for --to folder" in fails("selection", run, "--to", "hf", "--links", "--out", tmp_path / "x")
    assert "is no run directory" in fails("selection", tmp_path, "--to", "csv")
    (tmp_path / "there").mkdir()
    assert "nothing is overwritten" in fails("selection", run, "--to", "folder", "--out", tmp_path / "there")
    (tmp_path / "file").write_text("")
    assert fails("selection", run, "--to", "folder", "--out", tmp_path / "file" / "x")
    assert inside(tmp_path) == ["file", "there"]


def test_an_export_that_is_cut_short_leaves_nothing(run, tmp_path, monkeypatch) -> None:
    """A shard of the pool that is missing is found when its first picture is taken."""
    shard = next((run / "pool" / "shards").iterdir())
    shard.rename(tmp_path / "aside")
    try:
        assert "missing" in fails("selection", run, "--to", "webdataset", "--out", tmp_path / "out")
    finally:
        (tmp_path / "aside").rename(shard)
    assert inside(tmp_path) == []


def test_names_of_folders_are_safe_everywhere_and_no_two_are_alike() -> None:
    names = [
        "cat",
        "Cat",
        "CON",
        "con.x",
        ".hidden",
        "dot.",
        "a/b",
        "a%2Fb",
        "x" * 300,
        "é" * 200,
        "tab\t",
        "<b>",
        "",
        " ",
    ]
    folders = folder_names(names)
    assert len({name.casefold() for name in folders}) == len(names)
    for name in folders:
        assert 0 < len(name.encode()) < 255 and not set(name) & set('<>:"/\\|?*\t')
        assert name[0] not in ". " and name[-1] not in ". "
        assert name.partition(".")[0].casefold() not in ("con", "nul")
    assert folders[0] == "cat" and folder_names(["plain", "it's & 😀"]) == ["plain", "it's & 😀"]


# and back ------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def annotated(run, table, tmp_path) -> list[dict[str, Any]]:
    """The tasks as Label Studio exports them: the first right, the second another class, the third none, the fourth skipped."""
    take(run, "labelstudio", tmp_path / "tasks")
    tasks = json.loads((tmp_path / "tasks" / "tasks.json").read_text())
    second = next(name for name in NAMES if name != table[1]["class"])
    for i, choice in enumerate((table[0]["class"], second, "none of these", table[3]["class"])):
        result = {
            "id": "x",
            "from_name": "class",
            "to_name": "image",
            "type": "choices",
            "value": {"choices": [choice]},
        }
        tasks[i]["annotations"] = [
            {
                "id": 100 + i,
                "completed_by": {"id": 1, "email": "anna@example.org"},
                "result": [result],
                "was_cancelled": i == 3,
                "created_at": "2026-01-02T03:04:05Z",
                "updated_at": "2026-01-02T03:04:05Z",
            }
        ]
    for i, task in enumerate(tasks):
        task |= {"id": i + 1, "annotations": task.get("annotations", []), "predictions": []}
    return tasks


def brought(run: Path, file: Path) -> tuple[list[Mark], str]:
    """What an import keeps, taken away again: the run is shared by the tests."""
    result = odst("review", run, "--import", file, "--round", "2")
    assert result.code == 0, result.err
    (kept,) = (run / "marks").iterdir()
    marks = read_marks(kept)
    check_own(RunDir(run), marks, "imported")
    kept.unlink()
    return marks, result.out


def expected(table: list[dict[str, Any]]) -> list[tuple[int, str, str | None]]:
    second = next(name for name in NAMES if name != table[1]["class"])
    ids = [row["pool_id"] for row in table]
    return [(ids[0], "right", None), (ids[1], "relabelled", second), (ids[2], "none", None)]


def test_label_studios_annotations_come_back_as_marks_that_never_count_for_a_certificate(
    run, table, annotated, tmp_path
) -> None:
    (tmp_path / "export.json").write_text(json.dumps(annotated))
    marks, said = brought(run, tmp_path / "export.json")
    assert [(mark.pool_id, mark.verdict, mark.label) for mark in marks] == expected(table)
    assert {(mark.mode, mark.draws, mark.who, mark.round) for mark in marks} == {
        ("triage", None, "anna@example.org", 2)
    }
    assert [mark.name for mark in marks] == [row["class"] for row in table[:3]]
    assert f"{len(table) - 3} pictures are skipped or not annotated" in said


def test_label_studios_short_export_gives_the_same_marks(run, table, annotated, tmp_path) -> None:
    short = [
        {**task["data"], "id": task["id"], "annotator": 7, "annotation_id": 5, "created_at": "2026-01-02",
         "class": task["annotations"][0]["result"][0]["value"]["choices"][0]}
        for task in annotated[:3]
    ]  # fmt: skip
    (tmp_path / "min.json").write_text(json.dumps(short))
    marks, _ = brought(run, tmp_path / "min.json")
    assert [(mark.pool_id, mark.verdict, mark.label) for mark in marks] == expected(table)
    assert {mark.who for mark in marks} == {"7"}


@pytest.mark.parametrize("kind", ["numbers", "names", "attributes", "samples"])
def test_of_fiftyones_labels_those_that_were_changed_are_marks(run, table, tmp_path, kind) -> None:
    take(run, "fiftyone", tmp_path / "out")
    labels = json.loads((tmp_path / "out" / "labels.json").read_text())
    classes = [*labels["classes"], "none of these"]
    second = expected(table)[1][2]
    for row, label in zip(table[1:3], (second, "none of these"), strict=True):
        labels["labels"][marked(row)]["label"] = classes.index(label)
    if kind == "numbers":  # as FiftyOne writes them unless it is asked for more
        found: Any = {"classes": classes, "labels": {name: one["label"] for name, one in labels["labels"].items()}}
    elif kind == "names":
        found = {"classes": None, "labels": {name: classes[one["label"]] for name, one in labels["labels"].items()}}
    elif kind == "attributes":
        found = {**labels, "classes": classes}
    else:
        found = {
            "samples": [
                {
                    "filepath": f"data/{name}.png",
                    "ground_truth": {"_cls": "Classification", "label": classes[one["label"]]},
                }
                for name, one in labels["labels"].items()
            ]
        }
    (tmp_path / "back").mkdir()
    (tmp_path / "back" / ("samples.json" if kind == "samples" else "labels.json")).write_text(json.dumps(found))
    marks, said = brought(run, tmp_path / "back")
    assert sorted((mark.pool_id, mark.verdict, mark.label) for mark in marks) == sorted(expected(table)[1:])
    assert f"{len(table) - 2} pictures are unchanged" in said


def test_an_export_that_is_not_of_this_run_is_one_line_and_changes_nothing(run, table, annotated, tmp_path) -> None:
    def refused(change: Any) -> str:
        tasks = json.loads(json.dumps(annotated))
        change(tasks)
        (tmp_path / "bad.json").write_text(json.dumps(tasks))
        return fails("review", run, "--import", tmp_path / "bad.json")

    def rename(tasks: Any, new: str) -> None:
        tasks[0]["data"]["image"] = f"/data/local-files/?d=x/images/{new}.png"

    choices = annotated[0]["annotations"][0]["result"][0]["value"]
    assert "of another run" in refused(lambda tasks: tasks[0]["data"].update(run_hash="0" * 64))
    assert "pool id 999999 is not in the selection" in refused(lambda tasks: rename(tasks, "000000999999-00000000"))
    assert "shows another picture" in refused(lambda tasks: rename(tasks, f"{table[0]['pool_id']:012d}-00000000"))
    assert "is no picture that" in refused(lambda tasks: rename(tasks, "holiday"))
    other = {**annotated[0], "annotations": [{"result": [{"type": "choices", "value": {"choices": ["zebra"]}}]}]}
    assert "'zebra' for pool id" in refused(lambda tasks: tasks.__setitem__(0, other))
    assert "no task in it has been annotated" in refused(lambda tasks: [task.update(annotations=[]) for task in tasks])
    assert "cannot be read as an export" in refused(lambda tasks: tasks.insert(0, 5))
    assert "rounds 1, 2" in refused(lambda tasks: tasks[5]["data"].update(round=1))
    for text in ("", "{", "[1", '{"x": 1}'):
        (tmp_path / "bad.json").write_text(text)
        assert "cannot be read as an export" in fails("review", run, "--import", tmp_path / "bad.json")
    assert "No such file" in fails("review", run, "--import", tmp_path / "gone.json")
    assert choices and not any((run / "marks").glob("*"))


def test_one_mark_is_not_many_marks() -> None:
    one = Mark(7, "ab", "cd", 2, "triage", "cat", "none")
    first, second, _ = described(Imported([one], "FiftyOne", 1), Path("marks.json"))
    assert first == "marks.json: 1 mark from FiftyOne: 1 none" and second.startswith("1 picture is unchanged")
    first, second, _ = described(Imported([one, one], "FiftyOne", 2), Path("marks.json"))
    assert "2 marks from" in first and second.startswith("2 pictures are unchanged")
