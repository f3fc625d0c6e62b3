"""What a config's [data] section names, loaded: a built-in world, an experiment of the paper, or sources of one's own."""

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np

from odst.data.embedding import embed_pool
from odst.data.encoding import Encoding
from odst.data.features import has_features, open_features
from odst.data.images import Counted, Data, Labelled, Pool, is_counted, is_image
from odst.data.packing import build_pool
from odst.data.pictures import pictures_of
from odst.data.pool import open_labels, open_pool
from odst.data.sets import DataSection, class_numbers, own_sets
from odst.data.sources import open_sources, packed_pool
from odst.data.vectors import Embedder
from odst.data.workers import decoder_for
from odst.data.worlds import load_world
from odst.errors import UserError

log = logging.getLogger("odst")

LARGEST_IN_MEMORY = 200_000  # images of a built-in world or task that are embedded anew in every run


def load_data(section: DataSection, *, seed: int, workspace: Path | None, encoding: Encoding | None = None) -> Data:
    """The sets a config names. A pool that is not packed yet is packed into the folder `workspace`; without one it
    is only counted. With an encoding (`open_encoding`) they are vectors, and the pool has its images as pictures."""
    if section.world is not None:
        data = load_world(section.world, seed, section.pool_size)
        data = data if encoding is None else _encoded(data, encoding)
    elif section.task is not None:
        data = _task(section, seed, workspace)
        data = data if encoding is None else _encoded(data, encoding)
    elif section.labelled is not None:
        data = own_sets(section, seed, encoding)
        if section.pool is not None:
            data = replace(data, pool=load_pool(section, workspace, data.classes, encoding))
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


def open_encoding(section: DataSection, workspace: Path | None, embedder: Embedder) -> Encoding:
    """How a run sees. A pool that has no vectors of this backbone is given them first; without a workspace it is not."""
    if section.pool is None or section.labelled is None:
        return Encoding(embedder)
    path = _packed(section)
    if path is None and workspace is not None:
        path = workspace
        build_pool(section.pool, path, size=section.size, fit=section.fit, encoder=embedder.spec)
    if path is None:
        return Encoding(embedder)
    if not has_features(path, embedder.identity):
        if workspace is None:
            return Encoding(embedder)
        log.info("%s: it has no vectors of %s yet; they become a column of it", path, embedder.identity)
        embed_pool(path, embedder.spec)
    columns = open_features(path, embedder.identity, embedder.spec).manifests
    if fits := {column["fit"] for column in columns} - {section.fit}:
        raise UserError(
            f"{path}: its vectors are of pictures made square by {min(fits)!r}, and data.fit is {section.fit!r}: one picture would "
            f"have two vectors. Set data.fit = {min(fits)!r}, or pack the pool again."
        )
    sides = {column.get("side") for column in columns}
    if len(sides) > 1:
        raise UserError(
            f"{path}: of the pools that it joins some were embedded from originals and some from stored pixels. Embed "
            "them all in one way."
        )
    encoding = Encoding(embedder, sides.pop())
    if encoding.side is not None:
        log.warning(
            "%s: its vectors were made from stored pixels of %d a side, so all other sets go through as many. For "
            "vectors of the originals delete its features and type `odst pool embed`.", path, encoding.side
        )  # fmt: skip
    return encoding


def _encoded(data: Data, encoding: Encoding) -> Data:
    """Sets that come as arrays, through the backbone."""
    seen = encoding.embed
    pool, test = data.pool, data.test
    if pool is not None:
        if len(pool) > LARGEST_IN_MEMORY:
            raise UserError(
                f"model.backbone: a pool of {len(pool):,} images is embedded as a column of a packed one. "
                "Pack it with `odst pool build`, and set data.labelled and data.pool."
            )
        if is_counted(pool.x):  # all of it, or what a task adds to it is there already
            pool = replace(pool, x=_to_come(len(pool), encoding), pictures=pool.x)
        else:
            pool = replace(pool, x=seen(pool.x), pictures=pool.x, identity=pool.id)
    return replace(
        data,
        labelled=replace(data.labelled, x=seen(data.labelled.x)),
        pool=pool,
        val_in=replace(data.val_in, x=seen(data.val_in.x)),
        val_out=None if data.val_out is None else seen(data.val_out),
        test=None if test is None else replace(test, x=seen(test.x)),
        out_tests={name: seen(x) for name, x in data.out_tests.items()},
    )


def _packed(section: DataSection) -> Path | None:
    """The packed pool that the section names; None where it names sources."""
    specs = (section.pool,) if isinstance(section.pool, str) else section.pool or ()
    return packed_pool(specs[0]) if len(specs) == 1 else None


def load_pool(
    section: DataSection, workspace: Path | None, classes: tuple[str, ...], encoding: Encoding | None = None
) -> Pool:
    """The packed pool a config names, or its sources packed into the run directory."""
    assert section.pool is not None
    lists = (section.excluded,) if isinstance(section.excluded, str) else section.excluded
    path = _packed(section)
    if path is None and workspace is None:
        sources = open_sources(section.pool)
        decoder, count = decoder_for(sources, section.size, section.fit), sum(source.count() for source in sources)
        images = Counted((count, *decoder.row), decoder.dtype)
        return Pool(images) if encoding is None else Pool(_to_come(count, encoding), pictures=images)
    if path is None:
        assert workspace is not None
        path = workspace
        if encoding is None:  # else it is packed with its vectors already
            build_pool(section.pool, path, size=section.size, fit=section.fit)
    pool = open_pool(path, lists)
    if encoding is not None:
        there = has_features(path, encoding.identity)
        x = open_features(path, encoding.identity, encoding.embedder.spec).x if there else _to_come(len(pool), encoding)
        pool = replace(pool, x=x, pictures=pool.x)
    elif not is_image(pool.x) and pool.sources is not None:
        pool = replace(pool, pictures=pictures_of(pool.sources, len(pool)))
    if not section.pool_truth:
        return pool
    labels, truth = open_labels(path), np.empty(len(pool), np.int64)
    for start in range(0, len(pool), 1 << 16):
        rows = np.arange(start, min(start + (1 << 16), len(pool)))
        truth[rows] = class_numbers("pool", labels[rows], classes, foreign=-1)
    return replace(pool, truth=truth)


def _to_come(rows: int, encoding: Encoding) -> Counted:
    return Counted((rows, encoding.identity.dimension), np.dtype(np.float16))
