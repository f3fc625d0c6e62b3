"""D) Targets: one-hot on T, q on I, v on the rest."""

import hashlib
from dataclasses import dataclass

import numpy as np

from odst.data.images import Labelled, Pool, fingerprint
from odst.method.labelling import Predictions
from odst.method.selection import Selection


class Rest:
    """The pool ids that are neither selected nor excluded, as a virtual sorted array: `rest[ranks]` in constant memory."""

    def __init__(self, m: int, out: np.ndarray):
        self.m = m
        out = np.unique(out)
        self.before = out - np.arange(len(out))  # how many ids of the rest lie before each one left out

    def __len__(self) -> int:
        return self.m - len(self.before)

    def __getitem__(self, ranks: np.ndarray) -> np.ndarray:
        return ranks + np.searchsorted(self.before, ranks, side="right")


@dataclass(frozen=True)
class Examples:
    """What eq. (3) averages over: T and I with its repeats on one side, U \\ I on the other, each with its target."""

    T: Labelled
    U: Pool | None
    p: Predictions | None  # the calibrated teacher on U; None for the base, whose rest is pushed to 1/K
    I: Selection | None
    damping: float
    K: int
    labelled_copies: int = 1  # how often T stands in T ∪ I

    def __post_init__(self) -> None:
        chosen = np.empty(0, np.int64) if self.I is None else self.I.ids
        copies = chosen if self.I is None else self.I.copies
        object.__setattr__(self, "entries", np.repeat(np.arange(len(chosen)), copies))  # I with its repeats
        if self.U is not None:
            object.__setattr__(self, "rest", Rest(len(self.U), np.concatenate([chosen, self.U.excluded])))

    entries: np.ndarray = None  # type: ignore[assignment]
    rest: Rest | None = None

    def __len__(self) -> int:
        """Images of one epoch: T ∪ I with their repeats."""
        return self.labelled_copies * len(self.T) + len(self.entries)

    def digest(self) -> str:
        """What these examples are, in short: enough to tell a training's from another's. T is read, of the pool its id."""
        head = [fingerprint(self.T.x, self.T.y), self.K, self.damping, self.p and self.p.temperature]
        if self.labelled_copies != 1:
            head.append(self.labelled_copies)
        arrays = [] if self.I is None else [self.I.ids, self.I.classes, self.I.copies, self.I.log_odds]
        if self.U is not None:
            head.append(self.U.id)
            arrays.append(self.U.excluded)
        state = hashlib.blake2b(repr(head).encode(), digest_size=16)
        for array in arrays:
            state.update(np.ascontiguousarray(array).data)
        return state.hexdigest()

    def batch(self, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Images and targets at these places of T ∪ I: one-hot labels first, then q."""
        places = np.sort(places)  # batch-norm and the loss do not see the order; the disk does
        end = self.labelled_copies * len(self.T)
        labelled = places[places < end] % len(self.T)
        x, q = self.T.x[labelled], np.eye(self.K)[self.T.y[labelled]]
        chosen = self.entries[places[len(labelled) :] - end]
        if len(chosen) == 0:
            return x, q
        assert self.I is not None and self.U is not None
        ids = self.I.ids[chosen]
        if self.I.hard:
            q_I = np.eye(self.K)[self.I.classes[chosen]]
        else:
            assert self.p is not None
            q_I = self.p[ids]  # q(z) = p(z)
        return np.concatenate([x, self.U.x[ids]]), np.concatenate([q, q_I])

    def rest_batch(self, ranks: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Images and targets of these ranks of U \\ I."""
        assert self.U is not None and self.rest is not None
        ids = self.rest[np.sort(ranks)]
        if self.p is None or self.damping == 1:
            v = np.full((len(ids), self.K), 1 / self.K)
        else:
            v = (1 - self.damping) * self.p[ids] + self.damping / self.K  # eq. (2) at damping = 1/2
        return self.U.x[ids], v
