"""All pairs of images within a radius in L2: exact, and without computing most of the distances.

An orthonormal projection P never lengthens a difference, and neither does taking the norm of what it leaves over:

    |a - b|² ≥ |Pa - Pb|² + (|a - PᵀPa| - |b - PᵀPb|)²

So a pair whose few dozen projected dimensions are farther apart than the radius is farther apart. P comes from a PCA of
the references, the bound is a matrix product in float32, and it is applied in stages of growing width; what survives is
measured in exact integers, for the pixels are uint8. Every rounding error of the float32 part is bounded from above
(Higham, Accuracy and Stability, ch. 3) and added to the radius, so no pair is lost to pruning.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from math import ceil, sqrt

import numpy as np
import torch

from odst.data.images import Images, check_images, is_image
from odst.errors import UserError
from odst.seeds import key

BLOCK = 1024  # pool images at a time: their floats and one tile of scores stay in the cache
TILE = 8192  # references at a time
STAGES = (64, 192)  # widths of the projection; the first is a matrix product over all pairs
BASIS_SAMPLE = 2048  # references the projection is fitted to; any basis is right, this one is sharp
SEGMENT = 512  # terms summed in float32 at a time: the error bound grows with it
U = 2.0**-24  # unit roundoff of float32


@dataclass(frozen=True)
class Pairs:
    """Pairs within the radius. L2 with pixels in [0,1] is sqrt(squared) / 255."""

    pool_id: np.ndarray  # (k,) int64
    reference_id: np.ndarray  # (k,) int64
    squared: np.ndarray  # (k,) int64: the squared distance of the uint8 pixels

    def __len__(self) -> int:
        return len(self.pool_id)


def near_pairs(pool: Images, reference: Images, radius: float) -> Iterator[Pairs]:
    """Every pair with L2 < radius (pixels in [0,1]), one block of pool images after the other, each read once."""
    search = Search(reference, radius)
    for start in range(0, len(pool), BLOCK):
        pairs = search.within(pool[start : start + BLOCK])
        yield Pairs(pairs.pool_id + start, pairs.reference_id, pairs.squared)


class Search:
    """The references made ready: their bound vectors per stage. Memory grows with the references only."""

    def __init__(self, reference: Images, radius: float):
        check_pictures("reference", reference)
        if len(reference) == 0:
            raise UserError(
                "reference: the set is empty, so there is nothing to guard against. Name a set with images."
            )
        if not radius > 0:
            raise UserError(f"radius is a distance above 0, got {radius}. The paper's is 2000/255 = 7.843.")
        if torch.get_float32_matmul_precision() != "highest":
            raise UserError(
                f"torch.get_float32_matmul_precision() is {torch.get_float32_matmul_precision()!r}, which rounds products "
                'so far that pairs could be lost. Call torch.set_float32_matmul_precision("highest") before the search.'
            )
        self.shape = tuple(reference.shape[1:])
        self.limit = squared_limit(radius)
        self.radius = sqrt(self.limit)  # in steps of 1/255
        self.reference = _rows(reference[:])  # (n, D) uint8
        widths = sorted({min(width, *self.reference.shape) for width in STAGES})
        basis = _principal_basis(self.reference, max(widths))  # (D, d)
        self.stages = [Stage(basis[:, :width].contiguous(), self.radius) for width in widths]
        self.bounds: list[torch.Tensor] = []  # per stage (n, width + 3)
        for stage in self.stages:
            blocks = self.reference.split(BLOCK)
            self.bounds.append(torch.cat([stage.reference_side(*_centred(block)) for block in blocks]))

    def within(self, rows: np.ndarray) -> Pairs:
        """All pairs of these pool images, numbered from 0, ordered by image and then by reference."""
        check_pictures("pool", rows)
        if tuple(rows.shape[1:]) != self.shape:
            raise UserError(
                f"pool images are {rows.shape[2]}×{rows.shape[1]} and the references {self.shape[1]}×{self.shape[0]}. "
                "Bring both to one size; `odst dedup` does it for the references."
            )
        x, squares = _centred(_rows(rows))
        # Each stage leaves a smaller rectangle (images that still have a candidate) × (references that are one):
        # a wide product on a rectangle is faster than gathering its few pairs one by one.
        mine, theirs = torch.arange(len(x)), torch.arange(len(self.reference))
        for stage, bounds in zip(self.stages, self.bounds, strict=True):
            a = stage.pool_side(x, squares)
            i, j = _where(partial(_may_be_near, a, bounds), theirs)
            left = _used(i, len(mine))
            x, squares, mine = x[left], squares[left], mine[left]
            theirs = theirs[_used(j, len(theirs))]
        squared = [torch.empty(0, dtype=torch.float64)]

        def near(tile: torch.Tensor) -> torch.Tensor:
            distances = _squared_distances(x, squares, *_centred(self.reference[tile]))
            squared.append(distances[distances < self.limit])
            return distances < self.limit

        i, j = _where(near, theirs)
        order = np.lexsort((j, i))
        found = torch.cat(squared).numpy()[order].astype(np.int64)
        return Pairs(mine.numpy()[i[order]], theirs.numpy()[j[order]], found)


class Stage:
    """One width of the projection. A pair within the radius has pool_side(a) · reference_side(b) ≥ 0.

    With s = (Pa, |remainder of a|) a pair is kept if |s_a - s_b|² ≤ (radius + δ_a + δ_b)², where δ bounds how far s may
    lie from its exact value. Written as a product: s_a·s_b + bias_a + bias_b + radius²/2 ≥ 0.
    """

    def __init__(self, basis: torch.Tensor, radius: float):
        D, d = basis.shape
        self.radius = radius
        self.parts = torch.nn.functional.pad(basis, (0, 0, 0, -D % SEGMENT)).view(-1, SEGMENT, d)
        double = basis.double()
        skew = float(torch.linalg.matrix_norm(double.T @ double - torch.eye(d, dtype=torch.float64))) + 1e-12
        terms = SEGMENT + len(self.parts) + 2
        self.coordinates_error = sqrt(d) * _gamma(terms) * (1 + skew) + skew  # of |computed Pa - Pa|, relative to |a|
        self.remainder_error = 2.01 * self.coordinates_error + 2 * skew  # of the squared remainder, relative to |a|²
        self.product_error = _gamma(d + 8)  # of a score, relative to |a|² + |b|²

    def pool_side(self, x: torch.Tensor, squares: torch.Tensor) -> torch.Tensor:
        s, bias = self._bound(x, squares)
        return torch.cat([s, bias, torch.ones(len(s), 1)], 1)  # (b, d + 3)

    def reference_side(self, x: torch.Tensor, squares: torch.Tensor) -> torch.Tensor:
        s, bias = self._bound(x, squares)
        return torch.cat([s, torch.ones(len(s), 1), bias + self.radius**2 / 2 * (1 + self.product_error)], 1)

    def _bound(self, x: torch.Tensor, squares: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """`x` (b, D') centred pixels, padded to whole segments; `squares` (b,) their exact squared norms in float64."""
        segments = _segments(x).transpose(0, 1)
        coordinates = torch.bmm(segments, self.parts).sum(0)  # (b, d)
        inside = coordinates.double().square().sum(1)
        remainder = (squares - inside).clamp(min=0).sqrt()
        slack = self.remainder_error * squares  # |√x - √y| ≤ |x - y| / √x, and ≤ √|x - y|
        delta = self.coordinates_error * squares.sqrt()
        delta = delta + torch.minimum(slack.sqrt(), slack / remainder.clamp(min=1e-9)) + U * remainder
        bias = self.radius * delta + delta.square() - (inside + remainder.square()) / 2
        bias = bias + 2 * self.product_error * (squares + delta.square() + self.radius * delta)
        return torch.cat([coordinates, remainder.float()[:, None]], 1), bias.float()[:, None]


def squared_limit(radius: float) -> int:
    """The smallest integer no squared pixel distance within the radius reaches: L2 < radius if and only if squared < it.

    The radius is read as the fraction it was meant to be, for 2000/255 · 255 is not 2000 in floating point.
    """
    return max(1, ceil((Fraction(radius).limit_denominator(10**6) * 255) ** 2))  # an exact copy is within any radius


def check_pictures(name: str, x: Images) -> None:
    if not is_image(x):
        raise UserError(
            f"{name}: these are feature vectors, and the leak guard compares pixels: L2, SSIM and LPIPS have no meaning "
            "on features. Run it on the images the features were made from."
        )
    check_images(name, x)


def _rows(x: np.ndarray) -> torch.Tensor:
    x = np.ascontiguousarray(x)
    return torch.from_numpy(x if x.flags.writeable else x.copy()).flatten(1)


def _centred(block: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pixels minus 128 in float32, padded with zeros to whole segments, and their exact squared norms."""
    x = block.float().sub_(128)
    if x.shape[1] % SEGMENT:
        x = torch.nn.functional.pad(x, (0, -x.shape[1] % SEGMENT))
    parts = _segments(x)  # 512 squares of at most 128² sum to 2^23: exact in float32
    return x, torch.linalg.vecdot(parts, parts).sum(1, dtype=torch.float64)


def _segments(x: torch.Tensor) -> torch.Tensor:
    """(b, D') as (b, segments, SEGMENT). Their number is worked out: of no rows at all, -1 could be any number."""
    return x.view(len(x), x.shape[1] // SEGMENT, SEGMENT)


def _principal_basis(reference: torch.Tensor, width: int) -> torch.Tensor:
    """Orthonormal columns, the directions of largest variation of the references first (randomised PCA around 128)."""
    step = max(1, len(reference) // BASIS_SAMPLE)
    x = reference[::step][:BASIS_SAMPLE].float() - 128
    generator = torch.Generator().manual_seed(key(0, "basis"))
    wide = min(width + 16, x.shape[1])
    q = torch.randn(x.shape[1], wide, generator=generator)
    for _ in range(2):
        q, _ = torch.linalg.qr(x.T @ (x @ q))
    y = (x @ q).double()
    _, rotation = torch.linalg.eigh(y.T @ y)  # ascending
    q, _ = torch.linalg.qr(q.double() @ rotation.flip(1)[:, :width])
    return q.float()


def _may_be_near(a: torch.Tensor, bounds: torch.Tensor, tile: torch.Tensor) -> torch.Tensor:
    return a @ bounds[tile].T >= 0


def _where(test: Callable[[torch.Tensor], torch.Tensor], theirs: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Where `test` holds, given the references tile by tile: row and column numbers, each tile's row by row."""
    rows, columns = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for start in range(0, len(theirs), TILE):
        holds = test(theirs[start : start + TILE]).numpy()
        flat = np.flatnonzero(holds)  # several times faster than torch's nonzero
        rows.append(flat // holds.shape[1])
        columns.append(flat % holds.shape[1] + start)
    return np.concatenate(rows), np.concatenate(columns)


def _used(numbers: np.ndarray, n: int) -> torch.Tensor:
    used = np.zeros(n, bool)
    used[numbers] = True
    return torch.from_numpy(used)


def _squared_distances(a: torch.Tensor, aa: torch.Tensor, b: torch.Tensor, bb: torch.Tensor) -> torch.Tensor:
    """Exact squared distances (len(a), len(b)) in float64.

    |a - b|² = |a|² + |b|² - 2 a·b, where a float32 product over one segment sums integers of at most 2^14 to less than
    2^24: no rounding in whatever order, and float64 adds up the segments.
    """
    distances = aa[:, None] + bb[None, :]
    for start in range(0, a.shape[1], SEGMENT):
        part = slice(start, start + SEGMENT)
        distances.sub_(a[:, part] @ b[:, part].T, alpha=2)
    return distances


def _gamma(n: int) -> float:
    return n * U / (1 - n * U)
