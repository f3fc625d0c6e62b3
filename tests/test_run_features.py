"""A run on embeddings: the network sees vectors, people see pictures."""

import base64
import io
import json
import re
import shutil
import sqlite3
from pathlib import Path
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import odst
import tiny_encoder
from commands import fails
from commands import odst as command
from odst.classifier.evaluate import labelled_source
from odst.data.decoding import decode
from odst.data.embedding import embed_pool
from odst.data.encoding import CachedEmbedder, Encoding
from odst.data.features import open_features
from odst.data.items import read_file
from odst.data.loading import load_pool, open_encoding
from odst.data.packing import build_pool
from odst.data.pool import open_pool
from odst.data.sets import DataSection
from odst.errors import UserError
from odst.run.config import read_config
from odst.run.directory import RunDir
from odst.run.preparation import pool_of, prepare
from odst.seeds import stream
from processes import artefacts
from processes import odst as process
from runs import bars
from test_resume import kill_when

CLASSES = ("across", "diagonal", "down")
KIND = {"across": 0, "down": 1, "diagonal": 2, "blob": -1}


def pictures(names: list[str], *key: object) -> np.ndarray:
    x = bars(stream(0, *key), np.array([KIND[name] for name in names]))
    return x.repeat(4, axis=1).repeat(4, axis=2)  # 48×48


def written(folder: Path, n: int, classes: tuple[str, ...], *, labelled: bool = True) -> Path:
    names = [classes[i % len(classes)] for i in range(n)]
    for i, (name, row) in enumerate(zip(names, pictures(names, folder.name), strict=True)):
        file = folder / (name if labelled else "") / f"{i:04d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(row).save(file)
    return folder


@pytest.fixture(scope="module")
def world(tmp_path_factory) -> Path:
    """Folders of pictures, an encoder and a config that names it."""
    folder = tmp_path_factory.mktemp("world")
    written(folder / "labelled", 30, CLASSES)
    written(folder / "val", 60, CLASSES)
    written(folder / "val_out", 40, ("blob",), labelled=False)
    written(folder / "test", 60, CLASSES)
    written(folder / "pool", 150, (*CLASSES, "blob", "blob"), labelled=False)
    tiny_encoder.save(folder / "encoder.pth")
    config(folder / "odst.toml")
    return folder


def config(file: Path, pool: str = "pool", backbone: str = "torch:encoder.pth#tiny_encoder:make@24", **data) -> Path:
    more = "".join(f"{key} = {value!r}\n" for key, value in data.items())
    file.write_text(
        f'[data]\nlabelled = "labelled"\nval_in = "val"\nval_out = "val_out"\ntest = "test"\npool = "{pool}"\nsize = 16\n{more}'
        "[method]\nalpha = 0.8\nratio = [2, 4]\nmax_copies = 3\n"
        f'[model]\nname = "mlp"\nbackbone = "{backbone}"\n'
        "[training]\nbatch = 16\nphases = [{ steps = 40, lr = 0.05, shape = 'cosine' }]\n"
        "[run]\ncheckpoint_seconds = 0\n"
    )
    return file


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ODST_DATA", str(tmp_path / "cache"))
    paths = [str(Path(odst.__file__).parent.parent), str(Path(__file__).parent)]
    monkeypatch.setenv("PYTHONPATH", ":".join(paths))  # of the processes that are started
    return tmp_path / "cache"


@pytest.fixture(scope="module")
def run(world: Path, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ODST_DATA", str(out.parent / "cache"))
        done = command("run", world / "odst.toml", "--out", out, "--quiet")
    assert done.code == 0, done.err
    return out


def rows_of(folder: Path) -> tuple[list[Path], np.ndarray]:
    files = sorted(folder.rglob("*.png"))
    return files, np.stack([np.asarray(Image.open(file)) for file in files])


def test_the_network_learns_from_vectors_and_the_run_says_whose(run: Path, world: Path) -> None:
    info = json.loads((run / "run.json").read_text())
    assert info["shape"] == [216]
    assert info["encoder"]["name"] == "torch:encoder.pth#tiny_encoder:make"
    assert info["encoder"]["size"] == 24 and info["encoder"]["from"] == "originals"
    metrics = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert len(metrics) >= 2 and metrics[-1]["error"] < 0.2
    selection = pq.read_table(run / "round-1" / "selection.parquet")
    assert all("/pool/" in source for source in selection["source"].to_pylist())


def test_one_picture_has_one_vector_in_the_pool_and_in_the_other_sets(world: Path, tmp_path: Path) -> None:
    shutil.copytree(world / "labelled", tmp_path / "labelled")
    for name in ("val", "val_out", "test", "encoder.pth"):
        (tmp_path / name).symlink_to(world / name)
    data = prepare(read_config(str(config(tmp_path / "odst.toml", pool="labelled")), {}), tmp_path / "run").data
    assert data.labelled.x.dtype == data.pool.x.dtype == np.float16
    assert len(np.unique(data.labelled.x[:], axis=0)) == 30
    np.testing.assert_array_equal(data.pool.x[:], data.labelled.x)  # folders are read in one order
    assert data.pool.pictures.shape == (30, 16, 16, 3) and data.pool.shown is data.pool.pictures


@pytest.mark.slow
def test_killed_while_it_packs_trains_or_labels_a_run_ends_with_the_same_bits(run: Path, world: Path, tmp_path) -> None:
    broken = tmp_path / "broken"
    call = ("run", world / "odst.toml", "--out", broken)
    kill_when(call, (broken / "pool" / "building").exists)
    kill_when(call, (broken / "scratch" / "train-0.safetensors").exists)
    kill_when(call, (broken / "round-0" / "round.json").exists)
    kill_when(call, (broken / "scratch" / "train-1.safetensors").exists)
    process(*call)
    whole, again = artefacts(run), artefacts(broken)
    assert {name for name in whole if whole[name] != again.get(name)} <= {"report.html"}
    assert any(name.startswith("pool/features/") for name in again)


def test_the_report_shows_pictures_and_needs_no_backbone(run: Path, world: Path, tmp_path: Path) -> None:
    copy, other = shutil.copytree(run, tmp_path / "run"), tmp_path / "other"
    assert command("run", world / "odst.toml", "--out", other, "--method", "st", "--quiet").code == 0
    hidden = world / "encoder.hidden"
    (world / "encoder.pth").rename(hidden)
    try:
        assert command("report", copy).code == 0
        pool = pool_of(RunDir(copy))
        assert command("compare", copy, other, "--out", tmp_path / "compare.html").code == 0
    finally:
        hidden.rename(world / "encoder.pth")
    assert pool.shown.shape[1:] == (16, 16, 3)
    assert "data:image/" in (copy / "report.html").read_text()
    assert "data:image/" in (tmp_path / "compare.html").read_text()


def test_every_picture_of_the_report_is_the_one_of_the_file_that_is_named_with_it(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    assert command("report", copy).code == 0
    page = (copy / "report.html").read_text()
    told = json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])
    sheets = [np.asarray(Image.open(io.BytesIO(base64.b64decode(one))).convert("RGB"))
              for one in re.findall(r"data:image/(?:webp|jpeg);base64,([A-Za-z0-9+/=]+)", page)]  # fmt: skip
    pool = pool_of(RunDir(copy))
    names = pool.source(np.arange(len(pool)))
    files = np.stack([decode(read_file(unquote(urlsplit(name).path).encode()), 16)[0] for name in names]).astype(int)
    seen = 0
    for row in [row for one in told["rounds"].values() for row in one["classes"] if row["sheet"] is not None]:
        for place, tile in enumerate(row["tiles"]):
            top, left = 16 * (place // told["columns"]), 16 * (place % told["columns"])
            shown = sheets[row["sheet"]][top : top + 16, left : left + 16]
            nearest = int(np.abs(files - shown).mean((1, 2, 3)).argmin())
            assert tile["src"].endswith(Path(urlsplit(names[nearest]).path).name) and tile["id"] == nearest
            seen += 1
    assert seen > 30


def test_pictures_of_any_size_arrays_and_vectors_are_predicted_alike(run: Path, world: Path, tmp_path: Path) -> None:
    files, x = rows_of(world / "test")
    classifier = odst.load(run, trust_code=True)
    labels = classifier.predict(x)
    assert np.mean([a == b.parent.name for a, b in zip(labels, files, strict=True)]) > 0.5
    done = command("predict", run, "--trust-code", world / "test", files[0], "--parquet", tmp_path / "answers.parquet")
    assert done.code == 0, done.err
    table = pq.read_table(tmp_path / "answers.parquet")
    assert table["class"].to_pylist() == [*labels, labels[0]]
    p = classifier.predict_proba(x)
    assert table["confidence"].to_pylist()[:-1] == p.max(axis=1).tolist()
    vectors = classifier.encoding.embed(x)
    np.testing.assert_array_equal(classifier.predict_proba(vectors), p)
    np.save(tmp_path / "vectors.npy", vectors)
    assert (
        command("predict", run, "--trust-code", tmp_path / "vectors.npy", "--csv", tmp_path / "answers.csv").code == 0
    )
    assert [line.split(",")[2] for line in (tmp_path / "answers.csv").read_text().splitlines()[1:]] == labels
    larger = x.repeat(2, axis=1).repeat(2, axis=2)
    assert np.abs(classifier.predict_proba(larger) - p).max() < 0.3
    with pytest.raises(UserError, match=r"its rows have shape \(7,\), and this classifier takes \(216,\)"):
        classifier.predict(np.zeros((2, 7), np.float32))


def test_a_run_is_evaluated_on_pictures(run: Path, world: Path, tmp_path: Path) -> None:
    done = command("evaluate", run, "--trust-code", "--on", world / "test", "--out", f"blobs={world / 'val_out'}",
                   "--save", tmp_path / "found.json")  # fmt: skip
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "found.json").read_text())
    metrics = RunDir(run).metrics()[found["round"]]
    assert found["error"] == metrics["error"] and found["od_auroc"] > 0.5
    assert "this run works on features" in fails(
        "evaluate", run, "--trust-code", "--on", world / "test", "--corruptions"
    )


def test_the_export_holds_backbone_and_head(run: Path, world: Path, tmp_path: Path) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    assert command("export", run, "--trust-code", "--onnx", tmp_path / "model.onnx").code == 0
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    (given,) = session.get_inputs()
    assert given.type == "tensor(uint8)" and given.shape[1:] == [24, 24, 3]
    _, x = rows_of(world / "test")
    x = np.stack([np.asarray(Image.fromarray(row).resize((24, 24), Image.Resampling.BICUBIC)) for row in x])
    p, _ = session.run(None, {given.name: x})
    np.testing.assert_allclose(
        p, odst.load(run, trust_code=True).predict_proba(x), atol=2e-3
    )  # whose vectors are rounded to float16
    meta = session.get_modelmeta().custom_metadata_map
    assert json.loads(meta["encoder"])["dimension"] == 216 and json.loads(meta["classes"]) == list(CLASSES)


def test_another_encoder_of_the_same_name_is_refused_with_both(run: Path, world: Path) -> None:
    was = json.loads((run / "run.json").read_text())["encoder"]["weights"][:8]
    own = (world / "encoder.pth").read_bytes()
    tiny_encoder.save(world / "encoder.pth", seed=1)
    try:
        for call in (["run", run], ["predict", run, world / "test"]):
            said = fails(*call, "--trust-code")
            assert f"weights {was}" in said and said.count("torch:encoder.pth#tiny_encoder:make (") == 2, said
            assert "never mix" in said
    finally:
        (world / "encoder.pth").write_bytes(own)


def test_a_packed_pool_is_given_the_column_that_it_lacks(world: Path, tmp_path: Path) -> None:
    build_pool(world / "pool", tmp_path / "packed", size=16)
    file = config(world / "packed.toml", pool=str(tmp_path / "packed"))
    counted = prepare(read_config(str(file), {}), None)  # as for --dry-run: nothing is written
    assert counted.data.pool.x.shape == (150, 216) and not (tmp_path / "packed" / "features").exists()
    prepared = prepare(read_config(str(file), {}), tmp_path / "run")
    column = open_features(tmp_path / "packed", prepared.encoding.identity)
    np.testing.assert_array_equal(prepared.data.pool.x[:], column.x[:])
    assert prepared.data.pool.id == open_pool(tmp_path / "packed").id


def test_where_the_pools_vectors_came_from_stored_pixels_all_sets_go_through_as_many(world, tmp_path, caplog) -> None:
    build_pool(world / "labelled", tmp_path / "packed", size=16)
    embed_pool(tmp_path / "packed", f"torch:{world}/encoder.pth#tiny_encoder:make@24", from_pixels=True)
    file = config(world / "pixels.toml", pool=str(tmp_path / "packed"))
    prepared = prepare(read_config(str(file), {}), tmp_path / "run")
    assert "made from stored pixels of 16 a side, so all other sets go through as many" in caplog.text
    assert prepared.encoding.to_json()["side"] == 16
    np.testing.assert_array_equal(prepared.data.pool.x[:], prepared.data.labelled.x)
    assert command("run", file, "--out", tmp_path / "run", "--quiet").code == 0
    _, x = rows_of(world / "test")
    assert (
        command(
            "predict", tmp_path / "run", "--trust-code", world / "test", "--parquet", tmp_path / "answers.parquet"
        ).code
        == 0
    )
    p = odst.load(tmp_path / "run", trust_code=True).predict_proba(x)
    assert pq.read_table(tmp_path / "answers.parquet")["confidence"].to_pylist() == p.max(axis=1).tolist()


def test_the_vectors_of_a_set_are_kept_by_what_the_backbone_is_shown(world: Path, cache: Path) -> None:
    spec = f"torch:{world}/encoder.pth#tiny_encoder:make@24"
    encoding = Encoding(CachedEmbedder(spec))
    first = encoding.read(str(world / "labelled"), 16, "crop").x
    (file,) = (cache / "vectors").glob("*.sqlite")
    assert file.stem == encoding.identity.slug
    with sqlite3.connect(file) as opened:
        assert opened.execute("SELECT count(*) FROM vectors").fetchone() == (30,)
        opened.execute("UPDATE vectors SET vector = ?", [np.zeros(216, "<f2").tobytes()])
    again = Encoding(CachedEmbedder(spec))
    assert not again.read(str(world / "labelled"), 8, "crop").x.any()  # taken from there, at any size of the thumbnails
    file.write_bytes(b"damaged")
    np.testing.assert_array_equal(again.read(str(world / "labelled"), 16, "crop").x, first)


def test_a_built_in_world_is_embedded_too(world: Path, tmp_path: Path) -> None:
    spec = f"torch:{world}/encoder.pth#tiny_encoder:make@24"
    (tmp_path / "odst.toml").write_text(
        f'[data]\nworld = "digits"\npool_size = 200\n[method]\nratio = [2]\nalpha = 0.7\n[model]\nname = "mlp"\n'
        f'backbone = "{spec}"\n[training]\nphases = [{{ steps = 20, lr = 0.05 }}]\n'
    )
    done = command("run", tmp_path / "odst.toml", "--out", tmp_path / "run", "--quiet")
    assert done.code == 0, done.err
    assert pool_of(RunDir(tmp_path / "run", trust_code=True)).shown.shape[3] == 3
    assert command("report", tmp_path / "run", "--trust-code").code == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"backbone": "mobilenetv3"}, "no backbone of this name; did you mean mobilenetv2?"),
        ({"backbone": "torch:gone.pth#tiny_encoder:make@24"}, "there is no file"),
        ({"labelled": "vectors.npy"}, "only pictures are embedded"),
    ],
)
def test_what_cannot_be_embedded_is_one_line(world: Path, tmp_path: Path, change: dict, says: str) -> None:
    np.save(world / "vectors.npy", np.zeros((4, 216), np.float32))
    file = config(world / "wrong.toml", **{key: value for key, value in change.items() if key == "backbone"})
    options = ["--set", f"data.labelled={world / change['labelled']}"] if "labelled" in change else []
    assert says in fails("run", file, "--out", tmp_path / "run", *options)


def test_a_backbone_goes_with_a_new_network(world: Path, tmp_path: Path) -> None:
    file = world / "odst.toml"
    assert "leave pretrained and weights out" in fails("run", file, "--set", "model.pretrained=true")
    said = fails("run", file, "--out", tmp_path / "run", "--set", "model.name=small")
    assert "small takes images, the data are feature vectors of length 216. Take mlp." in said


def test_killed_while_its_pool_was_begun_a_run_goes_on(world: Path, tmp_path: Path) -> None:
    building = tmp_path / "run" / "pool" / "building"
    building.mkdir(parents=True)
    (building / ".order.json.abc.part").write_text("{")  # what is left of a write that was cut off
    assert prepare(read_config(str(world / "odst.toml"), {}), tmp_path / "run").data.pool.x.shape == (150, 216)


def test_a_dry_run_counts_the_embedding_of_a_pool_and_writes_nothing(world: Path, tmp_path: Path) -> None:
    done = command("run", world / "odst.toml", "--out", tmp_path / "run", "--dry-run")
    assert done.code == 0, done.err
    assert "vectors     of the pool, by torch:encoder.pth#tiny_encoder:make (" in done.out
    assert not (tmp_path / "run").exists()


def test_vectors_that_came_with_paths_are_shown_by_their_pictures(world: Path, tmp_path: Path) -> None:
    files = sorted((world / "pool").glob("*.png"))
    x = np.random.default_rng(0).normal(size=(len(files), 6)).astype(np.float32)
    paths = [str(file) for file in files[:-1]] + ["gone.png"]
    table = pa.table({"embedding": pa.array(list(x), pa.list_(pa.float32(), 6)), "path": paths})
    pq.write_table(table, tmp_path / "vectors.parquet")
    section = DataSection(labelled="unused", pool=str(tmp_path / "vectors.parquet"))
    pool = load_pool(section, tmp_path / "pool", ())
    assert pool.x.shape == (len(files), 6) and pool.shown is not None
    shown = pool.shown[np.array([3, len(files) - 1])]
    np.testing.assert_array_equal(shown[0], decode(files[3].read_bytes(), 64, "crop")[0])
    assert (shown[1] == 200).all()  # what cannot be read is grey


def test_a_packed_set_is_read_by_its_column_and_never_by_its_thumbnails(world: Path, tmp_path: Path) -> None:
    spec = f"torch:{world / 'encoder.pth'}#tiny_encoder:make@24"
    build_pool(world / "test", tmp_path / "packed", size=16)
    encoding = Encoding(CachedEmbedder(spec))
    with pytest.raises(UserError, match="odst pool embed"):
        encoding.read(str(tmp_path / "packed"), 16, "crop")
    embed_pool(tmp_path / "packed", spec)
    folder = encoding.read(str(world / "val_out"), 16, "crop")
    both = encoding.read([str(tmp_path / "packed"), str(world / "val_out")], 16, "crop")
    np.testing.assert_array_equal(
        both.x[: len(both.x) - len(folder.x)], encoding.read(str(world / "test"), 16, "crop").x
    )
    np.testing.assert_array_equal(both.x[-len(folder.x) :], folder.x)


def test_a_pool_is_predicted_by_its_column_and_never_by_its_thumbnails(run: Path, world: Path, tmp_path: Path) -> None:
    """Thumbnails of 4 pixels: enlarged they would say something else of nearly every picture."""
    spec = f"torch:{world / 'encoder.pth'}#tiny_encoder:make@24"

    def answers(*sources: Path | str) -> list[tuple[str, str, float]]:
        done = command("predict", run, "--trust-code", *sources, "--parquet", tmp_path / "answers.parquet")
        assert done.code == 0, done.err
        table = pq.read_table(tmp_path / "answers.parquet")
        return list(zip(*(table[name].to_pylist() for name in ("source", "class", "confidence")), strict=True))

    files, other = answers(world / "test"), answers(world / "val_out")
    (tmp_path / "pools").mkdir()
    packed = tmp_path / "pools" / "packed"
    build_pool(world / "test", packed, size=4)
    said = fails("predict", run, "--trust-code", packed)
    assert f"odst pool embed {packed}" in said
    embed_pool(packed, spec)
    assert answers(packed) == files
    assert answers(world / "val_out", packed, world / "val_out") == [*other, *files, *other]
    assert answers(tmp_path / "pools" / "*") == files
    classifier = odst.load(run, trust_code=True)
    logits = [labelled_source(classifier, str(one), "crop")[0] for one in (world / "test", tmp_path / "pools" / "*")]
    np.testing.assert_array_equal(*logits)


def test_a_pool_made_square_in_another_way_is_refused(world: Path, tmp_path: Path) -> None:
    spec = f"torch:{world / 'encoder.pth'}#tiny_encoder:make@24"
    build_pool(world / "pool", tmp_path / "padded", size=16, fit="pad", encoder=spec)
    section = DataSection(labelled=str(world / "labelled"), pool=str(tmp_path / "padded"), size=16)
    with pytest.raises(UserError, match=r"made square by 'pad', and data\.fit is 'crop'"):
        open_encoding(section, None, CachedEmbedder(spec))
