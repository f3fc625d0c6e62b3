"""What a teacher saw in the pool: how confident it was, what lay next to each threshold, and what another alpha would take.

Everything comes from the teacher's stored logits in one pass over blocks; memory does not grow with the pool.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from odst.method.calibration import log_odds
from odst.method.labelling import Predictions
from odst.method.selection import Selection, in_threshold, out_threshold, select

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
    tau = stops.tau[stops.own]
    K = len(tau)
    histogram = np.zeros((K, len(EDGES) - 1), np.int64)
    above = np.zeros((len(stops.alphas), K), np.int64)
    over, under = [_Nearest(nearest) for _ in range(K)], [_Nearest(nearest) for _ in range(K)]
    for ids, classes, odds in _kept(p, excluded):
        for c in np.unique(classes):
            own = classes == c
            these, values = ids[own], odds[own]
            ranked = np.sort(values)
            above[:, c] += len(ranked) - np.searchsorted(ranked, stops.tau[:, c], side="right")
            histogram[c] += histogram_of(values)
            is_above = values > tau[c]
            over[c].add(these[is_above], values[is_above], values[is_above])
            under[c].add(these[~is_above], values[~is_above], -values[~is_above])  # a closed class: the most confident
    ranked_pool = select(p, stops.tau.min(axis=0), k, excluded=excluded, max_copies=1, seed=seed, t=t)
    return PoolScan(histogram, [one.found() for one in over], [one.found() for one in under], above, ranked_pool)


def histogram_of(odds: np.ndarray) -> np.ndarray:
    return np.histogram(np.clip(odds, EDGES[0], EDGES[-1]), EDGES)[0]


def _kept(p: Predictions, excluded: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    for ids, classes, odds in p.top():
        if len(excluded):
            kept = ~np.isin(ids, excluded[slice(*np.searchsorted(excluded, [ids[0], ids[-1] + 1]))])
            ids, classes, odds = ids[kept], classes[kept], odds[kept]
        yield ids, classes, odds


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
