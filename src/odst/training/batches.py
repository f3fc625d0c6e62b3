"""The joint batch of step E: drawn by (seed, round, step), made ahead of time by a thread, split into parts."""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from odst.data.images import is_image
from odst.method.labelling import as_input, as_tensor
from odst.method.targets import Examples
from odst.seeds import Shuffle, key
from odst.training.schedule import Plan
from odst.vision.augmentation import augmenter
from odst.vision.networks import mean_level

AHEAD = 2  # batches: one ready, one in the making


@dataclass(frozen=True)
class Joint:
    """`x` holds the images of T ∪ I and then as many of the rest; `q` and `v` are the targets of the two halves."""

    x: torch.Tensor
    q: torch.Tensor
    v: torch.Tensor | None  # None where the rest has no part in the loss

    def part(self, i: int, count: int) -> "Joint":
        """Every count-th image of either half, from the i-th on, so that each part is the same mixture of T, I and rest."""
        if count == 1:
            return self
        n = len(self.q)
        x = torch.cat([self.x[:n][i::count], self.x[n:][i::count]])
        return Joint(x, self.q[i::count], None if self.v is None else self.v[i::count])


class Draw:
    """The joint batch of any step, a function of (seed, t, step) alone."""

    def __init__(self, examples: Examples, plan: Plan, *, rest: bool, seed: int, t: int, device: str):
        self.examples, self.plan, self.seed, self.t, self.device = examples, plan, seed, t, device
        self.union = Shuffle(len(examples), seed, "joined", t)  # T ∪ I; what it was first called is part of the bits
        self.rest = Shuffle(len(examples.rest), seed, "rest", t) if rest and examples.rest else None
        fill = mean_level(examples.T.x) if is_image(examples.T.x) else ()
        self.augment = {phase.augment: augmenter(phase.augment, fill) for phase in plan.phases}

    def __call__(self, step: int) -> Joint:
        phase, _ = self.plan.at(step)
        places = np.arange(step * self.plan.batch, (step + 1) * self.plan.batch)
        x, q = self.examples.batch(self.union[places])
        v = None
        if self.rest is not None:
            x_rest, v_rest = self.examples.rest_batch(self.rest[places])
            x, v = np.concatenate([x, x_rest]), self._targets(v_rest)
        generator = torch.Generator().manual_seed(key(self.seed, "augment", self.t, step))
        augment = self.augment[phase.augment]
        batch = as_input(as_tensor(x, self.device), lambda images: augment(images, generator))
        return Joint(batch, self._targets(q), v)

    def _targets(self, p: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(p).to(self.device, torch.float32)


def ahead(draw: Callable[[int], Joint], steps: Sequence[int]) -> Generator[Joint]:
    """draw(step) for every step in turn, made by a thread while the caller computes on the one before.

    Only reading and augmenting overlap: what is drawn does not depend on when. A fault in the thread is raised here.
    """
    with ThreadPoolExecutor(1, "batches", initializer=_alone) as thread:
        coming = deque(thread.submit(draw, step) for step in steps[:AHEAD])
        for step in steps[AHEAD:]:
            batch = coming.popleft().result()
            coming.append(thread.submit(draw, step))
            yield batch
        while coming:
            yield coming.popleft().result()


def _alone() -> None:
    """One core for this thread: a second team of OpenMP threads would wait in busy loops on the cores that compute."""
    torch.get_num_threads()  # the first call in a thread sets torch's own number, so ours must come after it
    threadpool_limits(1, user_api="openmp")
