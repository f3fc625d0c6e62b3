import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from odst.data.images import Pool
from odst.evaluation.choice import BETTER, TOO_FEW, UNCLEAR, WORSE, Choice, choose
from odst.evaluation.metrics import auroc, confidence_log_odds, error
from odst.evaluation.scoring import Scored, aware, best_round, harm, mean_and_error, selection_metrics
from odst.method.selection import Selection
from odst.seeds import stream


def scored(wrong, auroc, first=0, n=600):
    """So many images, `wrong` of them wrong from the `first` on."""
    logits = np.tile([1.0, 0.0], (n, 1))
    logits[first : first + wrong] = [0.0, 1.0]
    metrics = {"round": 0, "val_od_auroc": auroc, "val_error": wrong / n}
    return Scored(metrics, {"val_in": logits, "val_out": logits})  # so many that a point of OD-AUROC is no chance


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
        (12, 0, 100, False, TOO_FEW),  # worse by a standard error, which is no verdict on so few
        (11, 40, 100, False, TOO_FEW),
        (30, 0, 100, True, WORSE),
        (1, 0, 100, False, BETTER),
    ],
)
def test_labels_alone_are_used_where_the_best_round_clearly_errs_more(wrong, first, n, alone, verdict):
    before = scored(n // 10, 0.7, n=n)
    choice = choose([scored(wrong, 0.9, first=first, n=n)], before, np.zeros(n, int))
    assert (choice.round, choice.alone, choice.verdict) == (0, alone, verdict)


def sure(n=100, wrong=10, fallen=0.0):
    """Right ones the surer the later, and wrong ones; `fallen` brings unsure answers, none of them another one."""
    logits = np.stack([np.linspace(2, 6, n), np.zeros(n)], axis=1)
    logits[:wrong] *= -1
    logits[wrong:, 0] *= np.linspace(1, 1 - fallen, n - wrong)
    return Scored({"round": 0, "val_od_auroc": 0.9, "val_error": wrong / n}, {"val_in": logits})


def test_a_round_that_harms_is_not_the_one_to_use():
    """With few images its errors may be as few as before, and its likelihood gone: one message, not two."""
    y = np.zeros(100, int)
    base, student = sure(), sure(fallen=0.99)
    student.metrics["round"] = 1
    assert "the NLL on val_in rose" in harm(base, student, y)
    assert choose([base, student], base, y).round == choose([base, student], None, y).round == 0
    later, last = scored(30, 0.92), scored(29, 0.905)  # the last is less aware than its teacher, not than the base
    later.metrics["round"], last.metrics["round"] = 1, 2
    assert "val_od_auroc fell by 1.50" in harm(later, last, Y)
    assert choose([scored(60, 0.9), later, last], scored(60, 0.7), Y).round == 1


def test_on_few_images_labels_alone_are_used_where_the_round_is_less_likely_than_auto_allows():
    y = np.zeros(100, int)
    assert choose([sure(fallen=0.99)], sure(), y) == Choice(0, alone=True, verdict=TOO_FEW)
    assert choose([sure(fallen=0.1)], sure(), y) == Choice(0, alone=False, verdict=TOO_FEW)


def detecting(inside, outside, y, t=0):
    """A round with these logits of val_in and val_out."""
    detected = auroc(confidence_log_odds(inside), confidence_log_odds(outside))
    return Scored(
        {"round": t, "temperature": 1.0, "val_od_auroc": detected, "val_error": error(inside, y)},
        {"val_in": inside, "val_out": outside},
    )


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**16), st.sampled_from([5, 16, 80, 300, 600]), st.booleans())
def test_what_is_to_be_used_never_contradicts_what_is_said_of_it(seed, n, holds):
    rng = stream(seed, "choice")
    y = rng.integers(3, size=n)
    made = []
    for t, sharp in enumerate(rng.uniform(0.5, 4, size=5)):
        logits = rng.normal(size=(n, 3)) + sharp * np.eye(3)[y]
        made.append(detecting(logits, rng.normal(size=(50, 3)), y, t))
    *rounds, alone = made
    choice = choose(rounds, alone, y, holds=holds)
    assert choice.round == 0 or harm(rounds[choice.round - 1], rounds[choice.round], y) is None
    assert not (choice.verdict == WORSE and not choice.alone) and not (choice.verdict == BETTER and choice.alone)


def test_one_more_wrong_image_is_not_more_than_a_standard_error_of_any_number():
    for n in range(2, 700):
        more, spread = mean_and_error(np.eye(1, n)[0])
        assert more <= spread, n  # they are equal, but for rounding
    assert harm(scored(60, 0.9), scored(61, 0.9), Y) is None


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


def sinking(n_in, n_out, sunk=0, risen=0):
    """All of val_in above all of val_out, but for the images that have sunk or risen."""
    inside, outside = np.tile([3.0, 0.0], (n_in, 1)), np.tile([1.0, 0.0], (n_out, 1))
    inside[:sunk, 0], outside[:risen, 0] = 0.5, 5.0
    return detecting(inside, outside, np.zeros(n_in, int))


@pytest.mark.parametrize("n_out", [2, 40, 300, 2450])
def test_on_few_images_a_single_one_that_sinks_is_no_harm(n_out):
    """It costs 1/n of OD-AUROC, which is its standard error too, however the two are rounded."""
    for n in range(2, 100):
        before, after = sinking(n, n_out), sinking(n, n_out, sunk=1)
        assert after.metrics["val_od_auroc"] < 0.99
        assert aware(before, after) and aware(after, before), n


@pytest.mark.parametrize(
    ("n_in", "n_out", "sunk", "risen", "kept"),
    [
        (80, 300, 3, 0, False),  # 3.8 points, with a standard error of 2.1
        (600, 600, 8, 0, False),
        (600, 50, 0, 1, True),  # as few of val_out: 2 points, and 2 of standard error
        (600, 600, 0, 8, False),
    ],
)
def test_a_clear_loss_of_od_auroc_is_harm_on_few_images_too(n_in, n_out, sunk, risen, kept):
    assert aware(sinking(n_in, n_out), sinking(n_in, n_out, sunk, risen)) == kept


def rounds(*pairs):
    every = {"val_in": np.zeros((600, 2)), "val_out": np.zeros((600, 2))}  # too many for chance to be an excuse
    return [Scored({"round": t, "val_error": e, "val_od_auroc": a}, every) for t, (e, a) in enumerate(pairs)]


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
