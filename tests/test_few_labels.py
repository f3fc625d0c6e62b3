"""The weight of the rest: what "auto" tries and takes, what the base spares, what a run keeps of it, and bad input."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from blobs import SCHEDULES, blob_world, make_mlp
from commands import fails, odst
from interruption import Interrupted
from odst import ODST, ST, Recipe, Round, load, self_train, settle
from odst.errors import UserError
from odst.few_labels import SLACK, WEIGHTS, Trial, not_worse, spared, trials, weights_for
from odst.method.calibration import top_log_odds
from odst.method.labelling import infer, model_hash
from odst.progress import listening
from odst.run.config import parse_config
from odst.run.directory import RunDir
from odst.run.execution import execute
from odst.run.forecast import forecast
from processes import artefacts
from test_execution import log_of, own, place

__all__ = ["place"]  # a fixture

AUTO = replace(ODST, alpha=0.95, ratio=(5,), rest_weight="auto", spare=0.9)
QUICK = [replace(SCHEDULES[0], phases=(replace(SCHEDULES[0].phases[0], steps=40),))]


def tried(recipe: Recipe, **options) -> list[Trial]:
    return list(trials(recipe, blob_world(), make_mlp, QUICK[0], **options))


def test_a_fixed_weight_makes_one_base_and_auto_begins_with_the_labels_alone():
    assert [one.rest_weight for one in tried(ODST)] == [1.0]
    assert [one.rest_weight for one in tried(ODST, labels_alone=True)] == [0.0, 1.0]
    assert [one.rest_weight for one in tried(replace(ODST, spare=0.9))] == [0.0, 1.0]
    assert [one.rest_weight for one in tried(replace(ST, spare=0.9))] == [0.0]
    auto = [one.rest_weight for one in tried(AUTO)]
    assert auto[0] == 0.0 and tuple(auto[1:]) == WEIGHTS[: len(auto) - 1]


def test_a_base_holds_within_one_paired_standard_error_of_the_slack():
    alone = np.ones(4)
    assert not_worse(np.full(4, SLACK), alone)
    assert not not_worse(np.full(4, SLACK + 1e-6), alone)  # all worse by the same: no doubt about it
    assert not_worse(np.array([0.1, 2.0, 1.2, 1.2]), alone)  # worse on average, by less than a standard error
    assert not not_worse(np.array([1.5, 2.0, 1.2, 1.2]), alone)
    assert not_worse(np.array([SLACK]), alone[:1]) and not not_worse(np.array([1.2]), alone[:1])


def test_auto_takes_the_largest_weight_that_holds_and_else_says_so(monkeypatch, caplog):
    monkeypatch.setattr("odst.few_labels.SLACK", 100)
    assert [one.rest_weight for one in tried(AUTO)] == [0.0, WEIGHTS[0]]
    monkeypatch.setattr("odst.few_labels.SLACK", 0.01)  # nobody can be so much better than the labels alone
    found = tried(AUTO)
    assert [one.rest_weight for one in found] == [0.0, *WEIGHTS] and not found[-1].holds
    assert "at none of 1, 0.3, 0.1, 0.03 is the base as good on val_in as your labels alone" in caplog.text


def test_of_a_backbones_vectors_auto_does_not_try_the_papers_weight():
    assert weights_for(np.zeros((5, 1280), np.float16)) == (0.3, 0.1, 0.03)
    for rows in (np.zeros((5, 64), np.float32), np.zeros((5, 32, 32, 3), np.uint8)):
        assert weights_for(rows) == WEIGHTS == (1.0, 0.3, 0.1, 0.03)


def test_what_the_base_spares_is_as_confident_as_that_share_of_val_in():
    data, alone = blob_world(), tried(AUTO)[0].base
    pool = replace(data.pool, excluded=np.arange(0, 600, 7))
    ids = spared(alone, pool, 0.9)
    inside = top_log_odds(alone.logits_in, alone.temperature)[1]
    odds = top_log_odds(infer(alone.model, pool.x), alone.temperature)[1]
    reached = [bar for bar in inside if (inside >= bar).mean() >= 0.9]
    expected = [j for j in range(600) if j % 7 and odds[j] >= max(reached)]
    assert ids.tolist() == expected and 0 < len(ids) < 500


def test_a_base_that_spares_is_that_of_a_pool_without_those_images():
    data = blob_world()
    alone, base = tried(replace(ODST, spare=0.9))
    without = replace(data, pool=replace(data.pool, excluded=spared(alone.base, data.pool, 0.9)))
    expected = next(self_train(ODST, without, make_mlp, QUICK))
    assert model_hash(base.base.model) == model_hash(expected.model) != model_hash(tried(ODST)[0].base.model)


def test_the_loop_settles_auto_itself_and_goes_on_from_what_settle_gave():
    data = blob_world()
    at_once = list(self_train(AUTO, data, make_mlp, QUICK))
    recipe, base = settle(AUTO, data, make_mlp, QUICK[0])
    assert recipe.rest_weight in WEIGHTS and isinstance(base, Round)
    later = list(self_train(recipe, data, make_mlp, QUICK, start=base))
    assert [model_hash(one.model) for one in (base, *later)] == [model_hash(one.model) for one in at_once]
    with pytest.raises(UserError, match=r"Go on from a round with the recipe that odst.settle gave"):
        list(self_train(AUTO, data, make_mlp, QUICK, start=base))


# runs ------------------------------------------------------------------------------------------------------------------------

FEW = {"method": {"rest_weight": "auto", "spare": 0.9}, "run": {"labels_alone": True}}


def few(place: Path, **changes: dict):
    config = own(place, **changes)
    values = config.model_dump(exclude_none=True)
    for section, keys in FEW.items():
        values[section] |= keys
    return parse_config(values, "test")


def test_a_run_keeps_the_labels_alone_and_what_it_tried_and_says_what_it_took(place: Path) -> None:
    execute(few(place), place / "runs" / "few")
    run = RunDir(place / "runs" / "few")
    lines = run.bases()
    assert lines[0].name == "labels-alone" and lines[0].rest_weight == 0
    assert [one.taken for one in lines] == [False] * (len(lines) - 1) + [True]
    taken = run.note(lines[-1].name)
    assert taken["model_hash"] == run.note(0)["model_hash"] != run.note("labels-alone")["model_hash"]
    assert {one.name: one.val_error for one in lines} == {
        one.name: run.note(one.name)["metrics"]["val_error"] for one in lines
    }
    assert not list(run.scratch.glob("labels-alone*")) and not list(run.scratch.glob("weight-*"))


def worse_rounds(place: Path, out: Path) -> RunDir:
    """A run whose labels alone are far better than its rounds: these are trained to be unsure of everything."""
    config = few(
        place, method={"rest_weight": 50.0}, training={"phases": [{"steps": 40, "lr": 0.1, "shape": "cosine"}]}
    )
    method = config.method.model_copy(update={"rest_weight": 50.0, "spare": None})
    execute(config.model_copy(update={"method": method}), out)
    return RunDir(out)


def test_where_labels_alone_are_better_every_command_takes_them(place: Path) -> None:
    run = worse_rounds(place, place / "runs" / "worse")
    final = run.final()
    assert final["use"] == "labels-alone" and final["round"] in run.rounds()
    assert final["model"] == "labels-alone/model.safetensors"
    assert final["model_hash"] == run.note("labels-alone")["model_hash"]
    assert final["val_error"] == final["labels_alone"]["val_error"] == run.note("labels-alone")["metrics"]["val_error"]
    classifier = load(run.path)
    x = np.load(place / "val_in.npy")
    assert np.allclose(classifier.logits(x), run.logits("labels-alone")["val_in"], atol=1e-5)
    assert load(run.path, round=0).round == 0 and load(run.path, round="labels-alone").round == "labels-alone"
    with pytest.raises(UserError, match=r"there is no round 7\. It has 0, 1, labels-alone"):
        load(run.path, round="7")
    said = odst("run", run.path, "-q").out
    assert "Use your labels alone" in said and "alone*" in said and "Your labels alone: " in said
    assert "(labels alone)" in odst("predict", run.path, place / "val_in.npy", "--csv", place / "a.csv").err
    assert "labels alone on val_in" in odst("evaluate", run.path, "--save", place / "e.json").out
    assert json.loads((place / "e.json").read_text())["error"] == final["val_error"]
    assert odst("report", run.path, "--no-images").code == 0
    page = (run.path / "report.html").read_text(encoding="utf-8")
    assert "Use your labels alone" in page and "labels alone (use this)" in page and 'id="bases"' in page
    assert "best used with its labels alone" in odst("compare", run.path).err


def test_where_a_round_is_better_final_says_so_beside_labels_alone(place: Path) -> None:
    use = execute(few(place), place / "runs" / "few")
    final = RunDir(place / "runs" / "few").final()
    assert final["use"] == use
    assert (
        final["labels_alone"]["says"].startswith("your labels alone: ") and ", odst: " in final["labels_alone"]["says"]
    )
    assert "by the 120 images of val_in: " in final["labels_alone"]["says"]
    execute(own(place), place / "runs" / "plain")
    assert "labels_alone" not in RunDir(place / "runs" / "plain").final()


def test_bases_are_shared_with_runs_beside_and_change_no_bit(place: Path) -> None:
    execute(few(place), place / "alone" / "few")
    execute(own(place, method={"name": "st"}), place / "beside" / "st")
    execute(few(place), place / "beside" / "few")
    assert log_of(place / "beside" / "few").count("the base of st is the same: taking it over") == 1
    assert artefacts(place / "alone" / "few") == artefacts(place / "beside" / "few")
    weight = RunDir(place / "beside" / "few").bases()[-1].rest_weight
    execute(own(place, method={"rest_weight": weight, "spare": 0.9}), place / "beside" / "fixed")
    assert "the base of few is the same: taking it over" in log_of(place / "beside" / "fixed")
    first = [RunDir(place / "beside" / name).note(0)["model_hash"] for name in ("few", "fixed")]
    assert first[0] == first[1]


class StopIn:
    """A listener that breaks off the stage of this name after some images."""

    def __init__(self, name: str, images: int):
        self.name, self.left = name, images

    def start(self, name, total, unit, done):
        def advance(n):
            self.left -= n if name == self.name else 0
            if self.left <= 0:
                raise Interrupted

        return advance

    def finish(self, name, completed):
        pass


def test_trials_that_are_broken_off_anywhere_are_gone_on_with_to_the_same_bits(place: Path, monkeypatch) -> None:
    monkeypatch.setattr("odst.few_labels.SLACK", 0.01)  # all weights are tried
    config = few(place)
    config = config.model_copy(update={"run": config.run.model_copy(update={"checkpoint_seconds": 0})})
    execute(config, place / "one" / "whole")
    broken = place / "two" / "broken"
    for name, images, there in (
        ("train labels-alone", 18 * 4, []),
        ("label pool by labels alone", 1, ["labels-alone"]),
        ("train weight-1", 18 * 3, ["labels-alone"]),
        ("train weight-0.03", 18 * 9, ["labels-alone", "weight-0.1", "weight-0.3", "weight-1"]),
        ("train round 1", 18, ["labels-alone", "weight-0.03", "weight-0.1", "weight-0.3", "weight-1"]),
    ):
        with pytest.raises(Interrupted), listening(StopIn(name, images)):
            execute(config, broken)
        whole = [file.parent.name for file in broken.glob("*-*/round.json") if "round-" not in file.parent.name]
        assert sorted(whole) == there, name
        if name.startswith("train") and images > 18:
            assert list((broken / "scratch").rglob("train-*.safetensors")), "nothing to go on from"
    execute(config, broken)
    assert artefacts(broken) == artefacts(place / "one" / "whole")


def test_a_damaged_trial_is_named_when_the_run_goes_on(place: Path) -> None:
    execute(few(place), place / "runs" / "few")
    weights = place / "runs" / "few" / "labels-alone" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"\0\0")
    with pytest.raises(UserError, match=r"labels-alone/model.safetensors: this file has changed"):
        execute(few(place), place / "runs" / "few")


def test_the_controls_of_a_config_with_auto_keep_their_zero(place: Path) -> None:
    assert few(place).recipe().rest_weight == "auto"
    for name in ("st", "st-ot", "supervised"):
        assert few(place, method={"name": name}).recipe().rest_weight == 0
    execute(few(place, method={"name": "st"}), place / "runs" / "st")
    run = RunDir(place / "runs" / "st")
    assert run.note("labels-alone")["model_hash"] == run.note(0)["model_hash"]  # it was trained once


def test_a_forecast_counts_what_is_tried_beside_the_rounds(place: Path) -> None:
    assert "beside      the labels alone, and up to 3 more weights of the rest" in "\n".join(
        forecast(few(place), place / "new").lines
    )
    assert "beside" not in "\n".join(forecast(own(place), place / "new").lines)


def test_the_demo_says_which_weight_the_digits_have_and_that_ones_own_are_chosen(tmp_path: Path) -> None:
    said = " ".join(
        odst("demo", "--methods", "supervised", "--pool", "200", "--out", tmp_path / "demo", "-q").out.split()
    )
    assert "The digits keep the paper's rest_weight = 1" in said and '`odst init` writes "auto"' in said


# bad input -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        (["rest_weight=automatic"], 'rest_weight is a number from 0 up, or "auto", got \'automatic\''),
        (["rest_weight=-1"], 'rest_weight is a number from 0 up, or "auto", got -1'),
        (["rest_weight=inf"], 'rest_weight is a number from 0 up, or "auto", got inf'),
        (["rest_weight=nan"], 'rest_weight is a number from 0 up, or "auto", got nan'),
        (["rest_weight=true"], 'rest_weight is a number from 0 up, or "auto", got True'),
        (["rest_weight=[1]"], 'rest_weight is a number from 0 up, or "auto", got [1]'),
        (["labelled_copies=99999999999999999999"], "labelled_copies is a whole number from 1 to 1,000,000,000,000, got"),
        (["spare=1"], "spare is a share of val_in between 0 and 1"),
        (["pick=random"], "method.pick: input should be 'top' or 'spread', got 'random'"),
        (["promise=1", "pick=spread"], "promise is a share of related images between 0 and 1, such as 0.9, got 1"),
        (["promise=90", "pick=spread"], "got 90. 90 % is promise = 0.9."),
        (["promise=-0.5", "pick=spread"], "promise is a share of related images between 0 and 1"),
        (["promise=0.9"], 'promise = 0.9. Set pick = "spread"'),
        (["promise=0.9", "alpha_out=0.98", "pick=spread"], "promise and alpha_out both set the out-threshold, got 0.9 and 0.98"),
    ],
)  # fmt: skip
def test_a_bad_weight_or_promise_is_one_line_and_nothing_is_written(changes, says, tmp_path: Path) -> None:
    words = [word for change in changes for word in ("--set", f"method.{change}")]
    assert says in fails("run", "digits", "--out", tmp_path / "run", "-q", *words)
    assert not (tmp_path / "run").exists()


def test_a_recipe_of_ones_own_is_checked_too() -> None:
    with pytest.raises(UserError, match="pick is"):
        Recipe(pick="best")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"labelled_copies is a whole number from 1 .* got 1\.5"):
        Recipe(labelled_copies=1.5)  # type: ignore[arg-type]
    for weight in (True, None, "0.3", [1]):
        with pytest.raises(UserError, match="rest_weight is a number from 0 up"):
            Recipe(rest_weight=weight)  # type: ignore[arg-type]
    assert Recipe(rest_weight=np.float32(0.5)).weight == 0.5  # type: ignore[arg-type]
    assert json.dumps(Recipe().rest_weight) == "1.0" and Recipe().pick == "top" and Recipe().promise is None
