"""What a config's [data] section names, loaded: a built-in world, an experiment of the paper, or sources of one's own."""

from dataclasses import replace
from pathlib import Path

import numpy as np

from odst.data.images import Counted, Data, Labelled, Pool
from odst.data.packing import build_pool
from odst.data.pool import is_packed, open_labels, open_pool
from odst.data.sets import DataSection, class_numbers, own_sets
from odst.data.sources import open_sources
from odst.data.workers import decoder_for
from odst.data.worlds import load_world
from odst.errors import UserError


def load_data(section: DataSection, *, seed: int, workspace: Path | None) -> Data:
    """The sets a config names. A pool that is not packed yet is packed into the folder `workspace`; without one it
    is only counted."""
    if section.world is not None:
        data = load_world(section.world, seed, section.pool_size)
    elif section.task is not None:
        data = _task(section, seed, workspace)
    elif section.labelled is not None:
        data = own_sets(section, seed)
        if section.pool is not None:
            data = replace(data, pool=load_pool(section, workspace, data.classes))
    else:
        raise UserError('data: name a set. Give data.labelled and data.pool, or data.task, or data.world = "digits".')
    return with_val_in(data) if section.join_val_in else data


def with_val_in(data: Data) -> Data:
    """T ∪ val_in as the labelled set."""
    T, val_in = data.labelled, data.val_in
    both = Labelled(np.concatenate([T.x[:], val_in.x[:]]), np.concatenate([T.y, val_in.y]))
    return replace(data, labelled=both)


def _task(section: DataSection, seed: int, workspace: Path | None) -> Data:
    from odst.data.named.catalogue import CATALOGUE  # the catalogue's downloaders are slow to import
    from odst.data.named.tasks import load_task, task_classes

    assert section.task is not None
    named = isinstance(section.pool, str) and section.pool.partition(":")[0] in CATALOGUE
    if section.excluded and (named or section.pool is None):
        raise UserError(
            f"data.excluded: it names images of a packed pool, and {section.pool or 'no pool'} is none. "
            f"Pack it with `odst pool build {section.pool or 'SOURCE'} --out POOL` and set data.pool to that."
        )
    pool: Pool | str | None = section.pool  # type: ignore[assignment]
    if not named and section.pool is not None:
        pool = load_pool(section, workspace, task_classes(section.task) if section.pool_truth else ())
    outs = () if section.out_test else None  # one's own in place of the task's
    data = load_task(section.task, pool, seed=seed, out_tests=outs, pool_truth=section.pool_truth)
    own = {name.partition(":")[0]: section.read(specs).x for name, specs in section.out_test.items()}
    return replace(data, out_tests=data.out_tests | own)


def load_pool(section: DataSection, workspace: Path | None, classes: tuple[str, ...]) -> Pool:
    """The packed pool a config names, or its sources packed into the run directory."""
    assert section.pool is not None
    specs = (section.pool,) if isinstance(section.pool, str) else section.pool
    lists = (section.excluded,) if isinstance(section.excluded, str) else section.excluded
    if len(specs) == 1 and is_packed(Path(specs[0])):
        path = Path(specs[0])
    elif workspace is None:
        sources = open_sources(specs)
        decoder = decoder_for(sources, section.size, section.fit)
        return Pool(Counted((sum(source.count() for source in sources), *decoder.row), decoder.dtype))
    else:
        path = workspace
        build_pool(specs, path, size=section.size, fit=section.fit)
    pool = open_pool(path, lists)
    if not section.pool_truth:
        return pool
    labels, truth = open_labels(path), np.empty(len(pool), np.int64)
    for start in range(0, len(pool), 1 << 16):
        rows = np.arange(start, min(start + (1 << 16), len(pool)))
        truth[rows] = class_numbers("pool", labels[rows], classes, foreign=-1)
    return replace(pool, truth=truth)
