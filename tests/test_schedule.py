import math

import pytest

from odst.errors import UserError
from odst.training.schedule import Phase, Schedule


def resnet50():
    rates = ((100, 0.1), (50, 0.01), (50, 0.001), (50, 0.0001))
    return Schedule(phases=tuple(Phase(epochs=e, lr=lr) for e, lr in rates), batch=128)


def test_the_resnet_schedule_falls_by_ten_at_100_150_and_200():
    plan = resnet50().plan(50_000)
    epoch = 50_000 / 128
    assert plan.steps == pytest.approx(250 * epoch, abs=4)
    for e, lr in ((0, 0.1), (99, 0.1), (101, 0.01), (149, 0.01), (151, 0.001), (201, 0.0001), (249, 0.0001)):
        assert plan.at(int(e * epoch))[1] == pytest.approx(lr)


def test_a_schedule_in_epochs_is_checked_at_each_epochs_end_of_the_last_fifth():
    plan = resnet50().plan(50_000)
    checks = plan.checks()
    assert len(checks) == 50
    assert checks[-1] == plan.steps
    assert checks[0] == pytest.approx(201 * 50_000 / 128, abs=2)


@pytest.mark.parametrize(("examples", "batch", "epochs"), [(22, 10, (100,)), (50, 3, (30, 25)), (36, 3, (0.1,) * 10)])
def test_a_schedule_in_epochs_takes_no_step_more_than_its_images(examples, batch, epochs):
    plan = Schedule(phases=tuple(Phase(epochs=e, lr=0.1) for e in epochs), batch=batch).plan(examples)
    images = round(sum(epochs)) * examples
    assert plan.steps == -(-images // batch)
    assert plan.checks()[-1] == plan.steps


def test_a_schedule_in_steps_is_checked_at_five_even_points_of_the_last_fifth():
    plan = Schedule(phases=(Phase(steps=1000, lr=0.1, shape="cosine"),)).plan(37)
    assert plan.checks() == [840, 880, 920, 960, 1000]


def test_a_student_that_restarts_is_judged_only_after_the_restart():
    phases = (Phase(epochs=50, lr=0.05, shape="cosine"), Phase(epochs=5, lr=0.01, shape="cosine"))
    plan = Schedule(phases=phases, batch=10).plan(100)
    assert plan.checks() == [510, 520, 530, 540, 550]


def test_a_cosine_goes_from_lr_to_end_and_a_warm_restart_begins_anew():
    phases = (Phase(steps=100, lr=0.05, shape="cosine"), Phase(steps=10, lr=0.01, end=0.002, shape="cosine"))
    plan = Schedule(phases=phases).plan(5)
    assert plan.at(0)[1] == 0.05
    assert plan.at(50)[1] == pytest.approx(0.025)
    assert plan.at(99)[1] == pytest.approx(0.05 * (1 + math.cos(math.pi * 0.99)) / 2)
    assert plan.at(100)[1] == 0.01
    assert plan.at(105)[1] == pytest.approx(0.006)


def test_a_line_rises_too():
    warm_up = Phase(steps=10, lr=0.0, end=0.1, shape="linear")
    assert warm_up.rate(0.5) == pytest.approx(0.05)


@pytest.mark.parametrize("length", [{}, {"epochs": 1, "steps": 1}, {"steps": 0}])
def test_a_phase_has_exactly_one_length(length):
    with pytest.raises(UserError, match="either `epochs` or `steps`"):
        Phase(lr=0.1, **length)
