"""The few-labels benchmark: its worlds, what it says of its numbers, and the tables that are published."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from benchmarks.few_labels.conditions import conditions, prose, worst
from benchmarks.few_labels.promise import summary
from benchmarks.few_labels.runs import ALONE, AUTO, METHODS, PAPER, REGRESSION, ST, run_world
from benchmarks.few_labels.shares import BOUND, ORDER, run_shares, shares_tables
from benchmarks.few_labels.tables import WORLDS, Results, mean, tables
from benchmarks.few_labels.worlds import CIFAR, PIXELS, SHARES, World, write_vectors

ROOT = Path(__file__).parent.parent
CLASSES = [f"class{c}" for c in range(10)]


def write_features(folder: Path, rows: dict[str, int]) -> Path:
    """Vectors of ten directions and noise, numbered in their last place, in place of a backbone's."""
    rng = np.random.default_rng(0)
    folder.mkdir()
    for name, n in rows.items():
        related = name.startswith("cifar10-") or name == "cifar10"
        y = np.arange(n) % 10
        x = rng.normal(size=(n, 16))
        x[np.arange(n), y] += 4.0 if related else 1.5
        x[:, 15] = np.arange(n) / n
        np.savez(
            folder / f"{name}.npz", x=x.astype(np.float32), names=[CLASSES[c] if related else f"other{c}" for c in y]
        )
    return folder


@pytest.fixture(scope="module")
def features(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = {"cifar10": 22_000, "cifar100": 29_400, "cifar10-test": 500, "cifar100-val": 1000, "cifar100-test": 500}
    return write_features(tmp_path_factory.mktemp("few") / "features", rows)


def read(file: Path) -> tuple[np.ndarray, np.ndarray]:
    with np.load(file) as one:
        return one["x"], one["labels"]


@pytest.mark.parametrize("name", [*CIFAR, "100-33", "4000-2"])
def test_a_world_has_its_sizes_shares_no_image_between_sets_and_is_the_same_again(
    name: str, features: Path, tmp_path: Path
) -> None:
    spare = write_vectors(name, 3, tmp_path / "a", features)
    write_vectors(name, 3, tmp_path / "b", features)
    world, sets = (CIFAR | SHARES)[name], {}
    for role in ("labelled", "val_in", "pool"):
        x, labels = sets[role] = read(tmp_path / "a" / f"{role}.npz")
        assert all(
            np.array_equal(one, other)
            for one, other in zip((x, labels), read(tmp_path / "b" / f"{role}.npz"), strict=True)
        )
    sizes = {role: len(x) for role, (x, _) in sets.items()}
    assert sizes == {"labelled": world.labelled, "val_in": min(2000, 3 * world.labelled), "pool": world.pool}
    of_task = np.isin(sets["pool"][1], CLASSES)
    assert of_task.sum() == world.related
    task = [sets["labelled"][0], sets["val_in"][0], sets["pool"][0][of_task], spare.x]
    assert len(np.unique(np.concatenate(task), axis=0)) == 22_000 == sum(map(len, task))
    assert np.unique(sets["labelled"][1], return_counts=True)[1].tolist() == [world.labelled // 10] * 10


@pytest.mark.slow
def test_one_world_is_run_by_every_method_with_the_config_of_odst_init(features: Path, tmp_path: Path) -> None:
    rows = run_world("100", 0, data=tmp_path, features=features, out=tmp_path / "out")
    assert {row["method"] for row in rows} == {*METHODS, ALONE, REGRESSION}
    assert sum(row.get("use", False) for row in rows) == 1
    paper = [row for row in rows if row["method"] == PAPER]
    assert [row["round"] for row in paper] == [0, 1, 2, 3] and paper[0]["rest_weight"] == 1
    alone, st = (next(row for row in rows if row["method"] == m and row["round"] == 0) for m in (ALONE, ST))
    assert alone["error"] == st["error"] < 0.2  # the same model, and it has learnt
    assert next(row for row in rows if row["method"] == AUTO and row["round"] == 3)["related"] > 0.5
    assert not list((tmp_path / "out").iterdir())


@pytest.mark.slow
def test_a_world_of_the_shares_is_run_by_all_methods_and_shown(features: Path, tmp_path: Path, monkeypatch) -> None:
    for name, value in {"FEWEST_STEPS": 20, "FEWEST_STUDENT_STEPS": 20, "STUDENT_PASSES": 1}.items():
        monkeypatch.setattr(f"odst.few_labels.{name}", value)
    monkeypatch.setitem(SHARES, "100-10", World(100, 180, 1_800))
    rows = run_shares("100-10", 0, data=tmp_path, features=features, out=tmp_path / "out")
    assert {row["method"] for row in rows} == set(ORDER)
    last = {row["method"]: row["error"] for row in rows}
    assert last[BOUND] < last[ALONE]
    written = shares_tables(rows)
    assert "180 of 1,800 related" in written and f"| {BOUND} | {100 * last[BOUND]:.1f}, " in written


def test_fewer_related_images_are_some_of_the_more_and_the_labelled_are_the_same(
    features: Path, tmp_path: Path
) -> None:
    sets = {}
    for name in ("400-33", "400-2"):
        write_vectors(name, 1, tmp_path / name, features)
        sets[name] = {role: read(tmp_path / name / f"{role}.npz") for role in ("labelled", "val_in", "pool")}
    for role in ("labelled", "val_in"):
        assert np.array_equal(sets["400-33"][role][0], sets["400-2"][role][0])
    more, fewer = (
        {row.tobytes() for row in x[np.isin(names, CLASSES)]} for x, names in (one["pool"] for one in sets.values())
    )
    assert fewer < more


def made(world: str, seed: int, use: float, alone: float, od: float) -> list[dict]:
    one = {"world": world, "seed": seed, "use": False, "rest_weight": 0.3}
    rows = [one | {"method": AUTO, "round": t, "error": use, "od_auroc": od, "use": t == 3} for t in range(4)]
    rows += [one | {"method": m, "round": t, "error": alone, "od_auroc": 0.8} for m in (ST, PAPER) for t in range(4)]
    return [*rows, one | {"method": ALONE, "round": 0, "error": alone, "od_auroc": 0.8}]


def of(rows: list[dict]) -> dict:
    return {"rows": rows, "promise": [], "costs": []}


def test_what_must_hold_is_said_to_be_met_or_not_with_its_number() -> None:
    good = [row for seed in range(3) for row in made("400", seed, 0.17 + seed / 1000, 0.19 + seed / 1000, 0.88)]
    bad = [row for seed in range(3) for row in made("1,000", seed, 0.22 + seed / 1000, 0.19, 0.82)]
    assert all(fine for _, fine, _ in conditions(of(good)))
    said = {sentence: (fine, number) for sentence, fine, number in conditions(of(good + bad))}
    assert not any(fine for sentence, (fine, _) in said.items() if "a quarter" not in sentence)
    assert said["labels alone the choice in at most a quarter of the CIFAR runs"] == (True, "0 of 6")
    third = said["the third round below labels alone, up to 1,000 labels"][1]
    assert third == "400 -2.00 ± 0.00; 1,000 +3.10 ± 0.06 NOT MET"


def test_a_single_seed_has_no_standard_error_to_excuse_it() -> None:
    said = {sentence: (fine, number) for sentence, fine, number in conditions(of(made("400", 0, 0.191, 0.19, 0.88)))}
    assert said["the round to use not above labels alone beyond a standard error"] == (
        False,
        "400 +0.10 (one seed) NOT MET",
    )
    assert said["the worst world's ratio at most 1 within its standard error"] == (False, "400 1.005 (one seed)")


def test_an_empty_selection_counts_as_a_kept_promise() -> None:
    one = {"world": "400", "promise": 0.9, "said": None}
    rows = [one | {"seed": 0, "selected": 0, "open": 0, "related": None}]
    rows += [one | {"seed": 1, "selected": 80, "open": 4, "related": 0.8}]
    assert summary(rows) == [["400", "90", "2", "90.0", "80.0", "1 of 2", "1 of 2", "2.0", "40"]]


def test_the_published_tables_are_those_of_the_published_numbers() -> None:
    results = json.loads((ROOT / "benchmarks" / "few_labels" / "results.json").read_text())
    page = (ROOT / "docs" / "method.md").read_text()
    assert tables(results) in page
    assert {f"{row['world']}/{row['seed']}" for row in results["shares"]} <= set(results["done"])
    assert {f"{row['world']}/{row['seed']}" for row in results["shares"]} <= results.get("how", {}).keys()
    assert all(sentence in " ".join(page.split()) for sentence in prose(results))
    found = Results(results["rows"])
    (_, most), (_, of_vectors) = worst(found, found.worlds()), worst(found, list(CIFAR))
    said = " ".join((ROOT / "benchmarks" / "README.md").read_text().split())
    assert f"few_labels ratio={most.value:.3g} anchor=labels-alone" in said
    assert all(f"{one.value:.3f} ± {one.error:.3f}" in said for one in (most, of_vectors))


def test_what_the_page_for_newcomers_says_to_expect_is_what_was_measured() -> None:
    page = (ROOT / "docs" / "is_it_for_me.md").read_text(encoding="utf-8")
    found = Results(json.loads((ROOT / "benchmarks" / "few_labels" / "results.json").read_text())["rows"])
    fewer = []
    for world in found.worlds():
        measured = [(found.of(world, method), found.of(world, method, key="od_auroc")) for method in (ALONE, ST)]
        measured.append((found.used(world), found.used(world, "od_auroc")))
        errors = [f"{mean(error).value:.1f}" for error, _ in measured if error]
        best = min(errors, key=float)
        cells = [WORLDS[world]]
        for error, od in measured:
            text = f"{mean(error).value:.1f}" if error else "–"
            bold = f"**{text}**" if text == best else text
            cells.append(f"{bold}, {mean(od).value:.1f}" if error else "–")
        assert f"| {' | '.join(cells)} |" in page
        assert len(found.used(world)) == 5
        if world != PIXELS:
            fewer.append(100 - 100 * mean(found.used(world)).value / mean(found.of(world, ALONE)).value)
    rows = re.findall(r"^\|.*\*\*[\d.]+\*\*.*, [\d.]+ \|$", page, re.MULTILINE)
    assert len(rows) == len(found.worlds()) > 6  # and no other
    assert f"{min(fewer):.0f} to {max(fewer):.0f} % fewer errors" in page and min(fewer) > 0
    alone, used = (mean(values).value for values in (found.of("4,000", ALONE), found.used("4,000")))
    assert f"With 4,000 there were {alone - used:.1f} points left to gain" in page
