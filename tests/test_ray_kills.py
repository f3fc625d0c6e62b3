"""A Ray node that is killed in the middle of a stage: what the other one finishes has the bytes of one process."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import clusters
import tiny_encoder
from odst.classifier.load import load
from odst.classifier.predict import answer, write_answers
from odst.data.embedding import embed_pool
from odst.data.joining import join_pools
from odst.data.packing import build_pool
from odst.data.pool import open_pool
from odst.duplicates import Guard, Rule, audit
from odst.engine.interface import running_on
from odst.method.stored import label
from odst.vision.networks import make_network
from processes import artefacts
from runs import bar_world, config, make_run

pytest.importorskip("ray", reason="needs odst[ray]")

SOURCES, ROWS, SIDE = 18, 300, 16


@pytest.fixture(scope="module")
def cluster() -> Iterator:
    made = clusters.head()
    yield made
    import ray

    ray.shutdown()
    made.shutdown()


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """Arrays of pictures, and the pool of them."""
    folder = tmp_path_factory.mktemp("world")
    rng = np.random.default_rng(0)
    for i in range(SOURCES):
        np.save(folder / f"{i:02d}.npy", rng.integers(256, size=(ROWS, SIDE, SIDE, 3), dtype=np.uint8))
    build_pool(folder / "*.npy", folder / "pool", size=SIDE)
    return SimpleNamespace(folder=folder, pictures=folder / "*.npy", pool=folder / "pool")


def build(world: SimpleNamespace, out: Path) -> None:
    build_pool(world.pictures, out / "pool", size=SIDE)


def embed(world: SimpleNamespace, out: Path) -> None:
    shutil.copytree(world.pool, out / "pool")
    embed_pool(out / "pool", tiny_encoder.save(world.folder / "tiny.pt"))


def label_pool(world: SimpleNamespace, out: Path) -> None:
    pool = open_pool(world.pool)
    torch.manual_seed(0)
    label(make_network("tiny", 4, shape=(SIDE, SIDE, 3)), pool.x, out / "logits", identity=pool.id)


def guard(world: SimpleNamespace, out: Path) -> None:
    """The pool so often that it has as many shards as the others have parts."""
    joined = world.folder / "joined"
    if not joined.exists():
        join_pools([world.pool] * 110, joined)
    pool = open_pool(joined, every=True)
    audit(pool, Guard({"test": pool.x[::ROWS][:5].copy()}, Rule(radius=3.5)), out / "dedup")


def predict(world: SimpleNamespace, out: Path) -> None:
    run = world.folder / "run"
    if not run.exists():
        make_run(run, bar_world(), config(), rounds=1)
    parts, classifier = out / "parts", load(run, round=0, device="cpu")
    for _ in write_answers(answer(classifier, [str(world.pictures)], "crop", parts), out / "answers.csv", None):
        pass
    shutil.rmtree(parts, ignore_errors=True)  # as the command does


@pytest.mark.parametrize(
    "work", [label_pool, *(pytest.param(one, marks=pytest.mark.slow) for one in (build, embed, guard, predict))]
)
def test_a_node_that_is_killed_in_the_middle_of_a_stage_loses_nothing(
    cluster, world: SimpleNamespace, work: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odst.method.stored.RANGE", ROWS)
    monkeypatch.setattr("odst.classifier.scanning.LARGE", 1000)
    monkeypatch.setattr("odst.classifier.scanning.ITEMS", 256)
    places = [tmp_path / name for name in ("here", "there", "makers")]
    for place in places:
        place.mkdir()
    here, there, makers = places
    work(world, here)
    (doomed,) = (info.process.pid for info in cluster.add_node(**clusters.NODE).all_processes["raylet"])
    engine = clusters.Killing(cluster.address, makers, doomed)
    with running_on(engine):
        work(world, there)
    assert artefacts(there) == artefacts(here)
    lost = (makers / "lost").readlink()
    assert lost.suffix == ".part" and lost.is_relative_to(there)
    assert list(there.rglob(".*.part")) == []
    (survivor,) = clusters.made_by(makers) - {doomed}
    last = max(int(file.name.split("-")[1]) for file in makers.glob("made-*"))
    assert last + 1 >= 16
    for number in range(last - 8, last + 1):
        assert clusters.made_by(makers, number) == {survivor}
    deadline = time.monotonic() + 60
    while engine.window > 1:  # the cluster knows it too, before another node comes
        assert time.monotonic() < deadline
        time.sleep(0.1)
