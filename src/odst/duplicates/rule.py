"""Which pool images leave, and why: the paper's rule on top of the search.

Per reference set a pool image is compared with its nearest reference. Below `l2` it leaves; below `radius` it leaves if the
two also look alike: LPIPS < `lpips` and 1 - SSIM < `dissim`. Every comparison is strict. Without LPIPS' weights L2 alone
decides: SSIM alone finds photographs of one kind alike, and excludes far too much.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from math import inf
from typing import Literal

import numpy as np

from odst.data.images import Images
from odst.duplicates.search import Pairs, squared_limit
from odst.errors import UserError
from odst.vision.perceptual import LpipsWeights, Scale, lpips, ssim

Reason = Literal["", "l2", "perceptual", "exact", "listed"]  # "" is a candidate that stays

WIDER = 1.02  # the search goes this much beyond the radius, so that pairs just outside it can be shown
NEARLY = 0.1  # LPIPS is measured for pairs that miss the SSIM threshold by less than this: the sheets show them
BATCH = 64  # pairs measured at a time: their planes stay in the cache


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The thresholds, with the paper's values. Distances are L2 with pixels in [0,1]."""

    radius: float = 2000 / 255  # candidates
    l2: float = 3.0
    lpips: float = 0.025
    dissim: float = 0.4  # of 1 - SSIM
    # The paper's 0.025 fits images left in [0,1], where LPIPS defines [-1,1]: its scale comes with its threshold.
    lpips_input: Scale = "unit"
    ssim_alone: bool = False  # SSIM without LPIPS says what looks alike

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.type is float and not 0 <= value < inf:
                raise UserError(
                    f"{field.name} is a threshold of 0 or more, got {value}. The paper's is {field.default:.4g}."
                )
        if not 0 < self.l2 <= self.radius:
            raise UserError(
                f"l2 is {self.l2} and radius {self.radius:.4g}: l2 lies above 0 and at most at the radius. "
                "Nothing beyond the radius is looked at."
            )

    def alike_by(self, weights: LpipsWeights | None) -> tuple[str, ...]:
        """The measures by which two candidates look alike; none: L2 alone decides."""
        if self.ssim_alone:
            return ("SSIM",)
        return () if weights is None else ("SSIM", "LPIPS")


@dataclass(frozen=True)
class Found:
    """Pool images with the reference that speaks against them, ordered by pool id. -1 and nan stand for not measured."""

    pool_id: np.ndarray  # (k,) int64
    set: np.ndarray  # (k,) int64: number of the reference set
    reference_id: np.ndarray  # (k,) int64: row within that set
    squared: np.ndarray  # (k,) int64
    ssim: np.ndarray  # (k,) float32
    lpips: np.ndarray  # (k,) float32
    reason: np.ndarray  # (k,) str

    def __len__(self) -> int:
        return len(self.pool_id)

    def __getitem__(self, rows: np.ndarray) -> "Found":
        return Found(*(getattr(self, field.name)[rows] for field in fields(self)))

    @property
    def l2(self) -> np.ndarray:
        return np.sqrt(self.squared.clip(min=0)) / 255


def merged(parts: Sequence[Found]) -> Found:
    """All rows, ordered by pool id and then by set."""
    columns = [np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(Found)]
    whole = Found(*columns)
    return whole[np.lexsort((whole.set, whole.pool_id))]


def plain(pool_id: np.ndarray, number: int, reference_id: np.ndarray, squared: int, reason: Reason) -> Found:
    """Rows that need no measuring: exact copies (`squared` 0) and listed ids (-1)."""
    n = len(pool_id)
    blank = np.full(n, np.nan, np.float32)
    ids = pool_id.astype(np.int64), np.full(n, number), reference_id.astype(np.int64)
    return Found(*ids, np.full(n, squared), blank, blank, np.full(n, reason, "<U10"))


def nearest(pairs: Pairs, ends: np.ndarray) -> Found:
    """Of each pool image and reference set the nearest pair (the first of equals). Set s ends before reference ends[s]."""
    number = np.searchsorted(ends, pairs.reference_id, side="right")
    order = np.lexsort((pairs.reference_id, pairs.squared, number, pairs.pool_id))
    i, s = pairs.pool_id[order], number[order]
    first = np.ones(len(order), bool)
    first[1:] = (i[1:] != i[:-1]) | (s[1:] != s[:-1])
    kept = order[first]
    starts = np.concatenate([[0], ends[:-1]])
    found = plain(pairs.pool_id[kept], 0, pairs.reference_id[kept] - starts[number[kept]], -1, "")
    return Found(
        found.pool_id, number[kept], found.reference_id, pairs.squared[kept], found.ssim, found.lpips, found.reason
    )


def judge(
    found: Found, pool: np.ndarray, first: int, references: Sequence[Images], rule: Rule, weights: LpipsWeights | None
) -> Found:
    """Measure each candidate and give it its reason. `pool` holds the images from id `first` on."""
    similar = np.full(len(found), np.nan, np.float32)
    distant = similar.copy()
    for start in range(0, len(found), BATCH):
        rows = np.arange(start, min(start + BATCH, len(found)))
        a = pool[found.pool_id[rows] - first]
        b = np.stack(
            [references[s][j : j + 1][0] for s, j in zip(found.set[rows], found.reference_id[rows], strict=True)]
        )
        similar[rows] = ssim(a, b)
        alike = 1 - similar[rows] < rule.dissim + NEARLY
        alike |= found.squared[rows] < squared_limit(rule.l2)
        if weights is not None and alike.any():
            distant[rows[alike]] = lpips(a[alike], b[alike], weights, rule.lpips_input)
    measures = rule.alike_by(weights)
    looks = (1 - similar < rule.dissim) & ("SSIM" in measures)
    if "LPIPS" in measures:
        looks &= distant < rule.lpips
    reason = np.where(looks & (found.squared < squared_limit(rule.radius)), "perceptual", "").astype("<U10")
    reason[found.squared < squared_limit(rule.l2)] = "l2"
    return Found(found.pool_id, found.set, found.reference_id, found.squared, similar, distant, reason)
