"""C) The candidates of every class, in one pass over the logits: float32 first, float64 only where the decision is near.

The lead of the top logit over the second, over T, lies above the log-odds by at most log(K - 1), and costs no exponential.
A row whose lead decides is decided; of the others the log-odds are taken in float32, whose error is bounded; what lies closer
to a threshold than that is decided in float64, as every candidate's log-odds are. So the outcome is that of float64 alone.
"""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np

from odst.data.images import Images
from odst.engine.processors import processors
from odst.method.calibration import top_log_odds
from odst.progress import stage
from odst.seeds import mix

BLOCK = 1 << 17  # rows read at a time
AT_ONCE = 1 << 18  # bytes of logits in the making: they stay in the cache


class Candidates:
    """The k of one class with the highest rank so far: a buffer that is cut back to k whenever it has grown by a quarter."""

    def __init__(self, k: int):
        self.k, self.seen = k, 0
        self.floor = -np.inf  # no rank below this one can be among the k
        self.ids, self.ties = np.empty(0, np.int64), np.empty(0, np.uint64)
        self.odds, self.rank = np.empty(0), np.empty(0)

    def add(self, ids: np.ndarray, odds: np.ndarray, rank: np.ndarray, ties: np.ndarray) -> None:
        fits = rank >= self.floor
        self.ids = np.concatenate([self.ids, ids[fits]])
        self.odds = np.concatenate([self.odds, odds[fits]])
        self.rank = np.concatenate([self.rank, rank[fits]])
        self.ties = np.concatenate([self.ties, ties[fits]])
        if len(self.ids) > self.k + max(self.k // 4, 64):
            self._cut()

    def _cut(self) -> None:
        """Keep the k of the highest rank; of equal ones at the end those with the smallest key."""
        if len(self.ids) <= self.k:
            return
        self.floor = float(np.partition(self.rank, -self.k)[-self.k])
        sure, equal = np.flatnonzero(self.rank > self.floor), np.flatnonzero(self.rank == self.floor)
        equal = equal[np.argsort(self.ties[equal], kind="stable")[: self.k - len(sure)]]
        self._keep(np.sort(np.concatenate([sure, equal])))

    def _keep(self, rows: np.ndarray) -> None:
        self.ids, self.odds, self.rank, self.ties = self.ids[rows], self.odds[rows], self.rank[rows], self.ties[rows]

    def best(self) -> tuple[np.ndarray, np.ndarray]:
        """Ids and log-odds, the most confident first."""
        self._cut()
        self._keep(np.lexsort([self.ties, -self.odds]))
        return self.ids, self.odds


@dataclass(frozen=True)
class Search:
    """What every block is searched for."""

    temperature: float
    tau: np.ndarray  # (K,)
    excluded: np.ndarray  # sorted ids
    tie_key: int
    spread_key: int | None  # rank by this hash of the id; None: by log-odds
    barred: np.ndarray  # sorted id * K + class: what a person has ruled out


def gather(logits: Images, search: Search, k: int) -> list[Candidates]:
    """Per class how many rows lie above tau, and the k best of them. On all cores; the outcome does not depend on how many."""
    kept = [Candidates(k) for _ in search.tau]
    starts = range(0, len(logits), BLOCK)
    with (
        stage("select", len(starts), "blocks") if len(starts) > 8 else nullcontext(lambda n: None) as advance,
        ThreadPoolExecutor(processors()) as threads,
    ):
        waiting: deque[Future[Found]] = deque()
        for start in starts:
            floors = np.array(
                [one.floor for one in kept]
            )  # of what is merged by now: an older one only lets more through
            waiting.append(threads.submit(_search, logits, start, search, floors))
            if len(waiting) > 2 * processors():
                merge(kept, waiting.popleft().result())
                advance(1)
        while waiting:
            merge(kept, waiting.popleft().result())
            advance(1)
    return kept


@dataclass(frozen=True)
class Found:
    above: np.ndarray  # (K,) rows above tau
    ids: np.ndarray
    classes: np.ndarray
    odds: np.ndarray
    rank: np.ndarray
    ties: np.ndarray


def merge(kept: list[Candidates], found: Found) -> None:
    for c, one in enumerate(kept):
        one.seen += int(found.above[c])
    for c in np.unique(found.classes):
        rows = found.classes == c
        kept[c].add(found.ids[rows], found.odds[rows], found.rank[rows], found.ties[rows])


def _search(logits: Images, start: int, search: Search, floors: np.ndarray) -> Found:
    z = np.asarray(logits[start : start + BLOCK])
    low, high = np.searchsorted(search.excluded, [start, start + len(z)])
    kept = None
    if low < high:
        kept = np.ones(len(z), bool)
        kept[search.excluded[low:high] - start] = False
    above = np.zeros(len(search.tau), np.int64)
    found = [(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0))]
    step = max(256, AT_ONCE // (4 * z.shape[1]))
    with np.errstate(invalid="ignore"):  # infinite logits are decided in float64
        for first in range(0, len(z), step):
            some = _above(z, first, min(first + step, len(z)), kept, start, search, floors, above)
            found += [some] if some else []
    rows, classes, odds = map(np.concatenate, zip(*found, strict=True))
    ids = start + rows
    rank = odds if search.spread_key is None else _spread(ids, search.spread_key)
    return Found(above, ids, classes, odds, rank, mix(ids, search.tie_key))


def _spread(ids: np.ndarray, key: int) -> np.ndarray:
    return -mix(ids, key).astype(np.float64)


def _above(
    z: np.ndarray,
    first: int,
    stop: int,
    kept: np.ndarray | None,
    start: int,
    search: Search,
    floors: np.ndarray,
    above: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Count the rows above tau; rows, classes and exact log-odds of those that may be among the best."""
    tau, K = search.tau, z.shape[1]
    columns = np.ascontiguousarray(z[first:stop].T)  # (K, n)
    top, second = _two_best(columns)
    lead = (top - second) * np.float32(1 / search.temperature)
    may = ~(lead < np.float32(tau.min()) - _slack(lead, K))  # NaN is decided in float64
    if kept is not None:
        may &= kept[first:stop]
    rows = np.flatnonzero(may)
    if len(rows) == 0:
        return None
    if len(rows) < len(may):
        columns, top, second, lead = columns.take(rows, axis=1), top[rows], second[rows], lead[rows]
    slack, c = _slack(lead, K), _places(columns, top)
    bar = tau.astype(np.float32).take(c)
    odds = _odds(columns, second, lead, search.temperature)
    is_above = odds > bar + slack
    unsure = ~is_above
    unsure &= ~(odds < bar - slack)
    unsure |= lead == 0  # of equal ones the first is the class
    doubtful = np.flatnonzero(unsure)
    if len(doubtful):
        exact_class, exact = top_log_odds(z[first + rows[doubtful]], search.temperature)
        c[doubtful] = exact_class
        is_above[doubtful] = exact > tau[exact_class]
    if len(search.barred):
        is_above &= ~np.isin((start + first + rows) * K + c, search.barred)
    above += np.bincount(c[is_above], minlength=K)
    if search.spread_key is None:
        is_above &= ~(odds < floors.astype(np.float32).take(c) - slack)
        best = np.flatnonzero(is_above)
    else:
        best = np.flatnonzero(is_above)
        best = best[_spread(start + first + rows[best], search.spread_key) >= floors[c[best]]]
    if len(best) == 0:
        return None
    return first + rows[best], *top_log_odds(z[first + rows[best]], search.temperature)


def _slack(lead: np.ndarray, K: int) -> np.ndarray:
    """More than float32 can be wrong by, in the lead as in the log-odds: a few roundings of the lead, and of K exponentials
    whose sum is at least 1."""
    slack = np.abs(lead)
    slack += np.float32(K + 10)
    slack *= np.float32(1e-6)
    return slack


def _two_best(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest of every row and the second; columns are (K, n)."""
    top = columns[0].copy()
    second = np.full_like(top, -np.inf)
    lesser = np.empty_like(top)
    for column in columns[1:]:
        np.minimum(top, column, out=lesser)
        np.maximum(second, lesser, out=second)
        np.maximum(top, column, out=top)
    return top, second


def _places(columns: np.ndarray, top: np.ndarray) -> np.ndarray:
    """Where in a row its largest stands; of rows with several, or with NaN, anything below K."""
    c = np.zeros(len(top), np.uint8 if len(columns) <= 256 else np.int64)
    is_top = np.empty(len(top), bool)
    for k, column in enumerate(columns[1:], 1):
        np.equal(column, top, out=is_top)
        np.maximum(c, np.multiply(is_top, k, dtype=c.dtype), out=c)
    return c.astype(np.int64)


def _odds(columns: np.ndarray, second: np.ndarray, lead: np.ndarray, temperature: float) -> np.ndarray:
    """lead - log Σ exp((z - second) / T) over all but the top one, in float32."""
    behind = columns - second
    behind *= np.float32(1 / temperature)
    np.exp(np.minimum(behind, 0, out=behind), out=behind)  # the top one becomes 1
    rest = behind.sum(axis=0)
    rest -= 1
    np.maximum(rest, 1, out=rest)
    return np.subtract(lead, np.log(rest, out=rest), out=rest)
