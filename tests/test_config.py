from dataclasses import fields

import pytest

from odst import Phase, Recipe, Schedule
from odst.errors import UserError
from odst.run.config import differing_keys, dump_config, parse_change, parse_config, presets, read_config


def digits(**changes):
    return read_config("digits", {key.replace("__", "."): value for key, value in changes.items()})


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"method.alpa": 1}, "unknown key method.alpa. Did you mean 'alpha'?"),
        ({"metod.alpha": 1}, "unknown key metod. Did you mean 'method'?"),
        ({"training.phases": [{"stepz": 1, "lr": 0.1}]}, "unknown key training.phases.0.stepz. Did you mean 'steps'?"),
        ({"method.alpha": 99.8}, "The paper's 99.8 % is alpha = 0.998"),
        ({"method.name": "odts"}, "Did you mean 'odst'?"),
        ({"run.seed": "x"}, "run.seed"),
        ({"data.val_in": [[1]]}, "data.val_in: input should be"),  # no key of it is called str
        ({"method.ratio": ["x"]}, "method.ratio.0: input should be"),
        ({"training.phases": []}, "at least one phase"),
        ({"training.batch": 0}, "training.batch is from 1 to"),
    ],
)
def test_a_fault_is_one_line_with_the_way_out(change, says):
    with pytest.raises(UserError) as error:
        read_config("digits", change)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_an_unknown_preset_gets_the_nearest_name():
    with pytest.raises(UserError, match=r"Did you mean 'digits'\?"):
        read_config("digts", {})


def test_every_preset_is_valid():
    assert "digits" in presets()
    for name in presets():
        read_config(name, {})


def test_a_dumped_config_reads_back_as_itself(tmp_path):
    config = digits(method__name="st-ot", training__students=[{"phases": [{"steps": 3, "lr": 0.2}]}])
    (tmp_path / "config.toml").write_text(dump_config(config))
    assert read_config(str(tmp_path), {}) == config


def test_methods_take_the_rounds_of_the_full_run_in_their_own_way():
    def ratio(name):
        return digits(method__name=name, method__ratio=[2, 4, 6]).recipe().ratio

    assert ratio("odst") == ratio("st") == (2, 4, 6)
    assert ratio("one-shot") == (6,)
    assert ratio("supervised") == ratio("oe") == ()
    assert digits(method__name="supervised", method__k=[1, 2, 3]).recipe().rounds == 0
    assert digits(method__name="one-shot", method__k=[1, 2, 3]).recipe().k == (3,)


def test_students_change_what_they_name_and_the_last_one_serves_later_rounds():
    config = digits(training__students=[{"batch": 7}, {"weight_decay": 0.0}])
    base, first, second = config.schedules()
    assert (base.batch, first.batch, second.batch) == (64, 7, 64)
    assert (first.weight_decay, second.weight_decay) == (base.weight_decay, 0.0)


def test_students_may_change_every_key_of_a_schedule():
    change = {"accumulate": 2, "ema": 0.5, "precision": "float32", "compile": True, "momentum": 0.5, "batch": 8}
    change |= {"weight_decay": 0.5, "backbone_lr": 0.1, "phases": [{"steps": 3, "lr": 0.2}]}
    assert set(change) == {field.name for field in fields(Schedule)}
    _, student = digits(training__students=[change]).schedules()
    assert student == Schedule(**change | {"phases": (Phase(steps=3, lr=0.2),)})


def test_a_config_takes_every_field_of_a_recipe_but_what_only_a_name_can_say():
    section = digits().method.model_dump()
    assert set(section) - {"name"} == {field.name for field in fields(Recipe)} - {"closed_world", "given_selection"}


def test_a_students_fault_is_told_as_the_bases_is():
    for change, says in (
        ({"bach": 1}, "digits: unknown key training.students.0.bach. Did you mean 'batch'? Valid here: batch, "),
        ({"phases": [{"lr": 1, "stepz": 1}]}, "unknown key training.students.0.phases.0.stepz. Did you mean 'steps'?"),
        ({"phases": [{"lr": 1}]}, "training: a phase is either `epochs` or `steps` long, got epochs=None steps=None."),
        ({"accumulate": 999}, "training.accumulate is between 1 and the batch (64), got 999."),
    ):
        with pytest.raises(UserError) as error:
            digits(training__students=[change])
        assert says in str(error.value)


def test_the_keys_that_differ_are_named_and_saving_more_often_is_no_difference():
    a, b = digits(), digits(method__alpha=0.9, run__seed=3, run__checkpoint_seconds=1)
    assert differing_keys(a, b) == ["method.alpha", "run.seed"]


def test_a_change_on_the_command_line_is_toml_or_plain_text():
    assert parse_change("method.ratio=[1, 2]") == ("method.ratio", [1, 2])
    assert parse_change("model.name=tiny") == ("model.name", "tiny")
    with pytest.raises(UserError, match=r"section\.key=value"):
        parse_change("alpha")


def test_a_missing_section_is_named():
    with pytest.raises(UserError, match="the key training is missing"):
        parse_config({"data": {"world": "digits"}}, "x.toml")
