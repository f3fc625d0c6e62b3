"""A peer is a value: its settings, those of the originals where nothing is said, and how a number of images becomes steps."""

from bisect import bisect_right
from dataclasses import dataclass
from math import cos, pi
from typing import Any, Literal, get_args

from odst.errors import UserError

Method = Literal["fixmatch", "openmatch", "pseudo"]
Fall = Literal["cosine", "linear"]
FALLS = get_args(Fall)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One training of one peer."""

    method: Method
    images: int  # that may go through the network in training, every view counted
    seed: int = 0
    network: str = "small"
    lr: float = 0.03  # the largest
    rise: float = 0.0  # share of the steps in which it rises along a line, from a tenth
    fall: Fall = "cosine"  # cos(7π/16 · progress), as in all the originals, or a line down to 0
    cutout: int = 0  # pixels cut out of the labelled images, as odst does; 0 as in the originals
    batch: int = 64  # labelled images in a step
    mu: int = 7  # pool images in a step, for one labelled
    threshold: float = 0.95  # confidence from which a pseudo-label counts
    warm_up: float = 0.0  # share of the steps; openmatch: before its FixMatch phase; pseudo: until the weight is 1
    weight_decay: float = 5e-4  # not on biases and batch-norm
    oem: float = 0.1  # openmatch: weight of the open-set entropy
    socr: float = 0.5  # openmatch: weight of the soft open-set consistency
    looks: int = 10  # openmatch: how often outliers are sorted out of the whole pool
    memory: float = 0.05  # share of the steps that the running mean of the weights looks back over, at most 1,000 steps

    def __post_init__(self) -> None:
        if self.lr <= 0 or min(self.mu, self.batch, self.looks) < 1:
            raise UserError(
                f"peers: lr, mu, batch and looks are above 0, got {self.lr:g}, {self.mu}, {self.batch} and {self.looks}."
            )
        if not (0 <= self.threshold <= 1 and 0 <= self.warm_up < 1):
            raise UserError(
                f"peers: threshold and warm-up are shares of 1, got {self.threshold:g} and {self.warm_up:g}."
            )
        if self.fall not in FALLS or self.cutout < 0:
            raise UserError(
                f"peers: fall is {' or '.join(FALLS)} and cutout a width, got {self.fall!r} and {self.cutout}."
            )
        if not 0 <= self.rise < 1:
            raise UserError(f"peers: rise is a share of the steps below 1, got {self.rise:g}.")
        if self.method == "fixmatch" and self.warm_up:
            raise UserError(f"peers: fixmatch has no warm-up, got {self.warm_up:g}. Leave it out.")


# OpenMatch's public code takes every pseudo-label of an inlier, whatever its confidence. Its warm-up is 10 of 512 epochs of 1,024
# steps, ten thousand steps: as many are a whole training here, so it is a share that the new head needs to learn anything.
METHODS: dict[str, dict[str, Any]] = {
    "fixmatch": {"mu": 7, "threshold": 0.95},
    "openmatch": {"mu": 2, "threshold": 0.0, "warm_up": 0.2},
    "pseudo": {"mu": 1, "threshold": 0.95, "warm_up": 0.4},
}


def settings_of(method: str, images: int, seed: int, **changes: Any) -> Settings:
    """The original's settings, but for what is said otherwise; None says nothing."""
    if method not in METHODS:
        raise UserError(f"peers: there is no method {method!r}. Choose {', '.join(METHODS)}.")
    said = {name: value for name, value in changes.items() if value is not None}
    return Settings(**({"method": method, "images": images, "seed": seed} | METHODS[method] | said))


def rate(s: Settings, progress: float) -> float:
    """The learning rate after this share of the steps."""
    if progress < s.rise:
        return s.lr * (0.1 + 0.9 * progress / s.rise)
    done = (progress - s.rise) / (1 - s.rise)
    return s.lr * (cos(7 * pi / 16 * done) if s.fall == "cosine" else 1 - done)


def rejections(s: Settings, steps: int) -> list[int]:
    """The steps before which OpenMatch looks at the whole pool, at even distances; the first begins its FixMatch phase.

    The original looks every 1,024 steps, some five hundred times.
    """
    if s.method != "openmatch":
        return []
    begin = round(s.warm_up * steps)
    return sorted({begin + i * (steps - begin) // s.looks for i in range(s.looks)})


def images_by(s: Settings, step: int, looks: list[int]) -> int:
    """Images through the network in the first `step` steps: their views."""
    views = {"fixmatch": 1 + 2 * s.mu, "openmatch": 2 + 2 * s.mu, "pseudo": 1 + s.mu}[s.method]
    fixmatch_phase = max(0, step - looks[0]) if looks else 0
    return step * s.batch * views + fixmatch_phase * s.batch * 2 * s.mu


def images_of(s: Settings, steps: int) -> int:
    """Images through the network in a training of so many steps."""
    return images_by(s, steps, rejections(s, steps))


def steps_of(s: Settings) -> int:
    """The most steps that the images are enough for."""
    steps = bisect_right(range(1, s.images + 1), s.images, key=lambda n: images_of(s, n))
    if steps == 0:
        raise UserError(
            f"peers: {s.images} images are not enough for one step of {s.method}, which takes {images_of(s, 1)}."
        )
    return steps


def decay_of(s: Settings, steps: int) -> float:
    """The originals' 0.999 looks back over 1,000 of a million steps; on a short training it would hold the first weights."""
    return 1 - 1 / min(1000, max(2, s.memory * steps))


def momentum_of(decay: float) -> float:
    """Batch-norm's statistics forget ten times as fast as the running mean of the weights: between the originals' 0.001, which
    a short training never fills, and torch's 0.1."""
    return min(0.1, max(0.001, 10 * (1 - decay)))
