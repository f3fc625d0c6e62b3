"""Two real Ray nodes on this machine: what they write is what one process writes. test_ray_kills.py kills one of them."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import clusters
import commands
from odst.data.pool import open_pool
from odst.engine.interface import running_on
from odst.engine.parts import complete, read_notes
from odst.errors import UserError
from processes import artefacts, command, odst

pytest.importorskip("ray", reason="needs odst[ray]")
pytestmark = pytest.mark.slow  # two nodes start and are waited for

SOURCES, ROWS = 18, 3000  # so 18 parts


@pytest.fixture(scope="module")
def cluster() -> Iterator:
    made = clusters.head()
    made.add_node(**clusters.NODE)
    yield made
    import ray

    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Arrays of pictures, of which some stand twice."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for i in range(SOURCES):
        x = rng.integers(256, size=(ROWS, 8, 8, 3), dtype=np.uint8)
        x[5], x[2900] = x[7], rng.integers(2) + np.zeros((8, 8, 3), np.uint8)
        np.save(folder / f"{i:02d}.npy", x)
    return folder


def build(pictures: Path, out: Path, *more: str) -> tuple:
    return ("pool", "build", str(pictures / "*.npy"), "--out", str(out), "--size", "8", *more)


def on(cluster) -> tuple[str, ...]:
    return "--engine", "ray", "--address", cluster.address


def here(*words: object) -> None:
    """A command in this process, which is in the cluster already."""
    done = commands.odst(*words)
    assert done.code == 0, done.err


@pytest.fixture(scope="module")
def local(pictures: Path, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("local") / "pool"
    here(*build(pictures, out))
    return out


def test_two_nodes_build_the_pool_of_one_process(cluster, pictures: Path, local: Path, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # the nodes stand elsewhere
    here(*build(pictures, Path("pool"), *on(cluster)))
    assert artefacts(tmp_path / "pool") == artefacts(local)
    assert len(open_pool(local)) == SOURCES * (ROWS - 1) - (SOURCES - 2)
    before = Path("pool/shards").stat().st_mtime_ns
    here("pool", "verify", "pool", *on(cluster))
    assert Path("pool/shards").stat().st_mtime_ns == before  # nothing came and went


def test_shares_in_any_order_one_of_them_killed_and_a_closing_call_build_it_too(
    pictures: Path, local: Path, tmp_path: Path
):
    out = tmp_path / "pool"
    for i in (2, 0):
        assert f"share {i}/3 is done" in commands.odst(*build(pictures, out, "--shard", f"{i}/3")).out
    killed = subprocess.Popen(command(*build(pictures, out, "--shard", "1/3")), stderr=subprocess.DEVNULL)
    time.sleep(1.5)  # anywhere: while it starts, decodes or has just ended
    killed.kill()
    killed.wait()
    assert commands.odst("status", out).out.startswith("decode for pool:")
    here(*build(pictures, out, "--shard", "1/3"))
    here(*build(pictures, out))
    assert artefacts(out) == artefacts(local)


def test_nodes_that_label_guard_and_look_write_what_this_machine_does(
    cluster, local: Path, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr("odst.method.stored.RANGE", 3072)
    monkeypatch.setattr("odst.report.pool_scan.BLOCK", 3000)
    import torch

    from odst.duplicates import Guard, audit
    from odst.engine.ray import OnRay
    from odst.method.labelling import Predictions
    from odst.method.selection import select
    from odst.method.stored import label
    from odst.report.pool_scan import Stops, scan_pool
    from odst.vision.networks import make_network

    torch.manual_seed(0)
    model = make_network("tiny", 4, shape=(8, 8, 3))
    pool = open_pool(local)
    guard = Guard({"test": pool.x[np.arange(0, 50_000, 3000)].copy()})
    none, tau = np.empty(0, np.int64), np.full(4, -5.0)
    chosen, seen = {}, {}
    for name, engine in (("here", None), ("there", OnRay(cluster.address))):
        (tmp_path / name).mkdir()
        with running_on(engine):
            logits = label(model, pool.x, tmp_path / name / "logits", name="label", identity=pool.id)
            audit(pool, guard, tmp_path / name / "dedup")
            p = Predictions(logits, 1.0)
            chosen[name] = select(p, tau, 50, excluded=none, max_copies=1, seed=0, t=0).ids.tolist()
            scan = scan_pool(p, Stops(np.array([0.9]), tau[None] + 4, 0), 9, excluded=none, seed=0, t=0, nearest=20)
        seen[name] = [scan.histogram.tolist(), scan.above.tolist(), [ids.tolist() for ids, _ in scan.just_above]]
    assert artefacts(tmp_path / "there") == artefacts(tmp_path / "here")
    assert chosen["there"] == chosen["here"]
    assert seen["there"] == seen["here"]
    assert len(artefacts(tmp_path / "here" / "logits")) == 1 + 18  # and the manifest


def test_nodes_embed_a_pool_as_this_machine_does(cluster, local: Path, tmp_path: Path, monkeypatch):
    import tiny_encoder

    monkeypatch.chdir(tmp_path)
    spec = tiny_encoder.save(Path("tiny.pt"))
    for name, more in (("here", ()), ("there", on(cluster))):
        shutil.copytree(local, tmp_path / name)
        here("pool", "embed", name, "--embed", spec, "--from-pixels", *more)
    made = artefacts(tmp_path / "there")
    assert made == artefacts(tmp_path / "here")
    assert any(name.startswith("features/") and name.endswith(".npy") for name in made)


SHORT = ("--set", "training.phases=[{steps=4,lr=0.05}]", "--set", "training.students=[]", "--set", "method.alpha=0.05")


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "digits"
    here("run", "digits", "--out", out, *SHORT)
    return out


def test_a_run_of_the_digits_on_two_nodes_has_the_hashes_of_the_local_one(
    cluster, digits: Path, tmp_path: Path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    here("run", "digits", "--out", "there", *SHORT, *on(cluster))
    assert artefacts(tmp_path / "there") == artefacts(digits)
    assert (digits / "round-3" / "selection.parquet").is_file()


def test_nodes_predict_and_evaluate_a_large_source_as_this_machine_does(
    cluster, digits: Path, tmp_path: Path, monkeypatch
):
    monkeypatch.setattr("odst.classifier.scanning.LARGE", 2000)
    monkeypatch.setattr("odst.classifier.scanning.ITEMS", 256)
    x = np.random.default_rng(0).integers(256, size=(2100, 28, 28, 3), dtype=np.uint8)
    np.savez(tmp_path / "x.npz", x=x, labels=np.array(list("23589"))[np.arange(2100) % 5])
    for name, more in (("here", ()), ("there", on(cluster))):
        out = tmp_path / name
        table, measures = ("--csv", out / "a.csv", "--parquet", out / "a.parquet"), ("--save", out / "m.json")
        here("predict", digits, tmp_path / "x.npz", *table, "--device", "cpu", *more)
        here("evaluate", digits, "--on", tmp_path / "x.npz", *measures, "--device", "cpu", *more)
    assert artefacts(tmp_path / "there") == artefacts(tmp_path / "here")
    assert sorted(artefacts(tmp_path / "here")) == ["a.csv", "a.parquet", "m.json"]
    monkeypatch.chdir(tmp_path)
    line = commands.fails("predict", digits, "/proc/self/cwd/x.npz", "--csv", "b.csv", "--device", "cpu", *on(cluster))
    assert line.count("it does not see /proc/self/cwd/x.npz. Use a folder that every node sees") == 2


def test_a_run_of_the_open_world_that_packs_its_pool_on_two_nodes_has_the_hashes_of_the_local_one(
    cluster, real_data: Path, tmp_path: Path
):
    sets = {
        "labelled": ("cifar10_train", "labelled"), "val_in": ("cifar10_train", "val_in"), "test": ("cifar10_test", "test"),
        "related": ("cifar10_train", "pool"), "unrelated": ("cifar100_train", "pool"), "val_out": ("cifar100_test", "val_out"),
    }  # fmt: skip
    for name, (file, split) in sets.items():
        table = pq.read_table(real_data / f"{file}.parquet", filters=[("split", "=", split)])
        pq.write_table(table.take(np.arange(0, len(table), len(table) // 200)), tmp_path / f"{name}.parquet")
    pool = [str(tmp_path / f"{name}.parquet") for name in ("related", "unrelated")]
    given = ("--set", f"data.pool={pool}", "--set", "data.size=32", "--set", "model.name=tiny", *SHORT)
    for name in ("labelled", "val_in", "val_out", "test"):
        given += ("--set", f"data.{name}={tmp_path / f'{name}.parquet'}")
    for name, more in (("here", ()), ("there", on(cluster))):
        here("run", "open-world-cpu", "--out", tmp_path / name, *given, *more)
    made = artefacts(tmp_path / "there")
    assert made == artefacts(tmp_path / "here")
    assert {"pool/shards/00000.npy", "round-3/selection.parquet"} <= made.keys()


def test_a_driver_that_is_killed_leaves_what_is_done_and_the_same_command_goes_on(
    cluster, pictures: Path, local: Path, tmp_path: Path
):
    out = tmp_path / "pool"
    arguments = build(pictures, out, *on(cluster))
    driver = subprocess.Popen(command(*arguments), stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list(out.glob("building/parts/0*.json")):
        assert time.monotonic() < deadline and driver.poll() is None
        time.sleep(0.01)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    here(*arguments)
    assert artefacts(out) == artefacts(local)


def test_what_the_cluster_cannot_do_is_one_line(cluster, tmp_path: Path, monkeypatch):
    done = odst("run", "digits", "--out", tmp_path / "run", *on(cluster), "--gpus-per-worker", "1", check=2)
    assert done.stderr.startswith("odst: --gpus-per-worker 1: the cluster offers 0 GPUs. Ask for fewer")
    assert not (tmp_path / "run").exists()
    monkeypatch.chdir(tmp_path)  # a place that has another name in every process
    np.save("x.npy", np.zeros((3, 8, 8, 3), np.uint8))
    line = commands.fails("pool", "build", "x.npy", "--out", "/proc/self/cwd/pool", "--size", "8", *on(cluster))
    assert line.count("it does not see /proc/self/cwd/pool/building/parts. Use a folder that every node sees") == 2
    assert list(tmp_path.rglob("*.part*")) == []
    line = commands.fails("pool", "build", "/proc/self/cwd/x.npy", "--out", "pool", "--size", "8", *on(cluster))
    assert line.count("it does not see /proc/self/cwd/x.npy. Use a folder that every node sees") == 2
    assert not Path("pool").exists()
    line = commands.fails("pool", "build", "x.npy", "--out", "s3://bucket/pool", "--size", "8", *on(cluster))
    assert line.startswith(
        "odst: s3://bucket/pool: with --engine ray or --shard several machines write into one folder"
    )
    with socket.create_server(("127.0.0.1", 0)) as server:  # a second cluster, for all this process can tell
        other = f"127.0.0.1:{server.getsockname()[1]}"
        line = commands.fails("pool", "build", "x.npy", "--out", "pool", "--size", "8", "--address", other)
    assert f"--address {other}: this process is in the cluster at {cluster.address} already." in line


def test_nodes_that_do_not_see_the_pool_are_told_of_before_they_label(
    cluster, local: Path, tmp_path: Path, monkeypatch
):
    from odst.engine.ray import OnRay
    from odst.method.stored import label
    from odst.vision.networks import make_network

    monkeypatch.chdir(local.parent)
    pool = open_pool(f"/proc/self/cwd/{local.name}")
    with (
        running_on(OnRay(cluster.address)),
        pytest.raises(UserError, match="it does not see /proc/self/cwd/pool/shards"),
    ):
        label(make_network("tiny", 4, shape=(8, 8, 3)), pool.x, tmp_path / "logits", identity=pool.id)


def test_nodes_that_come_after_the_preflight_and_do_not_see_the_folder_write_nothing(cluster, tmp_path: Path):
    handle = os.open(tmp_path, os.O_RDONLY)
    folder = Path(f"/proc/self/fd/{handle}/stage")  # which is so in this process only
    try:
        with running_on(clusters.Unasked(cluster.address)), pytest.raises(UserError, match=f"it does not see {folder}"):
            complete(folder, {}, [1] * 4, clusters.Pacing(folder), name=None)
    finally:
        os.close(handle)
    assert sorted(file.name for file in (tmp_path / "stage").iterdir()) == ["about.json"]


def test_a_part_that_fails_three_times_on_the_nodes_is_named_and_the_others_are_kept(cluster, tmp_path: Path):
    from odst.engine.ray import OnRay

    with (
        running_on(OnRay(cluster.address)),
        pytest.raises(UserError, match=r"part 2 failed three times \(ValueError: two is not well\)\. The others are"),
    ):
        complete(tmp_path / "stage", {}, [1] * 5, clusters.Failing(tmp_path / "tries"), name=None)
    assert sorted(read_notes(tmp_path / "stage")) == [0, 1, 3, 4]
    assert (tmp_path / "tries").read_text() == "xxx"
