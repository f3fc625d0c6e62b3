"""The forecast: shares with intervals that hold, what comes of them, and the page, the file and the report they go to."""

import json
from pathlib import Path

import numpy as np
import pytest

from commands import fails, odst
from odst.data.images import Data, Labelled, Pool
from odst.evaluation.shares import related_shares
from odst.report.findings import gather
from odst.report.foresight import compare_forecast
from odst.report.page import render_report
from odst.run.config import parse_config, read_config
from odst.run.directory import RunDir
from odst.run.outlook import described, look_ahead, read_outlook, val_out_from
from odst.run.preparation import pool_of
from odst.run.quick_base import scan_pool

K, D = 3, 6


def logits(rng: np.random.Generator, kind: np.ndarray) -> np.ndarray:
    """What a fair model says of images of these kinds, -1 for none of its classes: nobody is ever quite sure."""
    z = rng.normal(size=(len(kind), K))
    of_class = kind >= 0
    z[of_class, kind[of_class]] += 2.0
    return z


def drawn(rng: np.random.Generator, shares: np.ndarray, n: int) -> np.ndarray:
    return rng.choice(np.arange(-1, K), size=n, p=[1 - shares.sum(), *shares])


def once(seed: int, shares: np.ndarray, *, n_in: int = 60, n_out: int = 300, n: int = 3000, val_out: bool = True):
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(K), n_in)
    out = logits(rng, np.full(n_out, -1)) if val_out else None
    return related_shares(logits(rng, y), y, out, logits(rng, drawn(rng, shares, n)), 1.0)


@pytest.mark.parametrize("shares", [(0.2, 0.1, 0.05), (0.02, 0.01, 0.0), (0.0, 0.0, 0.0)])
def test_nineteen_of_twenty_intervals_hold_the_share(shares: tuple[float, ...]) -> None:
    """60 repetitions and three classes: fewer than 88 % held would be a one in a thousand chance."""
    found = [once(seed, np.array(shares)) for seed in range(60)]
    held = [(one.low <= shares) & (shares <= one.high) for one in found]
    assert np.mean(held) >= 0.88
    assert np.mean([one.related[0] <= sum(shares) <= one.related[2] for one in found]) >= 0.85
    assert np.mean([one.doubtful for one in found]) <= 0.1


def test_more_validation_images_and_a_longer_scan_make_narrower_intervals() -> None:
    shares = np.array([0.2, 0.1, 0.05])
    few, many = once(1, shares), once(1, shares, n_in=2000, n_out=10_000, n=40_000)
    assert ((many.high - many.low) < 0.4 * (few.high - few.low)).all()
    assert (np.abs(many.best - shares) < 0.02).all()


def test_without_val_out_there_is_no_lower_end_and_the_upper_one_still_holds() -> None:
    shares = np.array([0.2, 0.1, 0.05])
    found = [once(seed, shares, val_out=False) for seed in range(20)]
    assert all((one.low < 1e-4).all() for one in found)
    assert np.mean([one.high >= shares for one in found]) >= 0.9


def test_a_val_out_that_is_not_like_the_pool_is_noticed_and_widens_the_intervals() -> None:
    rng = np.random.default_rng(0)
    shares, y = np.array([0.1, 0.1, 0.1]), np.repeat(np.arange(K), 200)
    inside, pool = logits(rng, y), logits(rng, drawn(rng, shares, 5000))
    like, unlike = logits(rng, np.full(2000, -1)), 3 * logits(rng, np.full(2000, -1))
    good, bad = (related_shares(inside, y, out, pool, 1.0) for out in (like, unlike))
    assert good.misfit < 2 and not good.doubtful
    assert bad.misfit > 3 and bad.doubtful
    assert (bad.high - bad.low).sum() > 1.5 * (good.high - good.low).sum()


# a scan ----------------------------------------------------------------------------------------------------------------------


def world(seed: int = 0, pool: int = 3000) -> Data:
    """Vectors: a class is a direction, and the unrelated ones are around 0."""
    rng = np.random.default_rng(seed)

    def rows(kind: np.ndarray) -> np.ndarray:
        x = rng.normal(size=(len(kind), D)).astype(np.float32)
        x[kind >= 0, kind[kind >= 0]] += 3
        return x

    def labelled(n: int) -> Labelled:
        y = np.repeat(np.arange(K), n)
        return Labelled(rows(y), y)

    truth = drawn(rng, np.array([0.2, 0.1, 0.02]), pool)
    return Data(
        labelled=labelled(20), val_in=labelled(80), val_out=rows(np.full(500, -1)),
        pool=Pool(rows(truth), truth=truth, excluded=np.arange(50)), classes=("a", "b", "c"),
    )  # fmt: skip


def settings(**method: object):
    values = {"name": "odst", "alpha": 0.9, "ratio": [2, 4], **method}
    training = {"batch": 32, "phases": [{"steps": 40, "lr": 0.05}]}
    return parse_config(
        {"data": {"world": "digits"}, "method": values, "model": {"name": "mlp"}, "training": training}, "test"
    )


def test_the_scan_and_what_the_base_learns_from_are_two_parts_of_the_pool() -> None:
    """The excluded images are in neither, and at most half of the pool is scanned."""
    data = world(pool=400)
    found = scan_pool(data, 20_000, seed=0, device="cpu", steps=5)
    assert len(found.ids) == 175 == len(np.unique(found.ids)) and found.ids.min() >= 50
    same = scan_pool(data, 20_000, seed=0, device="cpu", steps=5)
    assert np.array_equal(found.logits, same.logits)
    assert not np.array_equal(found.ids, scan_pool(data, 20_000, seed=1, device="cpu", steps=5).ids)


def test_an_outlook_holds_the_truth_and_knows_what_val_out_can_promise() -> None:
    data, config = world(), settings()
    found = look_ahead(config, data, 20_000, "cpu")
    assert found.scanned == 1475 and found.images == 2950
    true = np.bincount(data.pool.truth[50:] + 1, minlength=K + 1)[1:] / 2950
    for share, one in zip(true, found.classes.values(), strict=True):
        assert one.share[0] <= share <= one.share[2]
    a = found.classes["a"]
    k = 40  # ratio 2 of 60 labelled images, by three classes
    assert found.rounds == [k, 2 * k]
    assert a.promised == pytest.approx(1 - 2950 / (501 * min(k, a.above)))
    assert found.first == sum(min(k, one.above) for one in found.classes.values())
    first, second = found.to_json()["rounds"]  # what later teachers will find is not made up
    assert (first["selected"], first["most"], second["selected"], second["most"]) == (found.first, 3 * k, None, 6 * k)
    page = "\n".join(described(found))
    assert f"about {found.first:,} of at most {3 * k} in round 1, if the run's base were the quick one" in page
    assert f"at most {6 * k} in round 2: how many, their teachers will say" in page and "right" not in page
    assert f"  {a.above:,}  " in page  # and no interval, which would be of the scan's error alone
    assert found.verdict[0] is True and "related images for 60 labelled ones" in found.verdict[1]


def test_a_hopeless_pool_is_not_worth_it() -> None:
    data = world()
    unrelated = data.pool.x[data.pool.truth < 0]
    found = look_ahead(settings(alpha=0.998), Data(data.labelled, Pool(unrelated), data.val_in, data.val_out, classes=data.classes), 20_000, "cpu")  # fmt: skip
    assert found.verdict[0] is not True and found.related[0] < 0.02


def test_a_val_out_that_was_drawn_from_the_pool_gives_no_lower_end(tmp_path: Path) -> None:
    def config(val_out: object):
        data = {"labelled": "a", "pool": "b", **({"val_out": val_out} if val_out else {})}
        return parse_config({"data": data, "training": {"phases": [{"steps": 1, "lr": 0.1}]}}, "test")

    assert val_out_from(config("pool?rows=val_out.csv")) == "from the pool"
    assert val_out_from(config(["x", "pool?rows=val_out.csv"])) == "from the pool"
    assert (val_out_from(config("x")), val_out_from(config(None)), val_out_from(settings())) == (
        "given",
        "none",
        "given",
    )
    drawn_out = settings().model_copy(update={"data": config("pool?rows=v.csv").data})
    found = look_ahead(drawn_out, world(), 20_000, "cpu")
    assert all(one.share[0] == 0 for one in found.classes.values()) and found.related[0] == 0
    assert found.classes["a"].share[2] >= 0.2


# the command -----------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_forecast_is_kept_for_the_report_of_its_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    few = ["--set", "training.phases=[{steps=20, lr=0.1}]", "--set", "method.ratio=[5]", "--set", "method.alpha=0.8"]
    result = odst("forecast", "digits", "-q", *few)
    assert result.code == 0, result.err
    assert "worth it    yes" in result.out and "disk " in result.out and "time " in result.out
    run = RunDir(tmp_path / "runs" / "digits-odst-0")
    kept = read_outlook(run)
    assert kept is not None and set(kept["classes"]) == {"2", "3", "5", "8", "9"} and kept["scanned"] == 1150
    assert all(len(line) <= 100 for line in result.out.splitlines())

    assert odst("run", "digits", "-q", *few).code == 0  # in the folder that the forecast has begun
    found = compare_forecast(gather(run, pool_of(run)))
    assert found is not None
    assert [one.true for one in found.classes] == [pytest.approx(100 / 2300)] * 5
    told = kept["rounds"][0]
    assert found.rounds == [(1, told["selected"], told["most"], run.metrics()[1]["selected"])]
    page = render_report(run, pool_of(run), images=False, relative_paths=False)
    assert "two models, a quick base and this run" in page
    assert "What was forecast" in page and "of 5 classes lie inside their interval" in page
    (run.path / "forecast.json").write_text(json.dumps({"format": 7}))
    assert "no forecast that this odst can read" in fails("report", run.path)
    (run.path / "forecast.json").unlink()
    assert "What was forecast" not in render_report(run, pool_of(run), images=False, relative_paths=False)


def test_what_cannot_be_forecast_is_one_line_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "says nothing" in fails("forecast", "digits", "-q", "--scan", "99")
    assert "says nothing" in fails("forecast", "digits", "-q", "--scan", "-5")
    assert "neither a file nor a preset" in fails("forecast", "digts")
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.txt").write_text("")
    assert "holds no run" in fails("forecast", "digits", "-q", "--out", tmp_path / "taken")
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["thesis.txt"]
    assert read_config("digits", {}).run.seed == 0
