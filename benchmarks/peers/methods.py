"""The peers' loss of one step, each read from top to bottom.

FixMatch: Sohn et al. 2020. OpenMatch: Saito, Kim and Saenko 2021. Pseudo-labelling: Lee 2013, with the threshold and the rising
weight of USB (Wang et al. 2022). A step's images go through the network together, as those of eq. (3) do.
"""

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.peers.losses import one_vs_all_loss, open_entropy, pseudo_label_loss, soft_consistency
from benchmarks.peers.settings import Settings
from benchmarks.peers.views import Views
from odst.data.images import Labelled, Pool
from odst.method.targets import Rest
from odst.seeds import Shuffle


@dataclass(frozen=True)
class Moment:
    """Where a training stands."""

    step: int
    progress: float  # share of the steps that are done
    inliers: np.ndarray | None = None  # openmatch's FixMatch phase: the pool ids that passed


class Batches:
    """The rows of any step, a function of (seed, step) alone."""

    def __init__(self, T: Labelled, U: Pool, s: Settings):
        self.T, self.U, self.s = T, U, s
        self.ids = Rest(len(U), U.excluded)
        self.views = Views(T.x, s.seed, s.cutout)

    def labelled(self, step: int) -> tuple[np.ndarray, torch.Tensor]:
        rows = self._places(len(self.T), step, self.s.batch, "labelled")
        return self.T.x[rows], torch.from_numpy(self.T.y[rows])

    def pool(self, step: int) -> np.ndarray:
        return self.U.x[self.ids[self._places(len(self.ids), step, self.s.mu * self.s.batch, "pool")]]

    def among(self, ids: np.ndarray, step: int) -> np.ndarray:
        return self.U.x[ids[self._places(len(ids), step, self.s.mu * self.s.batch, "inliers")]]

    def _places(self, n: int, step: int, count: int, name: str) -> np.ndarray:
        order = Shuffle(n, self.s.seed, "peer", name)
        return np.sort(order[np.arange(step * count, (step + 1) * count)])


def heads_of(z: torch.Tensor, K: int) -> torch.Tensor:
    """The one-vs-all part of OpenMatch's 3K logits, (n, 2, K)."""
    return z[:, K:].view(len(z), 2, K)


def fixmatch(network: nn.Module, batches: Batches, now: Moment) -> torch.Tensor:
    """The weak view of a pool image labels its strong view, where it is sure."""
    s, views, t = batches.s, batches.views, now.step
    x, y = batches.labelled(t)
    u = batches.pool(t)
    z = network(torch.cat([views.labelled(x, t), views.weak(u, t, "pool"), views.strong(u, t, "strong")]))
    labelled, weak, strong = z.split([len(x), len(u), len(u)])
    return F.cross_entropy(labelled, y) + pseudo_label_loss(strong, weak, s.threshold)


def openmatch(network: nn.Module, batches: Batches, now: Moment) -> torch.Tensor:
    """A one-vs-all head learns from two weak views of T, and from two of the pool to be sure and consistent; after the warm-up
    FixMatch on the pool images that this head lets pass."""
    s, views, t = batches.s, batches.views, now.step
    x, y = batches.labelled(t)
    u = batches.pool(t)
    pairs = [views.labelled(x, t, f"labelled {i}") for i in (1, 2)] + [views.weak(u, t, f"pool {i}") for i in (1, 2)]
    z = network(torch.cat(pairs))
    K = z.shape[1] // 3
    y, heads = y.repeat(2), heads_of(z, K)
    labelled, first, second = heads.split([len(y), len(u), len(u)])
    loss = F.cross_entropy(z[: len(y), :K], y) + one_vs_all_loss(labelled, y)
    loss = loss + s.oem * (open_entropy(first) + open_entropy(second)) / 2 + s.socr * soft_consistency(first, second)
    if now.inliers is None or len(now.inliers) == 0:
        return loss
    u = batches.among(now.inliers, t)
    weak, strong = network(torch.cat([views.weak(u, t, "inliers"), views.strong(u, t, "strong")]))[:, :K].chunk(2)
    return loss + pseudo_label_loss(strong, weak, s.threshold)


def pseudo(network: nn.Module, batches: Batches, now: Moment) -> torch.Tensor:
    """A pool image is labelled by the very view that learns; the weight of it rises along a line in the warm-up."""
    s, views, t = batches.s, batches.views, now.step
    x, y = batches.labelled(t)
    z = network(torch.cat([views.labelled(x, t), views.weak(batches.pool(t), t, "pool")]))
    weight = min(1.0, now.progress / s.warm_up) if s.warm_up else 1.0
    return F.cross_entropy(z[: len(x)], y) + weight * pseudo_label_loss(z[len(x) :], z[len(x) :], s.threshold)


LOSSES = {"fixmatch": fixmatch, "openmatch": openmatch, "pseudo": pseudo}
