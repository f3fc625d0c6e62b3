"""C) Select: the in- and the out-threshold of each class, and k of the images above both. "Above" is strict."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

import numpy as np

from odst.method.calibration import log_odds
from odst.method.candidates import Search, gather
from odst.method.labelling import Predictions
from odst.seeds import key, stream

# Why a class took no more images
FULL = "full: k images taken"
SHORT = "short: every image above the threshold taken"
EMPTY = "empty: no image above the threshold"
CLOSED = "closed: no threshold reaches the precision on val_in"
PROMISE = "closed: "  # and what the promise would take
GIVEN = "given: taken from a file"


@dataclass(frozen=True)
class Thresholds:
    """Per class, in log-odds, with the counts behind each. `tau` is the one that counts."""

    inside: np.ndarray  # (K,) in-threshold; -inf accepts all, +inf closes the class
    in_above: np.ndarray  # (K,) val_in images above it
    in_right: np.ndarray  # (K,) of which of the class
    outside: np.ndarray  # (K,) out-threshold; -inf without one
    out_above: np.ndarray  # (K,) val_out images above it

    @property
    def tau(self) -> np.ndarray:
        return np.maximum(self.inside, self.outside)


@dataclass(frozen=True)
class Selection:
    """I: pool ids (each once), most confident first within a class, with the number of copies in I."""

    ids: np.ndarray  # (u,) int64
    classes: np.ndarray  # (u,) int64
    log_odds: np.ndarray  # (u,) float64
    copies: np.ndarray  # (u,) int64, at least 1
    above: np.ndarray  # (K,) images above tau, chosen or not
    stop: tuple[str, ...]  # (K,) why the class took no more
    k: int
    hard: bool = False  # the class is the label (a given selection), not the teacher's probabilities
    tau: np.ndarray | None = None  # (K,) what they had to exceed; None for a given selection
    pick: Literal["top", "spread"] = "top"

    def __len__(self) -> int:
        return len(self.ids)


def in_threshold(odds: np.ndarray, is_c: np.ndarray, alpha: float) -> float:
    """The smallest predicted p_c on val_in (or 0) above which class c has precision >= alpha; +inf where there is none.

    Over all val_in images, whatever their argmax. Precision is not monotone in the threshold, so every distinct value is
    tried; an empty set never qualifies.
    """
    order = np.argsort(odds)
    values = odds[order]
    right = np.concatenate([[0], np.cumsum(is_c[order][::-1])])  # right[j]: of the j most confident, those of class c
    candidates = np.concatenate([[-np.inf], np.unique(values)])
    above = len(values) - np.searchsorted(values, candidates, side="right")
    with np.errstate(invalid="ignore"):
        good = (above > 0) & (right[above] / above >= alpha)
    return float(candidates[good][0]) if good.any() else np.inf


def shortage(name: str, odds: np.ndarray, is_c: np.ndarray, alpha: float) -> str:
    """Of a class that val_in closes: what it would take to open it."""
    if not is_c.any():
        return f"{name}: val_in has no image of it"
    right = np.cumsum(is_c[np.argsort(-odds, kind="stable")])
    above = np.arange(1, len(odds) + 1)
    best = int((right / above).argmax())
    wrong = int(above[best] - right[best])
    needed = ceil(wrong / (1 - alpha) - 1e-9)
    return (
        f"{name}: {wrong} of the {above[best]:,} val_in images surest to be of it are not, and a precision of {alpha:g} with "
        f"so many wrong takes {needed:,} above the threshold: give val_in more images of it, or lower alpha_in"
    )


def shortages(
    classes: Sequence[str],
    inside: np.ndarray,
    logits: np.ndarray,
    y: np.ndarray,
    temperature: float,
    alpha: float | None,
) -> list[str]:
    """A line for each class that has no in-threshold, from what val_in is to the model."""
    closed = [c for c, tau in enumerate(inside) if tau == np.inf]
    if alpha is None or not closed:
        return []
    odds = log_odds(logits, temperature)
    return [shortage(classes[c], odds[:, c], y == c, alpha) for c in closed]


def out_threshold(odds: np.ndarray, alpha: float) -> float:
    """The alpha-quantile of p_c on val_out, the higher neighbour: at most 1 - alpha of val_out lies above."""
    return float(np.quantile(odds, alpha, method="higher"))


def thresholds(
    logits_in: np.ndarray,
    y: np.ndarray,
    logits_out: np.ndarray | None,
    temperature: float,
    alpha_in: float | None,
    alpha_out: float | None,
) -> Thresholds:
    """Both thresholds of every class; an alpha of None means that the method does without that one."""
    odds_in = log_odds(logits_in, temperature)
    K = odds_in.shape[1]
    is_c = y[:, None] == np.arange(K)
    inside, outside, out_above = np.full(K, -np.inf), np.full(K, -np.inf), np.zeros(K, np.int64)
    if alpha_in is not None:
        inside = np.array([in_threshold(odds_in[:, c], is_c[:, c], alpha_in) for c in range(K)])
    if alpha_out is not None:
        assert logits_out is not None
        odds_out = log_odds(logits_out, temperature)
        outside = np.array([out_threshold(odds_out[:, c], alpha_out) for c in range(K)])
        out_above = (odds_out > outside).sum(axis=0)
    above = odds_in > inside
    return Thresholds(inside, above.sum(axis=0), (above & is_c).sum(axis=0), outside, out_above)


def without(ids: np.ndarray, excluded: np.ndarray) -> np.ndarray:
    """Which of these ids, in order like the excluded ones, are not excluded."""
    if len(excluded) == 0 or len(ids) == 0:
        return np.ones(len(ids), bool)
    return ~np.isin(ids, excluded[slice(*np.searchsorted(excluded, [ids[0], ids[-1] + 1]))])


def joint(barred: np.ndarray | None, K: int) -> np.ndarray:
    """(id, class) as one number each, in order."""
    return np.empty(0, np.int64) if barred is None else np.sort(barred[:, 0] * K + barred[:, 1])


def select(
    p: Predictions,
    tau: np.ndarray,
    k: int,
    pick: Literal["top", "spread"] = "top",
    *,
    excluded: np.ndarray,
    max_copies: int | None,
    seed: int,
    t: int,
    closed: Mapping[int, str] | None = None,
    barred: np.ndarray | None = None,
) -> Selection:
    """One pass over the pool, keeping at most a few k candidates a class. Ties fall by a seeded key, never by pool order.

    `pick` takes the k most confident above tau, or any k: those whose id has the smallest keyed hash. `closed` says of a
    class why, where it is not for want of precision. `barred` are (id, class) that a person has ruled out.
    """
    K = len(tau)
    spread_key = key(seed, "spread", t) if pick == "spread" else None
    search = Search(p.temperature, tau, excluded, key(seed, "ties", t), spread_key, joint(barred, K))
    kept = gather(p.logits, search, k)
    parts = [candidates.best() for candidates in kept]
    above = np.array([candidates.seen for candidates in kept])
    copies = [_copies(len(ids), k, max_copies, stream(seed, "repeats", t, c)) for c, (ids, _) in enumerate(parts)]
    return Selection(
        ids=np.concatenate([ids for ids, _ in parts]),
        classes=np.repeat(np.arange(K), [len(ids) for ids, _ in parts]),
        log_odds=np.concatenate([odds for _, odds in parts]),
        copies=np.concatenate(copies),
        above=above,
        stop=tuple(PROMISE + closed[c] if closed and c in closed else _stop(above[c], tau[c], k) for c in range(K)),
        k=k,
        tau=tau,
        pick=pick,
    )


def _stop(above: int, tau: float, k: int) -> str:
    if tau == np.inf:
        return CLOSED
    return EMPTY if above == 0 else SHORT if above <= k else FULL


def _copies(chosen: int, k: int, max_copies: int | None, rng: np.random.Generator) -> np.ndarray:
    """How often each chosen image stands in I: once, and at random again until the class has k (or the cap is reached)."""
    copies = np.ones(chosen, np.int64)
    if chosen == 0:
        return copies
    if max_copies is None:
        extra = rng.integers(chosen, size=k - chosen)
    else:
        extra = rng.permutation(chosen * (min(max_copies, k) - 1))[: k - chosen] % chosen
    return copies + np.bincount(extra, minlength=chosen)
