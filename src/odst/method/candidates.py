"""C) The candidates of every class, in one pass over the logits: float32 first, float64 only where the decision is near.

The lead of the top logit over the second, over T, lies above the log-odds by at most log(K - 1), and costs no exponential.
A row whose lead decides is decided; of the others the log-odds are taken in float32, whose error is bounded; what lies closer
to a threshold than that is decided in float64, as every candidate's log-odds are. So the outcome is that of float64 alone.
"""

from collections import deque
from collections.abc import Iterator
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
AT_ONCE = 1 << 17  # bytes of logits in the making: they stay in the cache


class Candidates:
    """The k of one class with the highest rank so far: a buffer that is cut back to k whenever it has grown past 2k."""

    def __init__(self, k: int):
        self.k, self.seen = k, 0
        self.ids, self.ties = np.empty(0, np.int64), np.empty(0, np.uint64)
        self.odds, self.rank = np.empty(0), np.empty(0)

    @property
    def floor(self) -> float:
        """No rank below this one can be among the k."""
        return float(self.rank.min()) if len(self.rank) >= self.k else -np.inf

    def add(self, ids: np.ndarray, odds: np.ndarray, rank: np.ndarray, ties: np.ndarray) -> None:
        fits = rank >= self.floor
        self.ids = np.concatenate([self.ids, ids[fits]])
        self.odds = np.concatenate([self.odds, odds[fits]])
        self.rank = np.concatenate([self.rank, rank[fits]])
        self.ties = np.concatenate([self.ties, ties[fits]])
        if len(self.ids) > 2 * self.k:
            self._keep(np.lexsort([self.ties, -self.rank])[: self.k])

    def _keep(self, rows: np.ndarray) -> None:
        self.ids, self.odds, self.rank, self.ties = self.ids[rows], self.odds[rows], self.rank[rows], self.ties[rows]

    def best(self) -> tuple[np.ndarray, np.ndarray]:
        """Ids and log-odds, the most confident first."""
        self._keep(np.lexsort([self.ties, -self.rank])[: self.k])
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
                _merge(kept, waiting.popleft().result())
                advance(1)
        while waiting:
            _merge(kept, waiting.popleft().result())
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


def _merge(kept: list[Candidates], found: Found) -> None:
    for c, one in enumerate(kept):
        one.seen += int(found.above[c])
    for c in np.unique(found.classes):
        rows = found.classes == c
        kept[c].add(found.ids[rows], found.odds[rows], found.rank[rows], found.ties[rows])


def _search(logits: Images, start: int, search: Search, floors: np.ndarray) -> Found:
    z = np.asarray(logits[start : start + BLOCK])
    kept = np.ones(len(z), bool)
    low, high = np.searchsorted(search.excluded, [start, start + len(z)])
    kept[search.excluded[low:high] - start] = False
    above = np.zeros(len(search.tau), np.int64)
    rows, classes, odds = [], [], []
    step = max(256, AT_ONCE // (4 * z.shape[1]))
    with np.errstate(invalid="ignore"):  # infinite logits are decided in float64
        for first in range(0, len(z), step):
            for some, c, exact in _above(z, first, min(first + step, len(z)), kept, start, search, floors, above):
                rows.append(some)
                classes.append(c)
                odds.append(exact)
    ids = start + (np.concatenate(rows) if rows else np.empty(0, np.int64))
    exact = np.concatenate(odds) if odds else np.empty(0)
    rank = exact if search.spread_key is None else _spread(ids, search.spread_key)
    c = np.concatenate(classes) if classes else np.empty(0, np.int64)
    return Found(above, ids, c, exact, rank, mix(ids, search.tie_key))


def _spread(ids: np.ndarray, key: int) -> np.ndarray:
    return -mix(ids, key).astype(np.float64)


def _above(
    z: np.ndarray,
    first: int,
    stop: int,
    kept: np.ndarray,
    start: int,
    search: Search,
    floors: np.ndarray,
    above: np.ndarray,
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Count the rows above tau; yield (rows, classes, exact log-odds) of those that may be among the best."""
    tau, K = search.tau, z.shape[1]
    columns = np.ascontiguousarray(z[first:stop].T)  # (K, n)
    top, second, c = _two_best(columns)
    lead = (top - second) * np.float32(1 / search.temperature)
    slack = _slack(lead, K)
    bar = tau.astype(np.float32)[c]
    may = np.flatnonzero(~(lead < bar - slack) & kept[first:stop])  # NaN is decided in float64
    if len(may) == 0:
        return
    lead, slack, bar, c = lead[may], slack[may], bar[may], c[may]
    sure = lead - np.float32(np.log(max(K - 1, 1))) > bar + slack
    floor = (floors if search.spread_key is None else np.full(K, -np.inf)).astype(np.float32)[c]
    near = np.flatnonzero(~sure | ~(lead < floor - slack))  # whose log-odds matter
    odds = np.full(len(may), np.inf, np.float32)
    odds[near] = _odds(columns, may[near], second, lead[near], search.temperature)
    is_above = sure | (odds > bar + slack)
    doubtful = np.flatnonzero(~is_above & ~(odds < bar - slack))
    if len(doubtful):
        exact_class, exact = top_log_odds(z[first + may[doubtful]], search.temperature)
        c[doubtful] = exact_class
        is_above[doubtful] = exact > tau[exact_class]
    if len(search.barred):
        is_above &= ~np.isin((start + first + may) * K + c, search.barred)
    above += np.bincount(c[is_above], minlength=K)
    if search.spread_key is None:
        wanted = np.flatnonzero(is_above & ~(odds < floor - slack) & ~(lead < floor - slack))
    else:
        rank = _spread(start + first + may, search.spread_key)
        wanted = np.flatnonzero(is_above & (rank >= floors[c]))
    if len(wanted):
        rows = first + may[wanted]
        yield rows, *top_log_odds(z[rows], search.temperature)


def _slack(lead: np.ndarray, K: int) -> np.ndarray:
    """More than float32 can be wrong by, in the lead as in the log-odds: a few roundings of the lead, and of K exponentials
    whose sum is at least 1."""
    return np.float32(1e-6) * (np.float32(K + 10) + np.abs(lead))


def _two_best(columns: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The largest of every row, the second and the place of the first of the largest; columns are (K, n)."""
    top = columns[0].copy()
    second = np.full_like(top, -np.inf)
    c = np.zeros(len(top), np.uint8 if len(columns) <= 256 else np.int64)
    for k in range(1, len(columns)):
        np.copyto(c, k, where=columns[k] > top, casting="unsafe")
        np.maximum(second, np.minimum(top, columns[k]), out=second)
        np.maximum(top, columns[k], out=top)
    return top, second, c.astype(np.int64)


def _odds(
    columns: np.ndarray, rows: np.ndarray, second: np.ndarray, lead: np.ndarray, temperature: float
) -> np.ndarray:
    """lead - log Σ exp((z - second) / T) over all but the top one, in float32."""
    behind = columns[:, rows] - second[rows]
    behind *= np.float32(1 / temperature)
    np.exp(np.minimum(behind, 0, out=behind), out=behind)  # the top one becomes 1
    return lead - np.log(np.maximum(behind.sum(axis=0) - 1, 1))
