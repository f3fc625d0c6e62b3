"""The joint batch of step E: drawn by (seed, round, step), made ahead of time by a thread, split into parts."""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from odst.data.images import Images, is_image
from odst.method.targets import Examples
from odst.seeds import Shuffle, key
from odst.training.schedule import Plan
from odst.vision.augmentation import augmenter

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
        self.joined = Shuffle(len(examples), seed, "joined", t)
        self.rest = Shuffle(len(examples.rest), seed, "rest", t) if rest and examples.rest else None
        fill = mean_level(examples.T.x) if is_image(examples.T.x) else ()
        self.augment = {phase.augment: augmenter(phase.augment, fill) for phase in plan.phases}

    def __call__(self, step: int) -> Joint:
        phase, _ = self.plan.at(step)
        places = np.arange(step * self.plan.batch, (step + 1) * self.plan.batch)
        x, q = self.examples.batch(self.joined[places])
        v = None
        if self.rest is not None:
            x_rest, v_rest = self.examples.rest_batch(self.rest[places])
            x, v = np.concatenate([x, x_rest]), self._targets(v_rest)
        batch = self._input(x, self.augment[phase.augment], key(self.seed, "augment", self.t, step))
        return Joint(batch, self._targets(q), v)

    def _input(self, rows: np.ndarray, augment: Callable, seed: int) -> torch.Tensor:
        """Images augmented as uint8 and then in [0, 1], channels last in memory; features as they are."""
        x = torch.from_numpy(np.ascontiguousarray(rows)).to(self.device)
        if x.ndim == 2:
            return x.float()
        return augment(x.permute(0, 3, 1, 2), torch.Generator().manual_seed(seed)).float().div_(255)

    def _targets(self, p: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(p).to(self.device, torch.float32)


def mean_level(x: Images) -> tuple[int, ...]:
    """The mean colour of a set, 0 to 255: what crops, cutouts and turned corners are filled with."""
    sample = x[np.linspace(0, len(x) - 1, min(len(x), 10_000)).astype(np.int64)]
    return tuple(int(level) for level in sample.reshape(-1, sample.shape[-1]).mean(axis=0).round())


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
