"""One pass of a pool against reference sets, shard by shard, each shard's findings a file. A pass goes on where it stopped.

    DIR/.dedup/pass.json            what the pass is about: pool, references, rule
    DIR/.dedup/part-00000.parquet   candidates and exclusions of one shard of the pool

The folder stands for an unfinished pass and is gone when excluded.parquet is there.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from odst.data.images import Images, Pool, fingerprint
from odst.data.views import Concatenated
from odst.data.visible import files_of_images
from odst.duplicates.rule import WIDER, Found, Rule, judge, merged, nearest, plain
from odst.duplicates.search import BLOCK, Search, check_pictures
from odst.engine.interface import share
from odst.engine.parts import Note, complete
from odst.engine.processors import threads
from odst.errors import UserError
from odst.files import digest, sha256, whole, write_json
from odst.vision.perceptual import LpipsWeights, check_lpips_size

SHARD = 32 * BLOCK  # pool images between two saves


@dataclass(frozen=True)
class Guard:
    """What a pool is guarded against. The sets are numbered in this order: references, exact, listed."""

    references: Mapping[str, Images]  # near duplicates of these leave
    rule: Rule = field(default_factory=Rule)
    weights: LpipsWeights | None = None
    exact: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # content hash -> row: exact copies leave
    listed: Mapping[str, np.ndarray] = field(default_factory=dict)  # sorted pool ids that leave

    @property
    def names(self) -> list[str]:
        return [*self.references, *self.exact, *self.listed]

    @property
    def alike_by(self) -> tuple[str, ...]:
        return self.rule.alike_by(self.weights)


def check_guard(pool: Pool, guard: Guard) -> None:
    """Raise one line for sets that cannot be compared."""
    if not guard.references:
        raise UserError("--against: name at least one reference set, for example the test set.")
    if len(set(guard.names)) < len(guard.names):
        raise UserError(f"{', '.join(guard.names)}: two sets have one name. Give each its own.")
    check_pictures("the pool", pool.x)
    for name, x in guard.references.items():
        check_pictures(name, x)
        if len(x) == 0:
            raise UserError(
                f"{name}: this reference set is empty, so it guards against nothing. Name a set with images."
            )
        if x.shape[1:] != pool.x.shape[1:]:
            raise UserError(
                f"{name}: its images are {x.shape[2]}×{x.shape[1]} and the pool's {pool.x.shape[2]}×{pool.x.shape[1]}. "
                "Bring both to one size; for files `odst dedup` does it."
            )
    height, width, _ = pool.x.shape[1:]
    if guard.weights is not None:
        check_lpips_size(height, width)
    farthest = sqrt(3 * height * width)
    if not guard.rule.radius < farthest:
        raise UserError(
            f"radius is {guard.rule.radius:g}, but no two images of {width}×{height} are farther apart than {farthest:.4g}. "
            "Give a smaller one: pixels are in [0,1], and the paper's for 32×32 is 2000/255 = 7.843."
        )


def describe(pool: Pool, guard: Guard) -> dict[str, Any]:
    """What decides the outcome of a pass, as hashes: two passes with the same description find the same."""
    return {
        "pool": pool.id,
        "images": len(pool),
        "sets": guard.names,  # in order: the parts of a pass know a set by its number
        "references": {name: fingerprint(x) for name, x in guard.references.items()},
        "exact_against": {name: digest(sorted(hashes.items())) for name, hashes in guard.exact.items()},
        "listed": {name: digest(ids.tolist()) for name, ids in guard.listed.items()},
        "rule": asdict(guard.rule),
        "lpips_weights": None if guard.weights is None else guard.weights.fingerprint(),
    }


def scan(pool: Pool, guard: Guard, about: Mapping[str, Any], folder: Path) -> None:
    """Write the part of every shard that has none yet. `about` is what `describe` says."""
    begin(folder, about)
    sizes = [min(SHARD, len(pool) - start) for _, start in _parts(folder, len(pool))]
    make = Scanner(pool, guard, folder.absolute())
    seen = files_of_images(pool.x) if isinstance(pool.x, Concatenated) else []  # a single array travels
    complete(folder, {"pass": digest(dict(about))}, sizes, make, name="leak guard", reads=seen)


@dataclass(frozen=True)
class Scanner:
    """Makes the function that looks through a shard of the pool, by its number."""

    pool: Pool
    guard: Guard
    folder: Path

    def __call__(self) -> Callable[[int], Note]:
        pool, guard = self.pool, self.guard
        together = np.concatenate([x[:] for x in guard.references.values()])
        search = Search(together, guard.rule.radius * WIDER)
        ends = np.cumsum([len(x) for x in guard.references.values()])

        def part(number: int) -> Note:
            file, start = _parts(self.folder, len(pool))[number]
            stop = min(start + SHARD, len(pool))
            found = [*_copies(pool, start, stop, guard), *_listed(start, stop, guard)]
            with threads(1):  # LPIPS and SSIM are floats: their bits are those of one thread, whoever looks
                for first in range(start, stop, BLOCK):
                    rows = pool.x[first : min(first + BLOCK, stop)]
                    pairs = search.within(rows)
                    pairs = type(pairs)(pairs.pool_id + first, pairs.reference_id, pairs.squared)
                    near = nearest(pairs, ends)
                    found.append(judge(near, rows, first, list(guard.references.values()), guard.rule, guard.weights))
            _write_part(merged(found), file)
            return {"images": stop - start}

        return part


def read_parts(folder: Path, m: int) -> Iterator[Found]:
    """The findings of a whole pass, shard by shard."""
    for file, _ in _parts(folder, m):
        table = pq.read_table(file)
        yield Found(*(table[field.name].to_numpy().astype(_TYPES[field.name]) for field in fields(Found)))


def finished(out: Path, about: Mapping[str, Any]) -> dict[str, Any] | None:
    """dedup.json if `out` holds the result of this very pass. Raise one line if it is about another state of the pool."""
    before = _read(out / "dedup.json")
    for file, then in [
        ("dedup.json", before.get("about", {})),
        (".dedup/pass.json", _read(out / ".dedup" / "pass.json")),
    ]:
        if then and then.get("pool") != about["pool"]:
            raise UserError(
                f"{out / file}: the pool has changed since this pass ({str(then.get('pool'))[:12]} then, "
                f"{about['pool'][:12]} now), so its findings name other images. Begin anew with --fresh, or choose another --out."
            )
    excluded = out / "excluded.parquet"
    same = before.get("about") == about and excluded.is_file() and sha256(excluded) == before.get("excluded_sha256")
    return before if same else None


def forgotten(out: Path, about: Mapping[str, Any]) -> list[str]:
    """The sets an earlier pass in `out` guarded against and this one does not."""
    kinds = ("references", "exact_against", "listed")
    then = _read(out / "dedup.json").get("about", {})
    now = {hash for kind in kinds for hash in about[kind].values()}
    return [name for kind in kinds for name, hash in then.get(kind, {}).items() if hash not in now]


def begin(folder: Path, about: Mapping[str, Any], fresh: bool = False) -> None:
    """A folder for the parts of this pass; what another one left behind is removed first."""
    if fresh or _read(folder / "pass.json") != about:
        for file in sorted(folder.glob("*")):  # pass.json after its parts: they must not be taken for another pass's
            file.unlink()
        write_json(folder / "pass.json", about)
    if share() is None:
        for remnant in folder.glob(".*.part"):  # of a process that was killed
            remnant.unlink()


def _parts(folder: Path, m: int) -> list[tuple[Path, int]]:
    return [(folder / f"part-{start // SHARD:05d}.parquet", start) for start in range(0, m, SHARD)]


def _copies(pool: Pool, start: int, stop: int, guard: Guard) -> Iterator[Found]:
    if guard.exact:
        hashes = pool.content_hash(np.arange(start, stop))
        for number, known in enumerate(guard.exact.values(), len(guard.references)):
            rows = [(i, known[hash]) for i, hash in enumerate(hashes, start) if hash in known]
            ids = np.array(rows, np.int64).reshape(-1, 2)
            yield plain(ids[:, 0], number, ids[:, 1], 0, "exact")


def _listed(start: int, stop: int, guard: Guard) -> Iterator[Found]:
    for number, ids in enumerate(guard.listed.values(), len(guard.references) + len(guard.exact)):
        here = ids[slice(*np.searchsorted(ids, [start, stop]))]
        yield plain(here, number, np.full(len(here), -1), -1, "listed")


_TYPES = dict(zip((f.name for f in fields(Found)), ("i8", "i8", "i8", "i8", "f4", "f4", "<U10"), strict=True))


def _write_part(found: Found, file: Path) -> None:
    with whole(file) as temporary:
        pq.write_table(pa.table({f.name: getattr(found, f.name) for f in fields(Found)}), temporary, compression="zstd")


def _read(file: Path) -> dict[str, Any]:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
