import logging
from dataclasses import replace

import numpy as np
import pytest

from blobs import SCHEDULES, blob_world, make_mlp
from odst import ODST, ST, Data, Labelled, self_train
from odst.errors import UserError
from odst.evaluation.scoring import score
from odst.method.labelling import model_hash
from odst.recipe import GIVEN, SUPERVISED
from odst.run.selection_file import read_selection

RECIPE = replace(ODST, alpha=0.95, ratio=(5, 10))


def run(recipe, data, **options):
    return list(self_train(recipe, data, make_mlp, SCHEDULES, **options))


def test_odst_selects_task_images_and_st_does_not():
    data = blob_world()
    ours = [score(r, data).metrics for r in run(RECIPE, data)]
    plain = [score(r, data).metrics for r in run(replace(ST, alpha=0.95, ratio=(5, 10)), data)]
    assert ours[-1]["related"] > 0.95
    assert plain[-1]["related"] < 0.7
    assert ours[-1]["od_auroc"] > plain[-1]["od_auroc"] + 0.05


def test_zero_rounds_equal_the_base():
    data = blob_world()
    base = run(replace(RECIPE, ratio=()), data)
    assert len(base) == 1
    assert model_hash(base[0].model) == model_hash(run(RECIPE, data)[0].model)


def test_every_round_has_its_own_temperature_and_thresholds():
    rounds = run(RECIPE, blob_world())
    assert [r.t for r in rounds] == [0, 1, 2]
    assert rounds[0].selection is None
    assert len({r.temperature for r in rounds}) == 3
    assert len({tuple(r.thresholds.tau) for r in rounds}) == 3


def test_going_on_from_a_round_equals_never_having_stopped():
    data = blob_world()
    whole = run(RECIPE, data)
    rest = run(RECIPE, data, start=replace(whole[1], selection=None))
    assert [r.t for r in rest] == [2]
    assert model_hash(rest[0].model) == model_hash(whole[2].model)
    assert np.array_equal(rest[0].selection.ids, whole[2].selection.ids)


def test_a_warm_start_begins_with_the_teacher_and_leaves_it_alone():
    data = blob_world()
    rounds = self_train(replace(RECIPE, warm_start=True), data, make_mlp, SCHEDULES)
    base = next(rounds)
    before = model_hash(base.model)
    student = next(rounds)
    assert model_hash(base.model) == before != model_hash(student.model)
    assert model_hash(student.model) != model_hash(run(RECIPE, data)[1].model)


def test_nothing_above_the_thresholds_ends_the_run_with_the_teacher(caplog):
    data = blob_world()
    nobody = replace(data, val_out=data.val_in.x)  # the out-distribution is as confident as the classes
    with caplog.at_level(logging.WARNING, "odst"):
        rounds = run(
            replace(RECIPE, alpha_in=0.999, alpha_out=0.9999),
            replace(nobody, pool=replace(data.pool, x=data.pool.x[:30] * 0)),
        )
    assert [r.t for r in rounds] == [0]
    assert "no pool image lies above" in caplog.text


def test_a_class_without_a_threshold_is_closed_and_the_run_goes_on(caplog):
    data = blob_world()
    y = data.val_in.y.copy()
    y[y == 2] = 1  # class c never right on val_in
    with caplog.at_level(logging.WARNING, "odst"):
        rounds = run(replace(RECIPE, alpha=0.9), replace(data, val_in=Labelled(data.val_in.x, y)))
    assert len(rounds) == 3
    assert "closed, no threshold reaches the precision on val_in: c" in caplog.text
    assert (rounds[1].selection.classes != 2).all()


def test_excluded_images_leave_the_pool():
    data = blob_world()
    gone = np.sort(run(RECIPE, data)[1].selection.ids)
    rounds = run(RECIPE, replace(data, pool=replace(data.pool, excluded=gone)))
    assert all(len(np.intersect1d(r.selection.ids, gone)) == 0 for r in rounds[1:])


def test_supervised_needs_no_pool():
    data = blob_world()
    bare = Data(data.labelled, None, data.val_in, classes=data.classes)
    assert len(run(SUPERVISED, bare)) == 1


def test_a_given_selection_is_found_again_in_another_copy_of_the_pool(tmp_path):
    from odst.run.selection_file import write_selection

    data = blob_world()
    I = run(RECIPE, data)[1].selection
    write_selection(tmp_path / "selection.parquet", I, data, None)
    order = np.random.default_rng(0).permutation(len(data.pool))
    other = replace(data, pool=replace(data.pool, x=data.pool.x[order], truth=data.pool.truth[order]))
    again = read_selection(tmp_path / "selection.parquet", other)
    assert np.array_equal(other.pool.x[again.ids], data.pool.x[I.ids])
    assert np.array_equal(again.copies, I.copies)
    rounds = run(GIVEN, other, given=again)
    assert [r.t for r in rounds] == [0, 1]
    assert rounds[1].selection.hard


def bad(**changes):
    data = blob_world()
    return lambda: list(
        self_train(RECIPE, replace(data, **{k: v(data) for k, v in changes.items()}), make_mlp, SCHEDULES)
    )


def with_labels(labelled, labels):
    return Labelled(labelled.x[: len(labels)], np.array(labels))


def with_nan(x):
    x = x.copy()
    x[7, 2] = np.nan
    return x


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (bad(labelled=lambda d: with_labels(d.labelled, [0, 1, 0, 1])), "no image of class 'c'"),
        (bad(labelled=lambda d: with_labels(d.labelled, [0, 0, 0]), classes=lambda d: ("a",), val_in=lambda d: with_labels(d.val_in, [0])), "at least two"),
        (bad(labelled=lambda d: with_labels(d.labelled, [0, 1])), "2 images for 3 classes"),
        (bad(pool=lambda d: replace(d.pool, x=with_nan(d.pool.x))), "pool: row 7 holds NaN"),
        (bad(labelled=lambda d: Labelled(with_nan(d.labelled.x), d.labelled.y)), "labelled: row 7 holds NaN"),
        (bad(pool=lambda d: replace(d.pool, x=d.pool.x[:, :5])), r"pool: its rows have shape \(5,\)"),
        (bad(val_out=lambda d: None), "val_out: this method sets its out-threshold"),
        (bad(val_in=lambda d: Labelled(d.val_in.x[:4], np.array([0, 1, 2, 3]))), "val_in: label 3 is none of the 3 classes"),
        (bad(pool=lambda d: None), "pool: there is no image in it"),
        (lambda: replace(ODST, alpha=99.8), r"alpha is a fraction between 0 and 1, got 99.8. The paper's 99.8 % is alpha = 0.998"),
        (lambda: replace(ODST, k=(0, 1, 2)), "k is from 1 to"),
        (lambda: replace(ODST, ratio=(0.01,)).per_class(0, 12, 3), "rounds to 0"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_with_the_way_out(broken, says):
    with pytest.raises(UserError, match=says) as error:
        broken()
    assert "\n" not in str(error.value)
