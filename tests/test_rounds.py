import numpy as np
import pytest

from odst.data.images import Pool
from odst.evaluation.scoring import Scored, best_round, harm, selection_metrics
from odst.method.selection import Selection


def scored(wrong, auroc, first=0):
    """A hundred images, `wrong` of them wrong from the `first` on."""
    logits = np.tile([1.0, 0.0], (100, 1))
    logits[first : first + wrong] = [0.0, 1.0]
    return Scored({"val_od_auroc": auroc}, {"val_in": logits})


Y = np.zeros(100, int)


def test_a_student_as_good_as_its_teacher_does_no_harm():
    assert harm(scored(10, 0.9), scored(10, 0.9), Y) is None
    assert harm(scored(10, 0.9), scored(5, 0.895), Y) is None


def test_harm_is_an_error_above_the_teachers_by_more_than_a_paired_standard_error():
    # three more wrong, but on other images: the paired standard error is 4.4 points; on the same images it is 1.7
    assert harm(scored(10, 0.9), scored(13, 0.9, first=7), Y) is None
    assert "val_error rose by 3.00 points" in harm(scored(10, 0.9), scored(13, 0.9), Y)


def test_harm_is_also_a_lost_point_of_od_auroc():
    assert "val_od_auroc fell by 2.00 points" in harm(scored(10, 0.9), scored(5, 0.88), Y)
    assert harm(scored(10, None), scored(5, None), Y) is None


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
