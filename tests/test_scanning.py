"""Predicting and evaluating large sources: in parts, anywhere, and the same bytes."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from odst.classifier.evaluate import labelled_source, out_sources
from odst.classifier.load import Classifier, load
from odst.classifier.predict import answer, write_answers
from odst.data.images import Data
from odst.engine.interface import Share, ShareDone, running_on
from odst.engine.local import Local
from odst.errors import UserError
from odst.run.directory import RunDir
from odst.seeds import stream
from processes import fails
from runs import bar_world, bars, config, make_run

CLASSES = ("across", "down", "diagonal")
ROWS = 1500


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunDir:
    world: Data = bar_world(classes=CLASSES)
    return make_run(tmp_path_factory.mktemp("runs") / "bars", world, config())


@pytest.fixture(scope="module")
def classifier(run: RunDir) -> Classifier:
    return load(run.path, device="cpu")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    rng = stream(1, "source")
    y = rng.integers(3, size=ROWS)
    np.save(folder / "x.npy", bars(rng, y))
    np.save(folder / "y.npy", np.array(CLASSES)[y])
    return folder


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is large here, so that a test is quick."""
    monkeypatch.setattr("odst.classifier.scanning.LARGE", 1000)
    monkeypatch.setattr("odst.classifier.scanning.ITEMS", 256)


def table(classifier: Classifier, source: Path, csv: Path) -> bytes:
    parts = csv.with_name(f"{csv.name}.parts")
    for _ in write_answers(answer(classifier, [str(source / "x.npy")], "crop", parts), csv, None):
        pass
    return csv.read_bytes()


def shared(work, last: int = 3) -> None:
    for i in (2, 0, 1)[:last]:
        with pytest.raises(ShareDone, match=f"share {i}/3 is done"), running_on(Local(1), Share(i, 3)):
            work()


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


def test_parts_of_several_calls_make_the_table_of_one(classifier: Classifier, source: Path, tmp_path: Path) -> None:
    with torch_threads(2):
        here = table(classifier, source, tmp_path / "here.csv")
    work = partial(table, classifier, source, tmp_path / "there.csv")
    shared(work, last=2)
    assert len(list((tmp_path / "there.csv.parts").glob("*.rows.npy"))) == 4  # of six
    assert not (tmp_path / "there.csv").exists()
    assert work() == here
    assert here.count(b"\n") == 1 + ROWS


def test_another_classifier_does_not_go_on_with_the_parts(classifier: Classifier, source: Path, tmp_path: Path) -> None:
    shared(partial(table, classifier, source, tmp_path / "x.csv"), last=1)
    with pytest.raises(UserError, match=r"made from another model\. Delete .*x\.csv\.parts to begin anew"):
        table(load(classifier.run.path, round=0, device="cpu"), source, tmp_path / "x.csv")


def test_another_device_does_not_go_on_with_the_parts(classifier: Classifier, source: Path, tmp_path: Path) -> None:
    shared(partial(table, classifier, source, tmp_path / "x.csv"), last=1)
    with pytest.raises(UserError, match=r"made from another device\. Delete .*x\.csv\.parts to begin anew"):
        table(replace(classifier, device="cuda"), source, tmp_path / "x.csv")


def change_file(folder: Path) -> None:
    np.save(folder / "x.npy", 255 - np.load(folder / "x.npy"))


def change_labels(folder: Path) -> None:
    np.save(folder / "y.npy", np.load(folder / "y.npy")[::-1])


def change_picture(folder: Path) -> None:
    shutil.copy(folder / "pictures" / "0001.png", folder / "pictures" / "0002.png")


@pytest.mark.parametrize("change", [change_file, change_labels, change_picture])
def test_sources_that_have_changed_do_not_go_on_with_the_parts(
    classifier: Classifier, source: Path, tmp_path: Path, change: Callable[[Path], None]
) -> None:
    folder = tmp_path / "source"
    shutil.copytree(source, folder)
    (folder / "pictures").mkdir()
    for i, x in enumerate(np.load(source / "x.npy")[:1100]):
        Image.fromarray(x).save(folder / "pictures" / f"{i:04d}.png")
    spec = f"{folder}/pictures" if change is change_picture else f"{folder}/x.npy?labels=y.npy"

    def work() -> None:
        for _ in write_answers(answer(classifier, [spec], "crop", tmp_path / "parts"), tmp_path / "x.csv", None):
            pass

    shared(work, last=2)  # the second call finds everything as it was
    change(folder)
    with pytest.raises(UserError, match=r"made from another source\. Delete .*parts to begin anew"):
        work()


def test_a_large_set_is_evaluated_in_parts_to_the_same_bits(
    classifier: Classifier, source: Path, tmp_path: Path
) -> None:
    spec = f"{source / 'x.npy'}?labels=y.npy"

    def both(place: Path) -> tuple[np.ndarray, np.ndarray]:
        logits, y, x = labelled_source(classifier, spec, "crop", place / "on", images=False)
        assert x is None
        outs = out_sources(classifier, [f"same={source / 'x.npy'}"], "crop", place)
        assert np.array_equal(outs["same"], logits)
        return logits, y

    here = both(tmp_path / "here")
    assert not (tmp_path / "here").exists()
    shared(partial(both, tmp_path / "there"))
    shared(partial(both, tmp_path / "there"))  # the second source, now that the first has all its parts
    there = both(tmp_path / "there")
    assert np.array_equal(here[0], there[0])
    assert np.array_equal(here[1], there[1])
    x = np.load(source / "x.npy")
    np.testing.assert_allclose(here[0], classifier.logits(x), rtol=1e-4, atol=1e-5)
    assert np.array_equal(np.array(CLASSES)[here[1]], np.load(source / "y.npy"))


def test_a_set_that_is_not_large_is_seen_as_before_wherever_the_engine_is(
    classifier: Classifier, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("odst.classifier.scanning.LARGE", ROWS + 1)

    class Elsewhere(Local):
        alone = False

        def map(self, make, items):
            raise AssertionError("not worth it")

    with running_on(Elsewhere()):
        table(classifier, source, tmp_path / "x.csv")
    with pytest.raises(UserError, match="1,500 images are too few to be shared out"), running_on(None, Share(0, 2)):
        table(classifier, source, tmp_path / "y.csv")


def test_several_machines_want_a_file_beside_which_their_parts_lie(classifier: Classifier, source: Path) -> None:
    with pytest.raises(UserError, match="Name one"), running_on(Local(1), Share(0, 2)):
        answer(classifier, [str(source / "x.npy")], "crop", None)


def test_the_commands_refuse_a_wrong_share_in_one_line(run: RunDir, source: Path) -> None:
    fails("predict", run.path, source / "x.npy", "--shard", "3/3", says="the last one is 2/3")
    fails("evaluate", run.path, "--on", source / "x.npy", "--shard", "x", says="--shard takes i/n")
    fails("report", run.path, "--engine", "ray", "--address", "127.0.0.1:1", says="nothing answers there")
