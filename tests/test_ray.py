"""Two real Ray nodes on this machine: what they write is what one process writes, also when one of them is killed."""

import hashlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from odst.data.pool import open_pool
from processes import command, odst

# Before Ray is imported: it would put the address of a network card in place of the loopback's
os.environ |= {
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "4",
}
os.environ["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(":")])
pytest.importorskip("ray", reason="needs odst[ray]")


@pytest.fixture(scope="module")
def cluster() -> Iterator:
    from ray.cluster_utils import Cluster

    own = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 100 << 20}
    made = Cluster(initialize_head=True, head_node_args={**own, "include_dashboard": False})
    made.add_node(**own)
    yield made
    import ray

    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory) -> Path:
    """Three arrays of 45,000 pictures, so 18 parts; some pictures stand twice."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for i in range(3):
        x = rng.integers(256, size=(45_000, 8, 8, 3), dtype=np.uint8)
        x[5], x[44_000] = x[7], rng.integers(2) + np.zeros((8, 8, 3), np.uint8)
        np.save(folder / f"{i}.npy", x)
    return folder


def build(pictures: Path, out: Path, *more: str) -> tuple:
    return ("pool", "build", *(str(pictures / f"{i}.npy") for i in range(3)), "--out", str(out), "--size", "8", *more)


def files(folder: Path) -> dict[str, str]:
    found = (file for file in sorted(folder.rglob("*")) if file.is_file() and file.name != ".checked.json")
    return {str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest() for file in found}


@pytest.fixture(scope="module")
def local(pictures: Path, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("local") / "pool"
    odst(*build(pictures, out))
    return out


def test_two_nodes_build_the_pool_of_one_process(cluster, pictures: Path, local: Path, tmp_path: Path):
    odst(*build(pictures, tmp_path / "pool", "--engine", "ray", "--address", cluster.address))
    assert files(tmp_path / "pool") == files(local)
    odst("pool", "verify", tmp_path / "pool", "--engine", "ray", "--address", cluster.address)


def test_shares_in_any_order_one_of_them_killed_and_a_closing_call_build_it_too(
    pictures: Path, local: Path, tmp_path: Path
):
    out = tmp_path / "pool"
    for i in (2, 0):
        done = odst(*build(pictures, out, "--shard", f"{i}/3"))
        assert f"share {i}/3 is done" in done.stdout
    killed = subprocess.Popen(command(*build(pictures, out, "--shard", "1/3")), stderr=subprocess.DEVNULL)
    time.sleep(1.5)  # anywhere: while it starts, decodes or has just ended
    killed.kill()
    killed.wait()
    assert odst("status", out).stdout.startswith("decode for pool:")
    odst(*build(pictures, out, "--shard", "1/3"))
    odst(*build(pictures, out))
    assert files(out) == files(local)


def test_nodes_that_label_and_guard_write_what_this_machine_does(cluster, local: Path, tmp_path: Path, monkeypatch):
    monkeypatch.setattr("odst.method.stored.RANGE", 8192)
    import torch

    from odst.duplicates import Guard, audit
    from odst.engine.interface import running_on
    from odst.engine.ray import OnRay
    from odst.method.labelling import Predictions
    from odst.method.selection import select
    from odst.method.stored import label
    from odst.vision.networks import make_network

    torch.manual_seed(0)
    model = make_network("tiny", 4, shape=(8, 8, 3))
    pool = open_pool(local)
    guard = Guard({"test": pool.x[np.arange(0, 130_000, 7000)].copy()})
    chosen = {}
    ray = OnRay(cluster.address)
    for name, engine in (("here", None), ("there", ray)):
        (tmp_path / name).mkdir()
        with running_on(engine):
            logits = label(model, pool.x, tmp_path / name / "logits", name="label", identity=pool.id)
            audit(pool, guard, tmp_path / name / "dedup")
        I = select(
            Predictions(logits, 1.0), np.full(4, -5.0), 50, excluded=np.empty(0, np.int64), max_copies=1, seed=0, t=0
        )
        chosen[name] = I.ids.tolist()
    assert files(tmp_path / "there") == files(tmp_path / "here")
    assert chosen["there"] == chosen["here"]
    assert len(files(tmp_path / "here" / "logits")) == 1 + 17  # and the manifest


@pytest.mark.slow
def test_nodes_embed_a_pool_as_this_machine_does(cluster, local: Path, tmp_path: Path):
    import tiny_encoder

    spec = tiny_encoder.save(tmp_path / "tiny.pt")
    for name, more in (("here", ()), ("there", ("--engine", "ray", "--address", cluster.address))):
        shutil.copytree(local, tmp_path / name)
        odst("pool", "embed", tmp_path / name, "--embed", spec, "--from-pixels", *more)
    made = files(tmp_path / "there")
    assert made == files(tmp_path / "here")
    assert any(name.startswith("features/") and name.endswith(".npy") for name in made)


def test_a_driver_that_is_killed_leaves_what_is_done_and_the_same_command_goes_on(
    cluster, pictures: Path, local: Path, tmp_path: Path
):
    out = tmp_path / "pool"
    arguments = build(pictures, out, "--engine", "ray", "--address", cluster.address)
    driver = subprocess.Popen(command(*arguments), stderr=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + 120
    while not list(out.glob("building/parts/0*.json")):
        assert time.monotonic() < deadline and driver.poll() is None
        time.sleep(0.01)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    odst(*arguments)
    assert files(out) == files(local)


def test_a_folder_that_a_node_cannot_write_and_a_gpu_that_nobody_offers_are_one_line(
    cluster, pictures: Path, tmp_path: Path
):
    done = odst(
        "run",
        "digits",
        "--out",
        tmp_path / "run",
        "--engine",
        "ray",
        "--address",
        cluster.address,
        "--gpus-per-worker",
        "1",
        check=2,
    )
    assert "the cluster offers 0 GPUs" in done.stderr


def test_a_node_that_is_killed_loses_nothing(cluster, tmp_path: Path):
    """Last: it takes the second node away. Tasks pace themselves, so that both nodes have results before the kill."""
    from odst.engine.interface import running_on
    from odst.engine.parts import complete, read_notes
    from odst.engine.ray import OnRay
    from pacing import Pacing

    node = next(one for one in cluster.worker_nodes)
    raylets = [info.process.pid for info in node.all_processes["raylet"]]
    killed, seen = False, []

    class Watching:
        def start(self, name, total, unit, done):
            return self.advance

        def advance(self, n):
            nonlocal killed
            makers = {note["raylet"] for note in read_notes(tmp_path / "stage").values()}
            if not killed and len(makers) == 2:
                seen.append(makers)
                for pid in raylets:
                    os.kill(pid, signal.SIGKILL)
                killed = True

        def finish(self, name, completed):
            pass

    from odst.progress import listening

    with running_on(OnRay(cluster.address)), listening(Watching()):
        notes = complete(tmp_path / "stage", {}, [1] * 24, Pacing(tmp_path / "stage"), name="pace")
    assert killed and seen
    assert [note["number"] for note in notes] == list(range(24))
    assert [(tmp_path / "stage" / f"{i:05d}.txt").read_text() for i in range(24)] == [str(i) for i in range(24)]
    survivors = {note["raylet"] for note in notes[-4:]}
    assert len(survivors) == 1
    assert not survivors & set(raylets)
