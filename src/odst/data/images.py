"""Arrays of images or features, in memory or on disk. An index is an identity: row j is one image for ever."""

import hashlib
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from odst.errors import UserError
from odst.progress import stage


class Images(Protocol):
    """Rows of images (uint8, m×H×W×3) or of features (float, m×D). A numpy array is one, a memory-mapped pool another."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: Any) -> np.ndarray: ...  # a slice or an int64 array


class Lookup(Protocol):
    """A text per pool row (its source URI, its content hash), fetched for a few rows at a time."""

    def __getitem__(self, rows: np.ndarray) -> Sequence[str]: ...


@dataclass(frozen=True)
class Counted:
    """Images whose number and shape are known, and nothing else yet: a pool that is still to be packed."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> np.ndarray:
        raise AssertionError("counted images cannot be read")


@dataclass(frozen=True)
class Labelled:
    """Images with their classes."""

    x: Images  # uint8 (n, H, W, 3), or float vectors (n, D)
    y: np.ndarray  # (n,) int64 in range(K)

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Pool:
    """U. A pool id is the int64 position of an image in `x`; an excluded id is in U no more."""

    x: Images  # uint8 (m, H, W, 3), or float vectors (m, D)
    excluded: np.ndarray = field(default_factory=lambda: np.empty(0, np.int64))  # pool ids, in any order
    sources: Lookup | None = None  # pool ids -> where each image came from
    hashes: Lookup | None = None  # pool ids -> content hashes
    truth: np.ndarray | None = None  # (m,) int64 class, or -1 for unrelated: for scoring only
    identity: str | None = None  # a hash of the whole pool where one is known already (a packed pool's manifest)
    pictures: Images | None = None  # what people see of it, where x holds vectors of these
    barred: np.ndarray = field(
        default_factory=lambda: np.empty((0, 2), np.int64)
    )  # (id, class): never selected as that

    def __post_init__(self) -> None:
        """Whoever looks an id up among the excluded may rely on their order."""
        ids = np.unique(np.asarray(self.excluded))
        if len(ids) and (ids.dtype.kind not in "iu" or ids[0] < 0 or ids[-1] >= len(self.x)):
            raise UserError(
                f"pool: excluded holds pool ids from 0 to {len(self.x) - 1}, got {ids.dtype} {ids[0]} to {ids[-1]}. "
                "For a mask give np.flatnonzero(mask)."
            )
        object.__setattr__(self, "excluded", ids.astype(np.int64))

    def __len__(self) -> int:
        return len(self.x)

    @cached_property
    def id(self) -> str:
        return self.identity or fingerprint(self.x)

    @property
    def shown(self) -> Images | None:
        """For galleries and sheets; None where there are only vectors."""
        return self.x if is_image(self.x) else self.pictures

    def source(self, ids: np.ndarray) -> Sequence[str]:
        return [f"row:{j}" for j in ids] if self.sources is None else self.sources[ids]

    def content_hash(self, ids: np.ndarray) -> Sequence[str]:
        return [content_hash(self.x[j : j + 1][0]) for j in ids] if self.hashes is None else self.hashes[ids]


@dataclass(frozen=True)
class Data:
    """What a run is given. `pool` may be a bare array; `test` and `out_tests` are read for scoring only."""

    labelled: Labelled  # T
    pool: Pool | None  # U
    val_in: Labelled  # calibrates, sets the in-thresholds, chooses the round
    val_out: Images | None = None  # images of none of the classes: sets the out-thresholds
    test: Labelled | None = None  # for scoring only
    out_tests: dict[str, Images] = field(default_factory=dict)  # for scoring only: other things, by name
    classes: tuple[str, ...] = ()  # names; without them the numbers

    def __post_init__(self) -> None:
        if self.pool is not None and not isinstance(self.pool, Pool):
            object.__setattr__(self, "pool", Pool(self.pool))
        if not self.classes:
            K = int(max(self.labelled.y.max(initial=-1), self.val_in.y.max(initial=-1))) + 1
            object.__setattr__(self, "classes", tuple(map(str, range(K))))

    @property
    def K(self) -> int:
        return len(self.classes)


def is_counted(x: Images) -> bool:
    """Whether some of it is only counted, and cannot be read yet."""
    return isinstance(x, Counted) or any(is_counted(part) for part in getattr(x, "parts", ()))


def is_image(x: Images) -> bool:
    return len(x.shape) == 4


def content_hash(row: np.ndarray) -> str:
    """The identity of one image by what it shows: shape, type and bytes."""
    row = np.ascontiguousarray(row)
    head = f"{row.dtype.str}{row.shape}".encode()
    return hashlib.blake2b(head + row.tobytes(), digest_size=16).hexdigest()


def fingerprint(x: Images, y: np.ndarray | None = None, block: int = 65536) -> str:
    """A hash of a whole set, streamed."""
    state = hashlib.blake2b(f"{x.dtype.str}{x.shape}".encode(), digest_size=16)
    with stage("fingerprint", len(x), "images") if len(x) > 2 * block else nullcontext(lambda n: None) as advance:
        for start in range(0, len(x), block):
            part = np.ascontiguousarray(x[start : start + block])
            state.update(part.data)
            advance(len(part))
    if y is not None:
        state.update(np.ascontiguousarray(y, dtype=np.int64).data)
    return state.hexdigest()


def check_images(name: str, x: Images, like: Images | None = None) -> None:
    """Raise one line for what is neither images nor features, or of another shape than `like`."""
    if len(x.shape) == 4:
        if x.dtype != np.uint8 or x.shape[3] != 3:
            raise UserError(
                f"{name}: images are uint8 of shape (n, height, width, 3), got {x.dtype} {tuple(x.shape)}. "
                "Convert them, or build a pool with `odst pool build`."
            )
    elif len(x.shape) == 2:
        if not np.issubdtype(x.dtype, np.floating):
            raise UserError(
                f"{name}: features are a float matrix (n, d), got {x.dtype}. Convert with .astype('float32')."
            )
    else:
        raise UserError(
            f"{name}: expected images (n, height, width, 3) or features (n, d), got shape {tuple(x.shape)}."
        )
    if like is not None and tuple(x.shape[1:]) != tuple(like.shape[1:]):
        raise UserError(
            f"{name}: its rows have shape {tuple(x.shape[1:])} but the labelled rows have {tuple(like.shape[1:])}. "
            "All sets must agree; `odst pool build --size` brings images to one size."
        )
