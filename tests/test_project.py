import csv
import os
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from blobs import blob_world
from commands import fails, odst
from odst.data.images import Data, Labelled, Pool
from odst.data.loading import load_data
from odst.data.packing import build_pool
from odst.errors import UserError
from odst.project import val_out
from odst.run.config import read_config
from odst.seeds import stream

SIDE = 12


def stripes(kind: int, i: int) -> np.ndarray:
    """Bars across (0), bars down (1), or for -1 plain noise: two classes that any network learns at once."""
    rng = stream(i, "stripes", kind)
    x = rng.integers(0, 60, (SIDE, SIDE, 3))
    place = rng.integers(0, 4) + np.arange(0, SIDE - 4, 4)
    if kind == 0:
        x[place] += 160
    elif kind == 1:
        x[:, place] += 160
    else:
        x += rng.integers(0, 120, (SIDE, SIDE, 1))
    return x.astype(np.uint8)


def save(folder: Path, kind: int, n: int, start: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(start, start + n):
        Image.fromarray(stripes(kind, i)).save(folder / f"{kind}-{i}.png")


def two_folders(tmp: Path) -> Path:
    for kind, name in enumerate(("across", "down")):
        save(tmp / "labelled" / name, kind, 30, 0)
        save(tmp / "pool", kind, 30, 100)
    save(tmp / "pool", -1, 240, 0)
    return tmp


def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odst.project.val_out.STEPS", 40)


def test_two_folders_become_a_project_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    two_folders(tmp_path)
    begun = odst("init", tmp_path, "--size", SIDE)
    assert begun.code == 0, begun.err
    assert "val_out was made from the pool, as none was given" in begun.out
    assert {path.name for path in tmp_path.iterdir()} == {
        *("labelled", "pool", "odst.toml", "odst-pool"),
        *("val_out.csv", "val_out.png", "val_out_aside.csv", "val_out_aside.png"),
    }
    faster = "training.phases=[{steps=40, lr=0.1, shape='cosine'}]"
    ran = odst("run", tmp_path / "odst.toml", "--out", tmp_path / "run", "--set", faster, "--set", "method.ratio=[2]")
    assert ran.code == 0, ran.err
    assert (tmp_path / "run" / "final.json").exists()


def test_features_become_a_project_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    world = blob_world(pool=300)
    np.savez(tmp_path / "labelled.npz", x=world.labelled.x, y=world.labelled.y)
    np.save(tmp_path / "pool.npy", world.pool.x)
    (tmp_path / "list.csv").write_text("image,label\na.png,0\n")
    said = fails("init", tmp_path, "--labelled", tmp_path / "list.csv")
    assert "list.csv: a list of pictures, and the pool holds vectors" in said and "docs/tutorials/vectors.md" in said
    begun = odst("init", tmp_path)
    assert begun.code == 0, begun.err
    assert tomllib.loads((tmp_path / "odst.toml").read_text())["model"]["name"] == "head"
    faster = (
        "--set",
        "training.phases=[{steps=20, lr=0.03}]",
        "--set",
        "training.students=[]",
        "--set",
        "method.ratio=[1]",
    )
    ran = odst("run", tmp_path / "odst.toml", "--out", tmp_path / "run", *faster)
    assert ran.code == 0, ran.err
    assert "odst predict" in ran.out and "odst review" not in ran.out  # which has no picture to show
    assert "no picture that they came from can be read here" in fails("review", tmp_path / "run")


def test_a_config_of_init_says_in_comments_what_everything_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    odst("init", two_folders(tmp_path), "--size", SIDE)
    text = (tmp_path / "odst.toml").read_text()
    values = tomllib.loads(text)
    assert values["data"]["labelled"] == "labelled"
    assert values["data"]["pool"] == "odst-pool"
    assert values["data"]["val_out"] == "odst-pool?rows=val_out.csv"
    assert "a fifth of each class" in text
    assert "Made by `odst init`" in text
    data = load_data(read_config(str(tmp_path / "odst.toml"), {}).data, seed=0, workspace=None)
    rows = list(csv.DictReader((tmp_path / "val_out.csv").read_text().splitlines()))
    assert data.pool is not None
    assert data.pool.excluded.tolist() == sorted(int(row["pool_id"]) for row in rows)
    assert (data.val_out == data.pool.x[data.pool.excluded]).all()  # type: ignore[union-attr]


def test_a_val_out_made_from_a_pool_is_refused_for_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    odst("init", two_folders(tmp_path), "--size", SIDE)
    text, lines = (tmp_path / "odst.toml").read_text(), (tmp_path / "val_out.csv").read_text().splitlines()
    aside = (tmp_path / "val_out_aside.csv").read_text().splitlines()
    (tmp_path / "val_out.csv").write_text("\n".join([*lines, aside[1]]) + "\n")  # a person changes his mind
    config = str(tmp_path / "odst.toml")
    data = load_data(read_config(config, {}).data, seed=0, workspace=None)
    assert data.val_out is not None
    assert len(data.val_out) == len(lines)
    shutil.rmtree(tmp_path / "odst-pool")
    save(tmp_path / "pool", 0, 1, 50)
    build_pool(tmp_path / "pool", tmp_path / "odst-pool", size=SIDE)
    for changed in (text, text.replace("?rows=val_out.csv", "")):  # read as val_out, and as what leaves the pool
        (tmp_path / "odst.toml").write_text(changed)
        with pytest.raises(UserError, match=r"val_out\.csv: `odst init` made this list for another pool"):
            load_data(read_config(config, {}).data, seed=0, workspace=None)
    without = [",".join(line.split(",")[:4]) for line in lines]  # as it was written before
    (tmp_path / "val_out.csv").write_text("\n".join(without) + "\n")
    assert load_data(read_config(config, {}).data, seed=0, workspace=None).pool is not None


def test_an_empty_option_names_no_set(tmp_path: Path) -> None:
    two_folders(tmp_path)
    assert "--val-out: an empty text names no images" in fails("init", tmp_path, "--val-out", "")


def test_sets_are_found_by_their_names_and_options_name_others(tmp_path: Path) -> None:
    two_folders(tmp_path / "elsewhere")
    save(tmp_path / "val_out", -1, 20, 500)
    save(tmp_path / "test" / "across", 0, 5, 600)
    save(tmp_path / "out_test" / "my noise", -1, 5, 700)
    (tmp_path / "out_test" / ".DS_Store").write_text("a file manager's")
    pool, labelled = tmp_path / "elsewhere" / "pool", tmp_path / "elsewhere" / "labelled"
    begun = odst("init", tmp_path, "--labelled", labelled, "--pool", pool, "--size", SIDE)
    assert begun.code == 0, begun.err
    values = tomllib.loads((tmp_path / "odst.toml").read_text())["data"]
    assert values["labelled"] == "elsewhere/labelled"
    assert (values["val_out"], values["test"]) == ("val_out", "test")
    assert values["out_test"] == {"my noise": "out_test/my noise"}
    assert not (tmp_path / "val_out.csv").exists()


def test_a_packed_pool_is_used_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    quick(monkeypatch)
    two_folders(tmp_path / "in")
    build_pool(tmp_path / "in" / "pool", tmp_path / "a pool & more", size=SIDE)
    begun = odst(
        "init", tmp_path / "new", "--labelled", tmp_path / "in" / "labelled", "--pool", tmp_path / "a pool & more"
    )
    assert begun.code == 0, begun.err
    section = read_config(str(tmp_path / "new" / "odst.toml"), {}).data
    assert section.size == SIDE
    data = load_data(section, seed=0, workspace=None)
    assert data.val_out is not None
    assert len(data.val_out) == len(data.pool.excluded)  # type: ignore[union-attr]
    assert not (tmp_path / "new" / "odst-pool").exists()


def test_what_cannot_be_begun_is_said_in_one_line(tmp_path: Path) -> None:
    two_folders(tmp_path / "p")
    assert "no labelled images found" in fails("init", tmp_path / "empty")
    assert "no pool images found" in fails("init", tmp_path / "q", "--labelled", tmp_path / "p" / "labelled")
    inside = tmp_path / "p" / "labelled"
    assert "lies inside the labelled images" in fails(
        "init", inside, "--labelled", inside, "--pool", tmp_path / "p" / "pool"
    )
    (tmp_path / "p" / "train").mkdir()
    assert "could both be labelled" in fails("init", tmp_path / "p")
    (tmp_path / "q").mkdir(exist_ok=True)
    (tmp_path / "q" / "odst.toml").write_text("")
    assert "there is a config already" in fails("init", tmp_path / "q")
    assert not (tmp_path / "p" / "odst.toml").exists()


def test_a_set_that_could_not_be_run_is_refused_before_the_pool_is_packed(tmp_path: Path) -> None:
    two_folders(tmp_path)
    assert "nowhere: there is no such file" in fails("init", tmp_path, "--val-out", "nowhere")
    (tmp_path / "out_test" / "noise").mkdir(parents=True)
    assert "noise: there is no image in this folder" in fails("init", tmp_path)
    one = tmp_path / "one"
    save(one / "labelled" / "across", 0, 6, 0)
    assert "found 1 class" in fails("init", one, "--pool", tmp_path / "pool")
    latin = tmp_path / os.fsdecode(b"caf\xe9")
    (tmp_path / "labelled").rename(latin)
    assert "not UTF-8" in fails("init", one, "--labelled", latin, "--pool", tmp_path / "pool")
    assert not list(tmp_path.rglob("odst*"))


def test_a_project_begun_with_relative_paths_runs_from_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also through a link, and with a pattern."""
    quick(monkeypatch)
    two_folders(tmp_path / "real" / "deep" / "in")
    T = np.stack([stripes(i % 2, i) for i in range(40)])
    for part in range(2):
        np.savez(tmp_path / "real" / "deep" / f"part-{part}.npz", x=T[part::2], labels=np.arange(40)[part::2] % 4 // 2)
    (tmp_path / "link").symlink_to(tmp_path / "real" / "deep")
    monkeypatch.chdir(tmp_path / "link")
    build_pool("in/pool", Path("packed"), size=SIDE, fit="stretch")
    begun = odst("init", "project", "--labelled", "part-*.npz", "--pool", "packed")
    assert begun.code == 0, begun.err
    monkeypatch.chdir(tmp_path)
    config = read_config(str(tmp_path / "real" / "deep" / "project" / "odst.toml"), {})
    data = load_data(config.data, seed=0, workspace=None)
    assert len(data.labelled) + len(data.val_in) == 40
    assert data.val_out is not None
    assert config.data.fit == "stretch"
    (tmp_path / "new").mkdir()
    monkeypatch.chdir(tmp_path / "new")
    begun = odst("init", "its own", "--labelled", "../link/in/labelled", "--pool", "../link/in/pool", "--size", SIDE)
    assert begun.code == 0, begun.err
    assert "then odst run 'its own/odst.toml'" in begun.out
    values = tomllib.loads((tmp_path / "new" / "its own" / "odst.toml").read_text())["data"]
    assert (values["pool"], values["val_out"]) == ("odst-pool", "odst-pool?rows=val_out.csv")


def test_images_of_the_classes_are_set_aside_from_the_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odst.project.val_out.STEPS", 80)
    kinds = np.array([0, 1] * 60 + [-1] * 680)
    pool = np.stack([stripes(kind, 1000 + i) for i, kind in enumerate(kinds)])
    T = np.stack([stripes(i % 2, i) for i in range(60)])
    V = np.stack([stripes(i % 2, 500 + i) for i in range(40)])
    data = Data(Labelled(T, np.arange(60) % 2), Pool(pool), Labelled(V, np.arange(40) % 2))
    sample = val_out.draw(data, seed=0, device="cpu")
    related = kinds[sample.ids] >= 0
    assert related.sum() > 5
    assert related[sample.aside :].sum() == 0
    assert sample.aside <= 3 * related.sum()
    assert (np.diff(sample.log_odds) <= 0).all()
    again = val_out.draw(data, seed=0, device="cpu")
    assert (again.ids == sample.ids).all()
    assert again.aside == sample.aside


@pytest.mark.slow
def test_a_new_user_begins_and_runs_on_real_folders(real_data: Path, tmp_path: Path) -> None:
    """Pictures written out of the real sets into two folders; nothing is edited but the length of training."""
    wanted = {"labelled": 300, "pool": 600}
    for row in pq.read_table(real_data / "cifar10_train.parquet").to_pylist():
        if wanted.get(row["split"], 0) > 0:
            wanted[row["split"]] -= 1
            inner = f"class {row['label']}" if row["split"] == "labelled" else ""
            file = tmp_path / row["split"] / inner / row["image"]["path"]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(row["image"]["bytes"])
    for row in pq.read_table(real_data / "cifar100_train.parquet").slice(0, 2400).to_pylist():
        (tmp_path / "pool" / row["image"]["path"]).write_bytes(row["image"]["bytes"])
    begun = odst("init", tmp_path)
    assert begun.code == 0, begun.err
    short = "training.phases=[{steps=60, lr=0.1, shape='cosine', augment=['crop:4', 'flip']}]"
    ran = odst("run", tmp_path / "odst.toml", "--out", tmp_path / "run", "--set", short)
    assert ran.code == 0, ran.err
    assert (tmp_path / "run" / "final.json").exists()
