import numpy as np
import pytest

from odst.data.images import Pool
from odst.evaluation.choice import BETTER, TOO_FEW, UNCLEAR, WORSE, Choice, choose
from odst.evaluation.scoring import Scored, best_round, harm, selection_metrics
from odst.method.selection import Selection


def scored(wrong, auroc, first=0, n=600):
    """So many images, `wrong` of them wrong from the `first` on."""
    logits = np.tile([1.0, 0.0], (n, 1))
    logits[first : first + wrong] = [0.0, 1.0]
    metrics = {"round": 0, "val_od_auroc": auroc, "val_error": wrong / n}
    return Scored(metrics, {"val_in": logits})


Y = np.zeros(600, int)


def test_a_student_as_good_as_its_teacher_does_no_harm():
    assert harm(scored(60, 0.9), scored(60, 0.9), Y) is None
    assert harm(scored(60, 0.9), scored(30, 0.895), Y) is None


def test_harm_is_an_error_above_the_teachers_by_more_than_a_paired_standard_error():
    # six more wrong, but on other images: the paired standard error is 1.9 points; on the same images it is 0.4
    assert harm(scored(60, 0.9), scored(66, 0.9, first=300), Y) is None
    assert "val_error rose by 1.00 points" in harm(scored(60, 0.9), scored(66, 0.9), Y)


def test_with_few_images_harm_is_a_likelihood_that_has_fallen():
    y = np.zeros(100, int)
    sure = np.stack([np.linspace(2, 6, 100), np.zeros(100)], axis=1)
    sure[:10] *= -1
    teacher = Scored({"val_od_auroc": 0.9}, {"val_in": sure})
    assert harm(teacher, Scored({"val_od_auroc": 0.9}, {"val_in": 2 * sure}), y) is None  # one temperature mends that
    mixed = sure.copy()
    mixed[10:, 0] = np.linspace(6, 0.1, 90)  # the same answers, and unsure of every other one
    said = harm(
        teacher, Scored({"val_od_auroc": 0.9}, {"val_in": mixed - 3 * (np.arange(100) < 10)[:, None] * [1, 0]}), y
    )
    assert "the NLL on val_in rose by" in said
    # 3 of 100 more are wrong, hardly surer than before: on so few images that is no verdict
    assert harm(scored(10, 0.9, n=100), scored(11, 0.9, first=7, n=100), y) is None


@pytest.mark.parametrize(
    ("wrong", "first", "n", "alone", "verdict"),
    [
        (60, 0, 600, False, UNCLEAR),  # the same
        (66, 300, 600, False, UNCLEAR),  # worse by less than a standard error
        (66, 0, 600, True, WORSE),
        (50, 0, 600, False, BETTER),
        (12, 0, 100, True, TOO_FEW),  # worse by a standard error, which is no verdict on so few
        (11, 40, 100, False, TOO_FEW),
        (30, 0, 100, True, WORSE),
        (1, 0, 100, False, BETTER),
    ],
)
def test_labels_alone_are_used_where_the_best_round_is_worse_by_a_standard_error(wrong, first, n, alone, verdict):
    before = scored(n // 10, 0.7, n=n)
    choice = choose([scored(wrong, 0.9, first=first, n=n)], before, np.zeros(n, int))
    assert (choice.round, choice.alone, choice.verdict) == (0, alone, verdict)


def test_beside_labels_alone_the_latest_round_that_is_as_good_as_the_best_is_taken():
    first, same, unaware, worse = scored(60, 0.9), scored(63, 0.9, first=300), scored(60, 0.85), scored(80, 0.9)
    for t, one in enumerate((first, same, unaware, worse)):
        one.metrics["round"] = t
    assert choose([first, same, unaware, worse], first, Y).round == 1  # 3 more of 600, on other images
    assert choose([first, same], None, Y).round == 0


def test_where_no_weight_holds_a_round_must_be_better_to_be_used():
    same, better = scored(60, 0.9), scored(50, 0.9)
    assert choose([same], same, Y, holds=False).alone and not choose([better], same, Y, holds=False).alone
    assert choose([same], None, Y, holds=False) == Choice(0, alone=False)


def test_harm_is_also_a_lost_point_of_od_auroc():
    assert "val_od_auroc fell by 2.00 points" in harm(scored(60, 0.9), scored(30, 0.88), Y)
    assert harm(scored(60, None), scored(30, None), Y) is None


def rounds(*pairs):
    return [{"round": t, "val_error": e, "val_od_auroc": a} for t, (e, a) in enumerate(pairs)]


@pytest.mark.parametrize(
    ("history", "best"),
    [
        (rounds((0.2, 0.9), (0.1, 0.9), (0.15, 0.95)), 1),
        (rounds((0.2, 0.9), (0.1, 0.8), (0.15, 0.9)), 2),  # the second bought its error with awareness
        (rounds((0.2, 0.9), (0.2, 0.9)), 1),  # of equals the later
        (rounds((0.2, None), (0.1, None)), 1),
        (rounds((0.1, 0.9), (0.2, 0.99)), 0),
    ],
)
def test_the_best_round_has_the_lowest_error_among_those_that_stay_aware(history, best):
    assert best_round(history) == best


def test_related_and_correct_count_unique_images():
    pool = Pool(np.zeros((6, 2), np.float32), truth=np.array([0, 1, -1, 0, -1, 1]))
    I = Selection(
        ids=np.array([0, 1, 2, 3]), classes=np.array([0, 0, 0, 1]), log_odds=np.zeros(4), copies=np.array([9, 1, 1, 1]),
        above=np.array([3, 1]), stop=("", ""), k=12,
    )  # fmt: skip
    metrics = selection_metrics(I, pool, ("a", "b"))
    assert metrics == {"selected": 4, "above": {"a": 3, "b": 1}, "repeats": 8, "related": 0.75, "correct": 0.25}
    assert selection_metrics(None, pool, ("a", "b"))["selected"] is None
