"""A part of benchmarks.torture: what odst must outlive, in forked processes that are really killed."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from benchmarks.torture import cases
from benchmarks.torture.calls import call, preload
from benchmarks.torture.cases import Verdict, World
from benchmarks.torture.configs import configs
from benchmarks.torture.scenes import SCENES, missing
from benchmarks.torture.shim import Shim

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    preload()
    return World(tmp_path_factory.mktemp("torture"), 0)


def failures(verdicts: Iterator[Verdict]) -> tuple[int, list[Verdict]]:
    every = list(verdicts)
    return len(every), [one for one in every if one.outcome != "survived"]


def test_every_command_has_a_scene() -> None:
    assert missing() == []


def test_a_process_is_killed_at_the_operation_asked_for(world: World) -> None:
    """Else the others would prove nothing."""
    words = list(SCENES["pool build"].words)
    total = world.undisturbed("pool build")[1].count
    assert total > 20
    world.anew()
    assert call(words, world.folder, Shim("kill", total // 2)).code == -9
    assert (world.folder / "built").exists() and not (world.folder / "built" / "manifest.json").exists()
    full = call(words, world.anew(), Shim("full", 5))
    assert full.code == 2 and "the disk is full" in full.err


def test_what_comes_out_otherwise_is_called_wrong(world: World) -> None:
    scene = SCENES["pool join"]
    world.undisturbed("pool join")
    world.anew()
    assert call(list(scene.words), world.folder).code == 0
    assert world.compare("pool join", scene, "").outcome == "survived"
    manifest = world.folder / "joined" / "manifest.json"
    manifest.write_text(manifest.read_text() + " ")
    assert world.compare("pool join", scene, "").outcome == "wrong"


@pytest.mark.parametrize("part", [
    lambda world, rng: cases.kills(world, rng, 2, anew=0),
    lambda world, rng: cases.full_disks(world, rng, 2),
    lambda world, rng: cases.pairs(world, rng, 1),
    lambda world, rng: cases.damages(world, rng, 40),
], ids=["kills", "full disks", "pairs", "damages"])  # fmt: skip
def test_a_draw_of_every_part_is_survived(world: World, part: Callable[..., Iterator[Verdict]]) -> None:
    tried, failed = failures(part(world, np.random.default_rng(14)))
    assert tried >= 10
    assert failed == []


def test_configs_that_nobody_could_run_are_one_line(world: World) -> None:
    whole = (world.kept / "odst.toml").read_text()
    world.anew()
    codes = set()
    for what, raw in configs(whole, 7, 25):
        (world.folder / "odst.toml").write_bytes(raw)
        ended = call(["run", "odst.toml", "--dry-run"], world.folder)
        assert not ended.crashed, f"{what}: {ended.crashed}"
        codes.add(ended.code)
    assert 2 in codes
