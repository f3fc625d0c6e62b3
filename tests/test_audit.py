"""The certificate's arithmetic: exact, in the order of the sets, and never wrong more often than delta."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, hypergeom

from odst.errors import UserError
from odst.evaluation.audit import (
    audit_class,
    check_promise,
    draw,
    error_free_draws,
    fewest_bad,
    lower_bound,
    most_wrong,
    nested_sizes,
    sequence,
    tail,
)  # fmt: skip
from odst.seeds import stream


@pytest.mark.parametrize(
    ("classes", "draws"), [(1, (59, 149, 1497)), (5, (90, 228, 2301)), (10, (104, 263, 2647))]
)  # fmt: skip
def test_the_plan_asks_for_the_published_numbers_of_error_free_draws(classes: int, draws: tuple[int, ...]) -> None:
    found = tuple(error_free_draws(target, 0.05 / classes) for target in (0.95, 0.98, 0.998))
    assert found == draws
    assert error_free_draws(0.95, 0.05 / classes, 10**7) == draws[0]  # the binomial is the limit of large sets


@pytest.mark.parametrize("size", [1, 7, 40, 90, 512, 5_000])
def test_a_small_set_needs_fewer_draws_and_one_fewer_is_not_enough(size: int) -> None:
    n = error_free_draws(0.95, 0.01, size)
    assert n <= min(size, 90)
    bad = fewest_bad(size, 0.95)
    assert hypergeom.cdf(0, size, bad, n) <= 0.01 < hypergeom.cdf(0, size, bad, n - 1)


def test_the_tail_counts_the_draws_one_by_one() -> None:
    drawn = list(combinations([True] * 3 + [False] * 6, 4))
    for wrong in range(5):
        assert tail(9, 3, 4, wrong) == pytest.approx(np.mean([sum(one) <= wrong for one in drawn]))


@given(st.data())
@settings(max_examples=200, deadline=None)
def test_the_tail_is_scipys(data: st.DataObject) -> None:
    size = data.draw(st.integers(1, 3000))
    bad, draws = data.draw(st.integers(0, size)), data.draw(st.integers(0, min(size, 200)))
    wrong = data.draw(st.integers(0, draws))
    assert tail(size, bad, draws, wrong) == pytest.approx(hypergeom.cdf(wrong, size, bad, draws), rel=1e-6, abs=1e-12)


def test_the_tail_of_a_huge_set_is_the_binomials() -> None:
    for wrong in range(8):
        assert tail(10**8, 5 * 10**6, 150, wrong) == pytest.approx(binom.cdf(wrong, 150, 0.05), rel=1e-4)


def test_five_per_cent_of_a_hundred_may_be_wrong_and_not_six() -> None:
    """In floating point (1 - 0.9) times 10 is less than 1, and (1 - 0.95) times 100 more than 5."""
    assert [fewest_bad(100, 0.95), fewest_bad(10, 0.9), fewest_bad(1000, 0.998), fewest_bad(3, 0.95)] == [6, 2, 3, 1]


def test_a_set_that_was_seen_whole_is_certified_by_counting() -> None:
    ranks = np.arange(100)
    for wrong, certified in ((5, 100), (6, 0)):
        assert audit_class(ranks, ranks < wrong, 100, 0.95, 1e-9).certified == certified
    assert lower_bound(100, 100, 5, 1e-9) == 0.95


@given(st.integers(1, 2000), st.integers(0, 150), st.integers(0, 30), st.sampled_from([0.05, 0.01, 0.005]))
@settings(max_examples=200, deadline=None)
def test_the_bound_reaches_the_target_exactly_when_the_set_is_certified(size, draws, wrong, delta) -> None:
    draws = min(size, draws)
    wrong = min(draws, wrong)
    for target in (0.9, 0.95, 0.99):
        certified = wrong <= most_wrong(size, draws, target, delta)
        assert certified == (lower_bound(size, draws, wrong, delta) >= target)


def test_the_nested_sets_go_from_strict_to_wide_and_end_with_all() -> None:
    assert nested_sizes(1300) == [100, 200, 500, 1000, 1300]
    assert nested_sizes(100) == [100] and nested_sizes(99) == [99] and nested_sizes(0) == []


def test_the_sequence_begins_with_the_smallest_set_that_holds_enough_draws() -> None:
    ranks = draw(1300, 150, seed=0, t=1, c=0)
    sizes = [size for size, _, _ in sequence(ranks, 1300, 0.95, 0.05)]
    for size in nested_sizes(1300):
        inside = int((ranks < size).sum())
        assert (size in sizes) == (inside >= error_free_draws(0.95, 0.05, size))
    assert sizes[-1] == 1300 and 100 not in sizes


def test_the_controller_of_mapie_rejects_the_same_sets() -> None:
    mapie = pytest.importorskip("mapie.risk_control")
    rng = stream(0, "mapie")
    certified = []
    for _ in range(300):
        size, delta = int(rng.integers(60, 6000)), float(rng.choice([0.05, 0.01]))
        ranks = rng.permutation(size)[:150]
        wrong = rng.random(len(ranks)) < rng.choice([0.002, 0.01, 0.03, 0.2]) * (1 + ranks / size)
        sets = [inside for inside, _, _ in sequence(ranks, size, 0.95, delta)]
        p = [
            hypergeom.cdf(wrong[ranks < inside].sum(), inside, fewest_bad(inside, 0.95), (ranks < inside).sum())
            for inside in sets
        ]
        rejected = mapie.control_fwer(np.array(p), delta, "fixed_sequence") if sets else []
        theirs = max((sets[i] for i in rejected), default=0)
        assert audit_class(ranks, wrong, size, 0.95, delta).certified == theirs
        certified.append(theirs / size)
    assert 0 in certified and 1 in certified and any(0 < share < 1 for share in certified)


def false_certificates(bad: np.ndarray, draws: int, target: float, delta: float, times: int) -> int:
    false = 0
    for i in range(times):
        ranks = draw(len(bad), draws, seed=i, t=1, c=0)
        certified = audit_class(ranks, bad[ranks], len(bad), target, delta).certified
        false += certified > 0 and bad[:certified].sum() >= fewest_bad(certified, target)
    return false


def test_a_wrong_set_is_certified_in_at_most_delta_of_the_audits() -> None:
    """The worst case: every nested set is just below the target."""
    size, delta, times = 2000, 0.05, 1000
    bad = np.zeros(size, bool)
    for inside in nested_sizes(size):
        lacking = fewest_bad(inside, 0.95) - int(bad[:inside].sum())
        bad[np.flatnonzero(~bad[:inside])[-lacking:] if lacking > 0 else []] = True
    assert all(bad[:inside].sum() == fewest_bad(inside, 0.95) for inside in nested_sizes(size))
    assert 0 < false_certificates(bad, 150, 0.95, delta, times) <= binom.ppf(0.999, times, delta)


def test_where_the_tail_reaches_delta_so_does_the_rate_of_wrong_certificates() -> None:
    """One set, and a delta that the exact tail reaches: a rate of twice delta would be seen, and so would half of it."""
    size, target, draws, times = 100, 0.8, 50, 2000
    bad = np.arange(size) < fewest_bad(size, target)
    delta = float(hypergeom.cdf(7, size, bad.sum(), draws)) * (1 + 1e-9)
    assert 0.02 < delta < 0.08
    low, high = binom.ppf([0.001, 0.999], times, delta)
    assert low <= false_certificates(bad, draws, target, delta, times) <= high < 1.6 * delta * times
    assert false_certificates(bad, draws, target, 2.6 * delta, times) > high  # what the test is worth


def test_more_draws_begin_with_the_fewer() -> None:
    few, many = (draw(700, n, seed=3, t=2, c=1) for n in (150, 400))
    assert few.tolist() == many[:150].tolist() and len(set(many.tolist())) == 400
    assert draw(90, 150, seed=3, t=2, c=1).shape == (90,)


def test_certificates_are_said_in_words() -> None:
    ranks = np.arange(150) * 3

    def words(wrong: np.ndarray) -> str:
        return audit_class(ranks, wrong, 512, 0.95, 0.05).words("cat", 0.95)

    assert words(ranks == 390) == "class cat: all 512 selected images certified at 95 % precision (150 seen, 1 wrong)"
    assert words(ranks > 330).startswith("class cat: the 200 most confident of 512 selected images certified at 95 % ")
    assert words(ranks == 30).endswith(
        "not certified at 95 % (150 seen, 1 wrong; 1 of the 67 among the 200 most confident, where 0 may be)"
    )
    assert "(150 seen, 150 wrong" in words(ranks >= 0)


@pytest.mark.parametrize(("target", "delta", "name"), [(95, 0.05, "--target"), (0.95, 0, "--delta")])
def test_a_promise_that_is_no_fraction_is_refused(target: float, delta: float, name: str) -> None:
    with pytest.raises(UserError, match=name):
        check_promise(target, delta)
