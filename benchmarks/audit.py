"""Is the certificate right as often as it says, and how often is it given? python -m benchmarks.audit [--quick]

Simulated reviewers who never err look at 150 draws a class of selections whose truth is known. A certificate is wrong when the
set it names is less precise than the target. `ratio` is the worst rate of wrong certificates over delta: at most 1 within the
binomial's margin.
"""

import argparse
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from odst.evaluation.audit import (
    DELTA,
    DRAWS,
    TARGET,
    audit_class,
    draw,
    fewest_bad,
    most_wrong,
    nested_sizes,
)  # fmt: skip
from odst.seeds import key, stream

SIZE = 2_000  # images selected for a class
PAGE = 30  # pictures that one Enter confirms
WORST = "0.949 everywhere"


@dataclass(frozen=True)
class Outcome:
    """Over the repetitions: shares of audits with a wrong certificate, and what the others gave."""

    jointly: float  # of audits in which some class's certificate is wrong
    per_class: float  # of classes, the worst one
    whole: float  # of classes certified whole
    share: float  # of the selected images certified
    clicks: float  # a class: a wrong picture each, and Enter for every page


def worst_case(size: int) -> np.ndarray:
    """Every nested set misses the target by as little as a set of its size can."""
    bad = np.zeros(size, bool)
    below = 0
    for inside in nested_sizes(size):
        new = fewest_bad(inside, TARGET) - int(bad[:inside].sum())
        bad[np.linspace(below, inside - 1, new).astype(int)] = True
        below = inside
        assert bad[:inside].sum() == fewest_bad(inside, TARGET)
    return bad


def placed(precision: float, size: int, rng: np.random.Generator) -> np.ndarray:
    """So many wrong ones, anywhere."""
    bad = np.zeros(size, bool)
    bad[rng.permutation(size)[: round(size * (1 - precision))]] = True
    return bad


def simulate(precision: float | None, classes: int, times: int, *, nested: bool = True) -> Outcome:
    """`nested` off takes the whole class as the only set, as in the theory of its power."""
    false, whole, share, wrong_seen = np.zeros((times, classes), bool), 0, 0.0, 0
    rng = stream(0, "audit", "worlds", str(precision))
    for i in range(times):
        for c in range(classes):
            bad = worst_case(SIZE) if precision is None else placed(precision, SIZE, rng)
            ranks = draw(SIZE, DRAWS, seed=key(i, "benchmark"), t=1, c=c)
            wrong = bad[ranks]
            if nested:
                certified = audit_class(ranks, wrong, SIZE, TARGET, DELTA / classes).certified
            else:
                certified = SIZE * int(wrong.sum() <= most_wrong(SIZE, DRAWS, TARGET, DELTA / classes))
            false[i, c] = certified and bad[:certified].sum() >= fewest_bad(certified, TARGET)
            whole, share, wrong_seen = whole + (certified == SIZE), share + certified / SIZE, wrong_seen + wrong.sum()
    n = times * classes
    clicks = wrong_seen / n + -(-DRAWS // PAGE)
    return Outcome(false.any(axis=1).mean(), false.mean(axis=0).max(), whole / n, share / n, clicks)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    times = 200 if parser.parse_args().quick else 1000
    print(f"target {TARGET}, delta {DELTA}, {DRAWS} draws a class of {SIZE:,}, {times:,} repetitions")
    print(
        f"| precision | classes | wrong, jointly | may be | wrong, worst class | may be | certified whole | share certified | clicks a class |\n{'|---' * 9}|"
    )
    worst, failures = 0.0, []
    for classes in (1, 5, 10):
        margins = [float(binom.ppf(0.999, times, level)) / times for level in (DELTA, DELTA / classes)]
        for precision in (None, 0.90, 0.93, 0.945, 0.95, 0.96, 0.97, 0.98, 0.99):
            one = simulate(precision, classes, times)
            worst = max(worst, one.jointly / DELTA)
            name = WORST if precision is None else str(precision)
            print(
                f"| {name} | {classes} | {one.jointly:.3f} | {DELTA} | {one.per_class:.3f} | {DELTA / classes:g} | "
                f"{one.whole:.1%} | {one.share:.1%} | {one.clicks:.1f} |",
                flush=True,
            )
            if one.jointly > margins[0] or one.per_class > margins[1]:
                failures.append(f"{name} with {classes} classes")
    print("\nPower at a precision of 0.99, the whole class as the only set:")
    for classes, least in ((1, 0.75), (10, 0.50)):
        one = simulate(0.99, classes, times, nested=False)
        theory = binom.cdf(most_wrong(10**8, DRAWS, TARGET, DELTA / classes), DRAWS, 0.01)
        print(f"{classes} classes: {one.whole:.1%} certified (theory {theory:.1%}), {one.clicks:.1f} clicks a class")
        if one.whole < least:
            failures.append(f"power with {classes} classes")
    print(f"audit ratio={worst:.3g} anchor=delta")
    if failures:
        raise SystemExit(f"audit: beyond the margin: {', '.join(failures)}")


if __name__ == "__main__":
    main()
