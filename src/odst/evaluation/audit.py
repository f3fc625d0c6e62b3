"""The certificate: what a person's uniform draws say about how precise a selection is.

A class's selection is a set of known size, so the count of wrong ones among n draws is hypergeometric, and its exact tail
tests "fewer than `target` of this set are right". The sets tested are nested, the most confident first: from strict to wide
until one test fails, each at the class's whole share of delta (fixed-sequence testing). Sets that hold too few draws for even
an error-free certificate are passed over: where the draws lie does not depend on what is seen in them, so that costs no delta.
delta is split evenly over the classes, and a class counts only when all its draws are seen.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import ceil, comb, log

import numpy as np

from odst.errors import UserError
from odst.seeds import stream

TARGET, DELTA, DRAWS = 0.95, 0.05, 150


@dataclass(frozen=True)
class Tested:
    """One nested set: how many images and draws it holds, how many of these may be wrong, and how many are."""

    size: int
    draws: int
    allowed: int
    wrong: int


@dataclass(frozen=True)
class ClassAudit:
    """What is known of one class's selection."""

    selected: int
    draws: int
    seen: int
    wrong: int  # of those seen
    tested: tuple[Tested, ...] = ()  # strict to wide, up to the first that failed; empty until all draws are seen
    bound: float | None = (
        None  # taken alone: at least this share of all selected is right; None until all draws are seen
    )

    @property
    def certified(self) -> int:
        """Images in the largest certified set: so many of the most confident."""
        return max((one.size for one in self.tested if one.wrong <= one.allowed), default=0)

    def words(self, name: str, target: float) -> str:
        if not self.selected:
            return f"class {name}: nothing was selected"
        if self.seen < self.draws:
            return (
                f"class {name}: {self.seen} of {self.draws} seen, {self.wrong} wrong; it counts only when all are seen"
            )
        if self.certified == self.selected:
            what = f"all {self.selected:,} selected images certified at {_percent(target)} precision"
            return f"class {name}: {what} ({self.seen} seen, {self.wrong} wrong)"
        if self.certified:
            best = next(one for one in self.tested if one.size == self.certified)
            what = f"the {best.size:,} most confident of {self.selected:,} selected images certified at {_percent(target)} precision"
            return f"class {name}: {what} ({best.draws} seen among them, {best.wrong} wrong)"
        failed = ""
        if self.tested and self.tested[-1].size < self.selected:
            last = self.tested[-1]
            failed = f"; {last.wrong} of the {last.draws} among the {last.size:,} most confident, where {last.allowed} may be"
        return f"class {name}: not certified at {_percent(target)} ({self.seen} seen, {self.wrong} wrong{failed})"


def check_promise(target: float, delta: float) -> None:
    for name, value, example in (("--target", target, TARGET), ("--delta", delta, DELTA)):
        if not 0 < value < 1:
            raise UserError(f"{name}: a fraction between 0 and 1, got {value:g}. For example {name} {example:g}.")


def draw(size: int, draws: int, *, seed: int, t: int, c: int) -> np.ndarray:
    """Ranks of a class's selection, uniform and without repeats, in the order in which they are shown.

    The same run draws the same images for ever, and more draws begin with the fewer: an unwelcome result cannot be drawn again.
    """
    return stream(seed, "audit", t, c).permutation(size)[:draws]


def audit_class(
    ranks: Sequence[int] | np.ndarray, wrong: Sequence[bool] | np.ndarray, size: int, target: float, delta: float
) -> ClassAudit:
    """`ranks` are the draws' places among the `size` selected of a class, 0 the most confident; all of them were seen.
    `delta` is the class's share."""
    ranks, wrong = np.asarray(ranks, np.int64), np.asarray(wrong, bool)
    tested = []
    for inside, draws, allowed in sequence(ranks, size, target, delta):
        tested.append(Tested(inside, draws, allowed, int(wrong[ranks < inside].sum())))
        if tested[-1].wrong > allowed:
            break
    n, errors = len(ranks), int(wrong.sum())
    return ClassAudit(size, n, n, errors, tuple(tested), lower_bound(size, n, errors, delta))


def sequence(ranks: np.ndarray, size: int, target: float, delta: float) -> Iterator[tuple[int, int, int]]:
    """(images, draws, wrong ones allowed) of the sets that are tested, strict to wide."""
    for inside in nested_sizes(size):
        draws = int((ranks < inside).sum())
        allowed = most_wrong(inside, draws, target, delta)
        if allowed >= 0:
            yield inside, draws, allowed


def nested_sizes(size: int) -> list[int]:
    """100, 200, 500, 1,000, … below `size`, and `size`."""
    steps = (digit * 10**power for power in range(2, 19) for digit in (1, 2, 5))
    return [*(step for step in steps if step < size), size] if size else []


@lru_cache(maxsize=65536)
def tail(size: int, bad: int, draws: int, wrong: int) -> float:
    """P(at most `wrong` wrong ones among `draws` from a set of `size` with `bad` wrong ones), in whole numbers to the end."""
    good = size - bad
    first = max(0, draws - good)
    if wrong < first:
        return 0.0
    term = total = comb(bad, first) * comb(good, draws - first)
    for i in range(first, min(wrong, draws, bad)):
        term = term * (bad - i) * (draws - i) // ((i + 1) * (good - draws + i + 1))
        total += term
    return total / _ways(size, draws)


@lru_cache(maxsize=256)
def _ways(size: int, draws: int) -> int:
    return comb(size, draws)


def fewest_bad(size: int, target: float) -> int:
    """The smallest number of wrong images with which a set misses the target."""
    return int(size * (1 - Fraction(str(target)))) + 1


@lru_cache(maxsize=4096)
def most_wrong(size: int, draws: int, target: float, delta: float) -> int:
    """The most wrong ones among the draws with which the set is certified; -1 where not even none would do."""
    bad, wrong = fewest_bad(size, target), -1
    while wrong < draws and tail(size, bad, draws, wrong + 1) <= delta:
        wrong += 1
    return wrong


@lru_cache(maxsize=65536)
def lower_bound(size: int, draws: int, wrong: int, delta: float) -> float:
    """The largest precision that these draws certify: the share of right ones if as many were wrong as they allow."""
    low, high = (
        wrong,
        size - (draws - wrong),
    )  # the tail falls with the number of wrong ones; those seen right are right
    while low < high:
        middle = (low + high + 1) // 2
        if tail(size, middle, draws, wrong) > delta:
            low = middle
        else:
            high = middle - 1
    return (size - low) / size if size else 0.0


def error_free_draws(target: float, delta: float, size: int | None = None) -> int:
    """How many draws without an error certify a set of this size; of any size without one."""
    limit = ceil(log(delta) / log(target))  # the binomial's, and never fewer than a set of known size needs
    if size is None:
        return limit
    bad, low, high = fewest_bad(size, target), 0, min(size, limit)
    while low < high:
        middle = (low + high) // 2
        if tail(size, bad, middle, 0) <= delta:
            high = middle
        else:
            low = middle + 1
    return low


def _percent(share: float) -> str:
    return f"{100 * share:.6g} %"
