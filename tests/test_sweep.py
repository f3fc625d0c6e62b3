"""The sweep over unrelated images: which images its worlds hold, and the numbers that are taken from its curves."""

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from benchmarks.open_world.conditions import World, conditions
from benchmarks.open_world.jobs import Job, identity, images_seen, jobs, schedule
from benchmarks.open_world.known import by_job, known_jobs
from benchmarks.open_world.peers import budget, peer_table, peers
from benchmarks.open_world.sweep import ALONE, area, curves, last_rounds, slope, sweep_tables
from benchmarks.open_world.world import CONFUSED, NEAR, SIDES, SWEEP, Set, build, cut

from odst.errors import UserError
from odst.run.config import read_config
from odst.run.directory import RunDir
from odst.run.execution import execute

TASK = [f"task {c}" for c in range(10)]


def numbered(names: np.ndarray, first: int) -> Set:
    """Each image is its number, so that one can be told from another."""
    numbers = np.arange(first, first + len(names), dtype=np.int64)
    return Set(numbers[:, None], names)


@pytest.fixture(scope="module")
def sets() -> dict[str, Set]:
    unrelated = np.array([*NEAR, *(f"far {c}" for c in range(65))]).repeat(300)
    return {
        "labelled": numbered(np.array(TASK).repeat(400), 0),
        "related": numbered(np.array(TASK).repeat(1600), 10_000),
        "unrelated": numbered(unrelated, 50_000),
        "val_in": numbered(np.array(TASK), 90_000),
    }


def test_the_sweep_varies_the_unrelated_images_alone(sets) -> None:
    worlds = {name: cut(name, sets) for name in SWEEP}
    for role in ("labelled", "related", "val_in"):
        assert len({worlds[name][role].x.tobytes() for name in worlds}) == 1
    assert len(worlds["sweep-0"]["labelled"].x) == 1_000 and len(worlds["sweep-0"]["related"].x) == 3_000
    chosen = [set(worlds[name]["unrelated"].x[:, 0].tolist()) for name in SWEEP]
    assert [len(one) for one in chosen] == list(SWEEP.values())
    assert all(smaller < larger for smaller, larger in pairwise(chosen))


def test_near_and_far_are_of_one_size_and_of_different_classes(sets) -> None:
    near, far = (cut(name, sets)["unrelated"] for name in SIDES)
    assert len(near.x) == len(far.x) == 6_000
    assert set(near.names) == set(NEAR) and not set(far.names) & set(NEAR)
    assert not set(NEAR) & set(CONFUSED)


def test_a_third_of_the_large_world_is_related(sets) -> None:
    world = cut("33", sets)
    assert 2 * len(world["related"].x) == len(world["unrelated"].x)
    with pytest.raises(UserError, match="world 33: it needs 14700 related images, and there are 10"):
        cut("33", sets | {"related": sets["val_in"]})


def test_what_the_leak_guard_takes_out_of_the_pool_is_no_label_of_the_bound(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)

    def some(n: int, *names: str) -> Set:
        return Set(rng.integers(0, 256, (n * len(names), 32, 32, 3), dtype=np.uint8), np.repeat(names, n))

    sets = {role: some(2, "cat", "dog") for role in ("labelled", "val_in", "test", "related")}
    sets |= {"unrelated": some(3, "chair"), "val_out": some(3, "lamp"), "out_other": some(3, "bowl")}
    sets["related"].x[1] = sets["test"].x[0]
    build(tmp_path / "world", sets, None)
    with np.load(tmp_path / "world" / "related.npz") as file:
        known = {image.tobytes(): name for image, name in zip(file["x"], file["labels"], strict=True)}
    left = [0, 2, 3]
    assert known == {sets["related"].x[i].tobytes(): sets["related"].names[i] for i in left}


def row(world: str, method: str, seed: int, t: int, error: float) -> dict:
    return {
        "share": world, "method": method, "seed": seed, "round": t, "error": error, "od_auroc": 0.8, "related": 0.5, "correct": 0.4,
        "images": 1_000, "seconds": 60,
    }  # fmt: skip


@pytest.fixture
def rows() -> list[dict]:
    """st's error rises by three points per tenfold more unrelated images; its base is the labels alone."""
    found = [row("sweep-0", "bound", seed, 0, 0.1) for seed in (0, 1)]
    for world, n in SWEEP.items():
        for seed in (0, 1):
            last = 0.3 + 0.03 * np.log10(max(n, 1) / 1500) + 0.01 * (2 * seed - 1)
            found += [row(world, "st", seed, 0, 0.4), row(world, "st", seed, 3, last)]
    return found


def test_a_curve_has_the_slope_and_the_area_it_was_made_with(rows) -> None:
    (points,) = curves(last_rounds(rows), "st")
    assert slope(points) == pytest.approx(3.0)
    middle = 30 + 3 * np.log10(29_400 / 1_500) / 2
    assert area(points) == pytest.approx(middle)


def test_labels_alone_and_the_bound_do_not_depend_on_the_pool(rows) -> None:
    found = last_rounds(rows)
    for method, error in ((ALONE, 40.0), ("bound", 10.0)):
        (points,) = curves(found, method)
        assert list(points) == list(SWEEP.values()) and list(points.values()) == pytest.approx([error] * 4)
        assert slope(points) == pytest.approx(0, abs=1e-9)
    written = sweep_tables(rows)
    assert f"| {ALONE} | 40.0 ± 0.0 |" in written and "| +3.00 |" in written


def test_every_round_of_the_sweep_is_shown(rows) -> None:
    written = sweep_tables(rows)
    assert "| st | 40.0 → 20.5 | 40.0 → 30.0 | 40.0 → 31.8 | 40.0 → 33.9 |" in written
    assert "| bound |" not in written[written.index("by round") :]  # one training, whatever the pool


def test_a_curve_with_a_gap_has_neither(rows) -> None:
    def line(without: str) -> str:
        some = [one for one in rows if one["share"] != without]
        return next(line for line in sweep_tables(some).splitlines() if line.startswith("| st |"))

    assert line("sweep-6000").endswith("| – | – | – | – |")
    assert line("sweep-1500").endswith("| – | – | 32.8 | +3.00 |")  # as a peer's, which starts at 6,000


def test_curves_are_compared_over_the_seeds_that_both_have_whole(rows) -> None:
    luck = [row(world, "odst", 0, 3, 0.35) for world in SWEEP] + [row("sweep-0", "odst", 1, 3, 0.01)]
    ours, theirs = curves(last_rounds(rows + luck), "odst", "st")
    assert list(ours.values()) == pytest.approx([35.0] * 4)
    assert theirs[1_500] == pytest.approx(29)  # of seed 0 alone; 30 over both
    assert curves(last_rounds(rows), "odst", "st") == [{}, {}]


def test_near_and_far_stand_beside_each_other_as_far_as_they_were_run(rows) -> None:
    assert "near" not in sweep_tables(rows)
    sides = [row("near", "odst", 0, t, 0.3) for t in (0, 3)] + [
        row("far", method, 0, 3, 0.2) for method in ("odst", "st")
    ]
    written = sweep_tables(rows + sides)
    assert "| odst | 30.0, 80.0, 50.0 | 20.0, 80.0, 50.0 |" in written
    assert "| st | – | 20.0, 80.0, 50.0 |" in written
    empty = [row("far", "st", 0, 3, 0.2) | {"related": None}]  # nothing was selected
    assert "| st | – | 20.0, 80.0, – |" in sweep_tables(empty)


def test_no_job_is_listed_twice_and_known_ones_are_found_by_name(tmp_path: Path) -> None:
    every = [str(job) for job in jobs()]
    assert len(every) == len(set(every))
    assert {"33/odst/2", "33/odst-auto/0", "sweep-29400/st-ot/2", "far/st/0", "svhn/st-cw/0"} <= set(every)
    file = tmp_path / "results.json"
    job = next(job for job in jobs() if str(job) == "33/odst/2")
    rows = [row("33", "odst", 2, t, 0.3) | {"config": identity(job)} for t in (0, 1)]
    file.write_text(json.dumps([*rows, row("33", "no more", 2, 0, 0.3)]))
    assert {name: len(own) for name, own in known_jobs(file).items()} == {"33/odst/2": 2}
    assert list(by_job([*rows, row("33", "odst", 0, 0, 0.3)])) == [
        "33/odst/0",
        "33/odst/2",
    ]  # as the jobs are, not as they end
    with pytest.raises(UserError, match="--known: there is no file"):
        known_jobs(tmp_path / "other.json")


def test_the_images_of_a_run_are_those_that_its_trainings_counted(tmp_path: Path) -> None:
    phases = [{"epochs": 2, "lr": 0.05}]
    changes = {"method.labelled_copies": 5, "method.alpha": 0.05, "training.phases": phases, "data.pool_size": 300}
    config = read_config("digits", changes)
    execute(config, tmp_path)
    timings = [json.loads(line) for line in (tmp_path / "timings.jsonl").read_text().splitlines()]
    trained = [line["images"] for line in timings if line["stage"].startswith("train ")]
    assert len(trained) == 4  # of T and I; as many of the rest go through with them
    assert images_seen(config, RunDir(tmp_path)) == 2 * sum(trained)


def test_rows_of_other_settings_are_not_taken_for_those_of_a_job(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    of = {str(job): identity(job) for job in jobs()}
    assert of["33/odst/2"] != of["33/odst/1"] != of["33/odst-auto/1"]  # the seed, the method
    assert of["sweep-0/bound/0"] != identity(Job("sweep-0", "bound", "supervised"))  # the schedule
    file.write_text(json.dumps([row("33", "odst", 2, 0, 0.3) | {"config": of["33/odst/1"]}]))
    with pytest.raises(UserError, match="its 33/odst/2 was made with other settings"):
        known_jobs(file)
    file.write_text(json.dumps([row("33", "fixmatch", 2, 0, 0.3) | {"settings": {"lr": 9.0}}]))
    with pytest.raises(UserError, match="its 33/fixmatch/2 was made with other settings"):
        known_jobs(file)


def test_a_base_and_its_students_have_the_epochs_that_are_asked_for() -> None:
    def epochs(changes: dict) -> tuple[float, float]:
        (students,) = changes["training.students"]
        return tuple(sum(p["epochs"] for p in phases) for phases in (changes["training.phases"], students["phases"]))

    assert (epochs(schedule()), epochs(schedule(3, 0.5))) == ((40, 40), (120, 20))
    assert [p["augment"] for p in schedule(augment=["crop:4"])["training.phases"]] == [["crop:4"]] * 2


def test_students_pass_over_the_labelled_images_as_often_where_these_stand_several_times_in_an_epoch() -> None:
    every = {str(job): job.changes for job in jobs()}
    for world, passes in (("33", 40), ("sweep-6000", 80)):
        (students,) = every[f"{world}/odst-auto/0"]["training.students"]
        copies = every[f"{world}/odst-auto/0"]["method.labelled_copies"]
        assert copies > 1 and copies * sum(p["epochs"] for p in students["phases"]) == pytest.approx(passes)


def test_a_peer_sees_as_many_images_as_odst_in_its_world_and_from_its_seed(rows) -> None:
    job = Job("sweep-0", "fixmatch", "fixmatch", 1)
    chain = [row("sweep-0", "odst", seed, t, 0.2) | {"images": 100 + seed} for seed in (0, 1) for t in (0, 3)]
    assert budget(job, rows + chain) == 101
    with pytest.raises(UserError, match="sweep-0/fixmatch/1: it is to see as many images as sweep-0/odst/1, and that"):
        budget(job, rows + chain[:2])


def test_peers_stand_beside_the_last_rounds_of_odst(rows) -> None:
    assert peer_table(rows) == ""
    seen = {"images": 1_250_000, "seconds": 600}
    chain = [row("sweep-0", "odst", 0, t, 0.2 - 0.01 * t) | seen for t in range(4)]
    peer = [row("sweep-0", "openmatch", 0, 0, 0.25) | seen | {"own_od_auroc": 0.9}]
    written = peer_table(rows + chain + peer)
    assert "| odst | 17.0 | 80.0 | 80.0 | 50.0 | 40.0 | 1.25 | 10 |" in written
    assert "| openmatch | 25.0 | 80.0 | 90.0 | 50.0 | 40.0 | 1.25 | 10 |" in written
    assert len({str(job) for job in peers()} & {str(job) for job in jobs()}) == 0


def test_what_must_hold_is_said_with_its_numbers_and_what_does_not_is_told(rows) -> None:
    said = {sentence: (fine, numbers) for sentence, fine, numbers in conditions(rows)}
    assert said == {}  # nothing of odst there
    chain = [
        row("33", name, 0, t, start - fall * t) | {"val_error": 0.1}
        for name, start, fall in (("odst", 0.3, 0.02), ("st", 0.28, 0.0), ("st-ot", 0.28, 0.01))
        for t in range(4)
    ]
    chain += [row("33", "bound", 0, 0, 0.18) | {"val_error": 0.1}]
    flat = [row(world, "odst", 0, 3, 0.39) | {"val_error": 0.1} for world in SWEEP]
    said = {sentence: (fine, numbers) for sentence, fine, numbers in conditions(rows + chain + flat)}
    assert said["33 %: by at least 3.5 points"] == (True, "6.0 (one seed)")
    assert said["33 %: below st and st-ot on every seed"] == (True, "odst 24.0; st 28.0; st-ot 25.0 (one seed)")
    assert said["33 %: OD-AUROC at least 10 points above st's"] == (False, "80.0 against 80.0 (one seed)")
    assert World(chain, "33").gap_closed("odst") == pytest.approx(40)
    assert said["sweep: odst at most 0.5 points above labels alone"] == (
        True,
        "0 -1.0; 1,500 -1.0; 6,000 -1.0; 29,400 -1.0 (one seed)",
    )
    short = [one for one in chain if not (one["method"] == "st-ot" and one["round"] > 1)]
    said = {sentence: (fine, numbers) for sentence, fine, numbers in conditions(short)}
    assert said["33 %: below st and st-ot on every seed"] == (
        True,
        "odst 24.0; st 28.0; st-ot 27.0 (one seed)",
    )  # its last round
    said = {sentence: (fine, numbers) for sentence, fine, numbers in conditions(rows + chain + flat)}
    assert said["sweep: the slope of odst below st's"][0] and not said["sweep: the area of odst below st's"][0]


def test_the_page_is_made_from_whatever_has_been_run(rows) -> None:
    from benchmarks.open_world.page import page

    def world(name: str, *errors: float) -> list[dict]:
        more = {"corruption_error": 0.4, "val_error": 0.2, "selected": 100, "od_auroc_by_set": {"svhn": 0.8}}
        return [row("33", name, 0, t, error) | more for t, error in enumerate(errors)]

    here = [one | {"od_auroc_by_set": {"svhn": 0.8}} for one in rows]
    here += world("odst", 0.3, 0.27, 0.26, 0.25) + world("st", 0.28, 0.28, 0.29, 0.29) + world("bound", 0.15)
    here += world("st-ot", 0.28, 0.27, 0.27, 0.27)
    written = page(here, [])
    assert (
        "odst's error goes from 30.0 to **25.0 %** in three rounds, plain self-training's from 28.0 to 29.0;" in written
    )
    auto = [one | {"rest_weight": 0.3, "use": one["round"] == 2} for one in world("odst-auto", 0.28, 0.24, 0.23, 0.22)]
    also = page(here + auto, [])
    assert "in three rounds (as `odst init` sets it to 22.0), plain" in also
    assert "odst-auto took, by val_in, weight 0.3 and round 2 (seed 0).\n" in also
    assert "odst-auto took" not in written
    assert "- Yes: 33 %: by at least 3.5 points: 5.0 (one seed)." in written
    assert "- **No**: 33 %: at least 40 % of the way from labels alone to the bound: odst 23 %" in written
    assert "- Agrees: odst's error falls in every round (odst 30.0 → 27.0 → 26.0 → 25.0)." in written
    assert "Not run yet: " in written and "Peers trained on" not in written
