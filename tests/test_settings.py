"""What `odst init` computes from the sizes of the sets, and says beside it."""

import tomllib
from dataclasses import replace

import pytest

from odst.few_labels import alpha_in, alpha_out, base_steps, student_steps
from odst.project.settings import Sizes, method, training
from odst.run.config import parse_config

SMALL = Sizes(n=100, K=10, m=15_000, n_in=300, n_out=2500, vectors=True)


def written(sizes: Sizes) -> dict:
    values = tomllib.loads(f'[method]\nname = "odst"\n{method(sizes)}\n[training]\nbatch = 64\n{training(sizes)}')
    parse_config({"data": {"world": "digits"}, "model": {"name": "tiny"}, **values}, "test")  # it is a config
    return values


@pytest.mark.parametrize(
    ("n", "K", "m", "n_out", "alpha"),
    [
        (100, 10, 15_000, 2500, 0.99867),  # twice ten labelled images a class of 15,000
        (200, 10, 18_000, 2500, 0.99778),  # 40
        (4000, 10, 42_000, 2500, 0.99881),  # at most 50
        (400, 10, 30_000, 100, 0.99),  # a hundred images of val_out cannot say more
        (400, 10, 80_000_000, 50_000, 0.99998),
        (20, 4, 12, 3, 0.5),
    ],
)
def test_alpha_out_lets_as_many_unrelated_images_pass_as_the_classes_can_bear(n, K, m, n_out, alpha):
    assert alpha_out(n, K, m, n_out) == alpha


def test_alpha_in_leaves_room_for_one_wrong_image_where_val_in_is_small():
    assert alpha_in(2000, 10) == alpha_in(100, 10) == 0.9
    assert alpha_in(80, 10) == 0.875
    assert alpha_in(10, 10) == 0.5


def test_trainings_on_vectors_follow_the_number_of_labels():
    assert [base_steps(n, 64) for n in (100, 1200, 4000, 50_000)] == [300, 300, 1000, 2000]
    assert student_steps(400, 64, 5, 10**6) == 600  # 8 · (5 + 5) · 400 / 64 are fewer
    assert student_steps(1000, 64, 5, 10**6) == 1250
    assert student_steps(1000, 64, 5, 1000) == 750  # no more than the pool has
    assert student_steps(4000, 64, 15, 10**6) == 2000
    assert [one["phases"][0]["steps"] for one in written(SMALL)["training"]["students"]] == [600, 600, 600]


def test_a_training_on_pixels_says_how_many_passes_it_is():
    assert "# 300 steps are 300 passes over the 64 labelled images" in training(replace(SMALL, n=64, vectors=False))
    assert "# 3000 steps are 4 passes over the 50,000 labelled" in training(replace(SMALL, n=50_000, vectors=False))


def test_the_arithmetic_stands_beside_the_numbers():
    text, values = method(SMALL), written(SMALL)["method"]
    assert values["rest_weight"] == "auto" and values["spare"] == 0.9 and values["max_copies"] == 1
    assert (values["alpha_in"], values["alpha_out"]) == (0.9, 0.99867)
    assert "300 images, 30 a class" in text and "29 above it without" in text
    assert "(1 - alpha_out)·15,000 = 20 unrelated images" in text and "k = 5·100/10 = 50" in text
    assert "A larger val_out makes the threshold surer" in text and "one in ten may be wrong" in text
    assert "1 - max(min(2·100/10, 50)/15,000, 1/2,500)" in text
    few = method(Sizes(n=400, K=10, m=30_000, n_in=80, n_out=100, vectors=False))
    assert (
        "100 images cannot say less; 600 would bring it down to 50." in few
        and "max_copies = 3" in few
        and "spare = 0.5" in few
    )
    assert (
        "alpha_in = 0.875" in few
        and "one may be wrong, 1 - 10/80 (at least 0.5); with 100 images it would be 0.9" in few
    )
