"""What a teacher saw in the pool: how confident it was, what lay next to each threshold, and what another alpha would take.

Everything comes from the teacher's stored logits in one pass over blocks, on any engine; memory does not grow with the pool.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from odst.data.images import Images
from odst.data.views import opener
from odst.engine.interface import Failed, engine
from odst.errors import UserError
from odst.method.calibration import log_odds, top_log_odds
from odst.method.labelling import Predictions
from odst.method.selection import Selection, in_threshold, out_threshold, select
from odst.method.stored import StoredLogits

BLOCK = 1 << 17  # rows that are looked at together
FEW = 8  # blocks that are not worth another process

EDGES = np.linspace(-3, 15, 55)  # log-odds: a confidence of 5 % to one of 1 - 3e-7; what lies outside goes to the ends
# The alphas of the slider: 0.5 to 0.9999, even in the logarithm of 1 - alpha, which is rounded to two digits
STOPS = 1 - np.array([float(f"{rest:.1e}") for rest in np.logspace(np.log10(0.5), -4, 40)])


@dataclass(frozen=True)
class Stops:
    """Some alphas, ascending, and every class's threshold at each. `own` is the place of the run's alpha."""

    alphas: np.ndarray  # (S,)
    tau: np.ndarray  # (S, K) log-odds
    own: int


@dataclass(frozen=True)
class PoolScan:
    histogram: np.ndarray  # (K, len(EDGES) - 1) pool images by predicted class and log-odds
    just_above: list[tuple[np.ndarray, np.ndarray]]  # per class ids and log-odds, nearest to the threshold first
    just_below: list[tuple[np.ndarray, np.ndarray]]
    above: np.ndarray  # (S, K) images above each stop's threshold
    ranked: Selection  # per class the k most confident above the loosest stop


def alpha_stops(
    logits_in: np.ndarray,
    y: np.ndarray,
    logits_out: np.ndarray | None,
    temperature: float,
    tau: np.ndarray,
    alpha: float,
    *,
    inside: bool,
    outside: bool,
) -> Stops:
    """Thresholds at each alpha of STOPS and, at the run's own, those it used. The flags say which thresholds the method has."""
    alphas = np.unique(np.append(STOPS, alpha))
    odds_in = log_odds(logits_in, temperature)
    odds_out = None if logits_out is None else log_odds(logits_out, temperature)
    table = np.full((len(alphas), len(tau)), -np.inf)
    for c in range(len(tau)):
        for s, a in enumerate(alphas):
            if inside:
                table[s, c] = in_threshold(odds_in[:, c], y == c, a)
            if outside and odds_out is not None:
                table[s, c] = max(table[s, c], out_threshold(odds_out[:, c], a))
    own = int(np.searchsorted(alphas, alpha))
    table[own] = tau
    return Stops(alphas, table, own)


def scan_pool(
    p: Predictions, stops: Stops, k: int, *, excluded: np.ndarray, seed: int, t: int, nearest: int
) -> PoolScan:
    seen = Seen(stops, nearest)
    blocks = -(-len(p.logits) // BLOCK)
    make = BlockScan(opener(p.logits), p.temperature, stops, excluded, nearest, BLOCK)
    if isinstance(p.logits, StoredLogits) and blocks > FEW:
        engine().check((), [p.logits.folder])
    for block in engine().map(make, range(blocks)) if blocks > FEW else map(make(), range(blocks)):
        if isinstance(block, Failed):
            raise UserError(
                f"report: a block of the pool could not be scanned ({block.reason}). Give the command again."
            )
        seen.add(block)
    ranked_pool = select(p, stops.tau.min(axis=0), k, excluded=excluded, max_copies=1, seed=seed, t=t)
    over, under = [one.found() for one in seen.over], [one.found() for one in seen.under]
    return PoolScan(seen.histogram, over, under, seen.above, ranked_pool)


class Seen:
    """What is known of some blocks of a pool: small, whatever their number."""

    def __init__(self, stops: Stops, nearest: int):
        K = stops.tau.shape[1]
        self.histogram = np.zeros((K, len(EDGES) - 1), np.int64)
        self.above = np.zeros(stops.tau.shape, np.int64)
        self.over, self.under = [_Nearest(nearest) for _ in range(K)], [_Nearest(nearest) for _ in range(K)]

    def take(self, ids: np.ndarray, classes: np.ndarray, odds: np.ndarray, stops: Stops) -> None:
        for c in np.unique(classes):
            own = classes == c
            these, values = ids[own], odds[own]
            ranked = np.sort(values)
            self.above[:, c] += len(ranked) - np.searchsorted(ranked, stops.tau[:, c], side="right")
            self.histogram[c] += histogram_of(values)
            is_above = values > stops.tau[stops.own, c]
            self.over[c].add(these[is_above], values[is_above], values[is_above])
            # of a closed class: the most confident
            self.under[c].add(these[~is_above], values[~is_above], -values[~is_above])

    def add(self, later: "Seen") -> None:
        self.histogram += later.histogram
        self.above += later.above
        for mine, theirs in zip([*self.over, *self.under], [*later.over, *later.under], strict=True):
            mine.add(theirs.ids, theirs.odds, theirs.distance)


@dataclass(frozen=True)
class BlockScan:
    """Makes the function that looks at a block of the pool, by its number."""

    open_logits: Callable[[], Images]
    temperature: float
    stops: Stops
    excluded: np.ndarray  # sorted
    nearest: int
    rows: int  # of a block

    def __call__(self) -> Callable[[int], Seen]:
        logits = self.open_logits()

        def block(number: int) -> Seen:
            start, seen = number * self.rows, Seen(self.stops, self.nearest)
            z = np.asarray(logits[start : start + self.rows])
            classes, odds = top_log_odds(z, self.temperature)
            kept = np.ones(len(z), bool)
            kept[self.excluded[slice(*np.searchsorted(self.excluded, [start, start + len(z)]))] - start] = False
            seen.take(start + np.flatnonzero(kept), classes[kept], odds[kept], self.stops)
            return seen

        return block


def histogram_of(odds: np.ndarray) -> np.ndarray:
    return np.histogram(np.clip(odds, EDGES[0], EDGES[-1]), EDGES)[0]


class _Nearest:
    """The few rows with the smallest `distance` so far; any number that grows with it will do."""

    def __init__(self, most: int):
        self.most = most
        self.ids, self.odds, self.distance = np.empty(0, np.int64), np.empty(0), np.empty(0)

    def add(self, ids: np.ndarray, odds: np.ndarray, distance: np.ndarray) -> None:
        if len(ids) > self.most:
            near = np.argpartition(distance, self.most)[: self.most]
            ids, odds, distance = ids[near], odds[near], distance[near]
        every = np.concatenate([self.distance, distance])
        order = np.argsort(every, kind="stable")[: self.most]
        self.ids = np.concatenate([self.ids, ids])[order]
        self.odds = np.concatenate([self.odds, odds])[order]
        self.distance = every[order]

    def found(self) -> tuple[np.ndarray, np.ndarray]:
        return self.ids, self.odds
