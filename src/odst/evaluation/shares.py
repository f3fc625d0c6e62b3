"""How much of a pool is of each class, with intervals: what a forecast stands on.

A model's predictions fall into cells: the predicted class, and within it how sure the model is. val_in says how the images of
a class spread over the cells, val_out how those of no class do; both are samples, and the pool is a mixture of them. With
counts m_j (val_in of class j, or val_out) and h (a random part of the pool) the log-likelihood is

    sum_g h_g log(sum_j share_j M_jg) + sum_j sum_g m_jg log M_jg

and what is not known, shares and spreads M alike, is fitted together. So a cell into which no image of val_out fell is not
taken for one that no unrelated image can fall into, and few val_in images make a wide interval. A share's interval holds all
values whose best fit is not worse than the best of all by more than chi-square's 95 % point: a profile likelihood.

It is right if val_in is like the pool's images of the classes and val_out like its others. Where they are not (photographs of
another day, a val_out of another source, many crops of few pictures) the mixture does not fit: `misfit`, the deviance by its
degrees of freedom, is then above 1, and the intervals grow by it.
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import expit, logit
from scipy.stats import chi2, f

from odst.method.calibration import top_log_odds

BINS = 4  # cells a class: quarters of val_in's own images by how sure the model is of them
DOUBT = 0.05
SMALLEST = 1e-6  # a share that is none
HALVINGS = 18  # of the interval's ends, in log-odds of the share


@dataclass(frozen=True)
class Shares:
    """Of the pool: per class, and of all classes together, the likeliest share and the ends of its 95 % interval."""

    best: np.ndarray  # (K,)
    low: np.ndarray
    high: np.ndarray
    related: tuple[float, float, float]  # low, best, high
    misfit: float  # about 1 where val_in and val_out are like the pool
    doubtful: bool  # the misfit is more than chance


def related_shares(
    logits_in: np.ndarray, y: np.ndarray, logits_out: np.ndarray | None, logits_pool: np.ndarray, temperature: float
) -> Shares:
    """From the logits of val_in, val_out and a random part of the pool, by a model that learnt from none of these images.

    Without val_out nothing is known of the unrelated images: they may look like anything, and the lower ends are 0.
    """
    m, h = _counts(logits_in, y, logits_out, logits_pool, temperature)
    K = len(m) - 1
    spread = m.sum(axis=0) / m.sum() + 1e-4  # where to begin: no cell is impossible for anybody
    M = (m + 3 * spread) / (m + 3 * spread).sum(axis=1, keepdims=True)
    share = np.append(np.full(K, 0.3 / K), 0.7)
    pi, M, L = _fit(share[None], M[None], m, h, None, np.zeros(1), cycles=600, enough=1e-5)
    degrees = max(int((h > 0).sum()) - len(m), 1)
    deviance = 2 * (_saturated(m, h) - float(L[0]))
    misfit = deviance / degrees
    scale = 1.0 if misfit <= 1 else misfit * f.isf(DOUBT, 1, degrees) / chi2.isf(DOUBT, 1)
    ends = _ends(pi[0], M[0], m, h, float(L[0]) - scale * chi2.isf(DOUBT, 1) / 2)
    return Shares(
        best=pi[0, :K],
        low=ends[0, :K],
        high=ends[1, :K],
        related=(float(1 - ends[1, K]), float(1 - pi[0, K]), float(1 - ends[0, K])),
        misfit=float(misfit),
        doubtful=bool(chi2.sf(deviance, degrees) < 0.01),
    )


def _counts(
    logits_in: np.ndarray, y: np.ndarray, logits_out: np.ndarray | None, logits_pool: np.ndarray, temperature: float
) -> tuple[np.ndarray, np.ndarray]:
    """(K + 1, cells) of val_in's classes and val_out, and (cells,) of the pool."""
    K = logits_in.shape[1]
    c, odds = top_log_odds(logits_in, temperature)
    edges = np.empty((K, BINS - 1))
    for k in range(K):
        own = odds[(c == k) & (y == k)]
        edges[k] = np.quantile(own if len(own) >= BINS else odds, np.arange(1, BINS) / BINS)

    def counted(logits: np.ndarray) -> np.ndarray:
        c, odds = top_log_odds(logits, temperature)
        cell = c * BINS + (odds[:, None] > edges[c]).sum(axis=1)
        return np.bincount(cell, minlength=K * BINS).astype(np.float64)

    nothing = np.zeros(K * BINS)
    rows = [counted(logits_in[y == k]) if (y == k).any() else nothing for k in range(K)]
    return np.array([*rows, nothing if logits_out is None else counted(logits_out)]), counted(logits_pool)


def _saturated(m: np.ndarray, h: np.ndarray) -> float:
    """The log-likelihood where every sample has a spread of its own."""
    rows = np.vstack([m, h])
    shares = rows / np.maximum(rows.sum(axis=1, keepdims=True), 1)
    return float((rows * np.log(np.where(rows > 0, shares, 1))).sum())


def _likelihood(pi: np.ndarray, M: np.ndarray, m: np.ndarray, h: np.ndarray) -> np.ndarray:
    mixed = np.einsum("sj,sjg->sg", pi, M)
    tiny = 1e-300
    return (h * np.log(np.maximum(mixed, tiny))).sum(1) + (m * np.log(np.maximum(M, tiny))).sum((1, 2))


def _with_share(pi: np.ndarray, held: np.ndarray | None, share: np.ndarray) -> np.ndarray:
    """Rows that sum to 1; where one component is held at a share, the others divide what is left."""
    if held is None:
        return pi / pi.sum(axis=1, keepdims=True)
    rows, pi = np.arange(len(pi)), pi.copy()
    pi[rows, held] = 0
    pi *= ((1 - share) / np.maximum(pi.sum(axis=1), 1e-300))[:, None]
    pi[rows, held] = share
    return pi


def _step(
    pi: np.ndarray, M: np.ndarray, m: np.ndarray, h: np.ndarray, held: np.ndarray | None, share: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """One step of expectation and maximisation: the pool's counts go to the components in proportion."""
    mixed = np.einsum("sj,sjg->sg", pi, M)
    given = pi[..., None] * M * (h / np.maximum(mixed, 1e-300))[:, None, :]  # (s, K + 1, cells)
    spread = m[None] + given
    return _with_share(given.sum(axis=2), held, share), spread / np.maximum(spread.sum(axis=2, keepdims=True), 1e-300)


def _fit(
    pi: np.ndarray, M: np.ndarray, m: np.ndarray, h: np.ndarray, held: np.ndarray | None, share: np.ndarray,
    *, cycles: int, enough: float,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:  # fmt: skip
    """Several fits side by side, each with its own component held. Two steps tell how far to leap (SQUAREM); a leap that is
    no gain is not taken."""
    L = _likelihood(pi, M, m, h)
    for _ in range(cycles):
        before = np.concatenate([pi[..., None], M], axis=2)
        one = np.concatenate([(first := _step(pi, M, m, h, held, share))[0][..., None], first[1]], axis=2)
        second = _step(*first, m, h, held, share)
        two = np.concatenate([second[0][..., None], second[1]], axis=2)
        r, u = one - before, two - 2 * one + before
        length = np.sqrt((r**2).sum((1, 2)) / np.maximum((u**2).sum((1, 2)), 1e-300))
        length = np.maximum(length, 1)[:, None, None]
        leapt = np.maximum(before + 2 * length * r + length**2 * u, 1e-15)
        spread = leapt[..., 1:] / leapt[..., 1:].sum(axis=2, keepdims=True)
        far = _step(_with_share(leapt[..., 0], held, share), spread, m, h, held, share)
        L_far, L_near = _likelihood(*far, m, h), _likelihood(*second, m, h)
        better = L_far > L_near
        pi = np.where(better[:, None], far[0], second[0])
        M = np.where(better[:, None, None], far[1], second[1])
        gain, L = np.maximum(L_far, L_near) - L, np.maximum(L_far, L_near)
        if gain.max() < enough:
            break
    return pi, M, L


def _ends(pi: np.ndarray, M: np.ndarray, m: np.ndarray, h: np.ndarray, worst: float) -> np.ndarray:
    """(2, K + 1) the smallest and the largest share of each component whose best fit is as likely as `worst`."""
    J = len(pi)
    held = np.tile(np.arange(J), 2)
    inside = logit(np.clip(pi[held], 2 * SMALLEST, 1 - 2 * SMALLEST))
    outside = np.repeat(logit([SMALLEST, 1 - SMALLEST]), J)
    pis, Ms = np.tile(pi, (2 * J, 1)), np.tile(M, (2 * J, 1, 1))  # the last fit inside: a good place to begin the next
    for _ in range(HALVINGS):
        middle = (inside + outside) / 2
        share = expit(middle)
        tried, spread, L = _fit(
            _with_share(pis, held, share), Ms, m, h, held, share, cycles=60, enough=1e-3
        )  # fmt: skip
        fits = worst <= L
        inside, outside = np.where(fits, middle, inside), np.where(fits, outside, middle)
        pis, Ms = np.where(fits[:, None], tried, pis), np.where(fits[:, None, None], spread, Ms)
    ends = expit(outside)
    ends = np.where(ends < 2 * SMALLEST, 0.0, np.where(ends > 1 - 2 * SMALLEST, 1.0, ends))
    return ends.reshape(2, J)
