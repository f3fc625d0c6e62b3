"""The [data] section of a config, and the sets it names."""

import logging
import os
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from odst.data.images import Counted, Data, Images, Labelled, Pool
from odst.data.worlds import load_world
from odst.errors import UserError
from odst.seeds import stream

log = logging.getLogger("odst")

Sources = str | tuple[str, ...]  # any source that `odst pool build` takes, or several


class DataSection(BaseModel):
    """A built-in world, an experiment of the paper, or sources of one's own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    world: str | None = None  # a built-in open world: digits or photos
    pool_size: Annotated[int, Field(ge=1)] | None = None  # of a built-in world
    task: str | None = None  # the sets of an experiment of the paper: cifar10, cifar100 or svhn
    labelled: Sources | None = None
    pool: Sources | None = None
    val_in: Sources | Annotated[float, Field(gt=0, lt=1)] = 0.2  # a source, or a fraction of labelled, class by class
    val_out: Sources | None = None
    test: Sources | None = None
    out_test: dict[str, Sources] = {}
    corruptions: bool | str = (
        False  # score every round under the 15 corruptions too: true: of test; a folder: CIFAR-10-C
    )
    excluded: Sources = ()  # lists of pool ids to leave out, beside what `odst dedup` has left in the pool
    size: Annotated[int, Field(ge=1)] = 32  # images are brought to this height and width
    fit: Literal["crop", "pad", "stretch"] = "crop"
    pool_truth: bool = False  # the pool's own labels are true: score the selection with them
    closed_pool: bool = False  # the pool holds task images only, as st-cw asks for
    join_val_in: bool = False  # T ∪ val_in as the labelled set: the reference for what val_in's labels are worth
    selection: str | None = None  # selection.parquet of the method given-selection

    @field_validator("val_in", mode="before")
    @classmethod
    def _fraction(cls, value: Any) -> Any:
        if isinstance(value, int | float) and not 0 < value < 1:
            raise ValueError("a fraction of the labelled images lies between 0 and 1")
        return value

    @model_validator(mode="after")
    def _one_kind(self) -> "DataSection":
        """Of world, task and labelled one is meant; what the others need would be passed over in silence."""
        kind = "world" if self.world is not None else "task" if self.task is not None else None
        if kind is not None:
            own = {"labelled", "val_in", "val_out", "test", "size", "fit"}
            own |= {"pool", "task", "out_test", "excluded"} if kind == "world" else set()
            clash = sorted(name for name in own if getattr(self, name) != type(self).model_fields[name].default)
            if clash:
                raise ValueError(f"{kind} brings its own sets, so {', '.join(clash)} would be ignored: take it out")
        return self

    def located(self, base: Path) -> "DataSection":
        """With every path that lies beside the config made absolute."""

        def there(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(there, value))
            if not isinstance(value, str) or Path(value).is_absolute():
                return value
            if value.startswith("~"):
                return os.path.expanduser(value)  # noqa: PTH111  (which leaves ~somebody who is not here as it is)
            path, mark, query = (value, "", "") if (base / value).exists() else value.partition("?")
            beside = (base / path).exists() or any(base.glob(path))  # a pattern such as train-*.tar
            return f"{base.resolve() / path}{mark}{query}" if beside else value

        names = ("labelled", "pool", "val_in", "val_out", "test", "excluded", "selection", "corruptions")
        changes: dict[str, Any] = {name: there(getattr(self, name)) for name in names}
        return self.model_copy(update=changes | {"out_test": {name: there(v) for name, v in self.out_test.items()}})


def load_data(section: DataSection, *, seed: int, workspace: Path | None) -> Data:
    """The sets a config names. A pool that is not packed yet is packed into the folder `workspace`; without one it is only
    counted."""
    if section.world is not None:
        data = load_world(section.world, seed, section.pool_size)
    elif section.task is not None:
        data = _task(section, seed, workspace)
    elif section.labelled is not None:
        data = _own(section, seed, workspace)
    else:
        raise UserError('data: name a set. Give data.labelled and data.pool, or data.task, or data.world = "digits".')
    return joined(data) if section.join_val_in else data


def joined(data: Data) -> Data:
    T, val_in = data.labelled, data.val_in
    both = Labelled(np.concatenate([T.x[:], val_in.x[:]]), np.concatenate([T.y, val_in.y]))
    return replace(data, labelled=both)


def _task(section: DataSection, seed: int, workspace: Path | None) -> Data:
    from odst.data.named.catalogue import CATALOGUE
    from odst.data.named.tasks import TASKS, load_set, load_task

    assert section.task is not None
    named = isinstance(section.pool, str) and section.pool.partition(":")[0] in CATALOGUE
    if section.excluded and (named or section.pool is None):
        raise UserError(
            f"data.excluded: it names images of a packed pool, and {section.pool or 'no pool'} is none. "
            f"Pack it with `odst pool build {section.pool or 'SOURCE'} --out POOL` and set data.pool to that."
        )
    pool: Pool | str | None = section.pool  # type: ignore[assignment]
    if not named and section.pool is not None:
        truth = section.pool_truth and section.task in TASKS
        classes = load_set(TASKS[section.task].labelled).classes if truth else ()
        pool = load_pool(section, workspace, classes)
    outs = tuple(section.out_test) or None
    return load_task(section.task, pool, seed=seed, out_tests=outs)


def _own(section: DataSection, seed: int, workspace: Path | None) -> Data:
    from odst.data.reading import ReadSet, read_set

    assert section.labelled is not None

    def read(specs: Sources, labelled: bool = False) -> ReadSet:
        found = read_set(specs, section.size, section.fit, labelled=labelled)
        if found.rejected:
            first = found.rejected[0]
            log.warning(
                "%s: %d images could not be used; the first: %s: %s",
                specs if isinstance(specs, str) else ", ".join(specs),
                len(found.rejected),
                first.uri,
                first.reason,
            )
        return found

    T = read(section.labelled, labelled=True)
    assert T.labels is not None
    classes = tuple(sorted(set(T.labels)))
    sets: dict[str, ReadSet] = {"labelled": T}
    labelled = Labelled(T.x, by_name("labelled", T.labels, classes))
    if isinstance(section.val_in, float):
        labelled, val_in, rows = split(labelled, section.val_in, classes, seed)
        taken = np.setdiff1d(np.arange(len(T.hashes)), rows)
        sets["labelled"] = T._replace(hashes=[T.hashes[j] for j in rows])
        sets["val_in"] = T._replace(hashes=[T.hashes[j] for j in taken])
    else:
        sets["val_in"] = read(section.val_in, labelled=True)
        val_in = Labelled(sets["val_in"].x, by_name("val_in", sets["val_in"].labels or [], classes))
    test = None
    if section.test is not None:
        sets["test"] = read(section.test, labelled=True)
        test = Labelled(sets["test"].x, by_name("test", sets["test"].labels or [], classes))
    if section.val_out is not None:
        sets["val_out"] = read(section.val_out)
    out_tests: dict[str, Images] = {}
    for name, specs in section.out_test.items():
        sets[f"out_test.{name}"] = read(specs)
        out_tests[name] = sets[f"out_test.{name}"].x
    report_overlaps({name: found.hashes for name, found in sets.items()})
    return Data(
        labelled=labelled,
        pool=None if section.pool is None else load_pool(section, workspace, classes),
        val_in=val_in,
        val_out=sets["val_out"].x if "val_out" in sets else None,
        test=test,
        out_tests=out_tests,
        classes=classes,
    )


def by_name(name: str, labels: list[str], classes: tuple[str, ...]) -> np.ndarray:
    """Labels as class numbers; classes are matched by name, never by position."""
    place = {one: c for c, one in enumerate(classes)}
    unknown = sorted(set(labels) - set(classes))
    if unknown:
        raise UserError(
            f"{name}: its class {unknown[0]!r} is not in labelled, which has {', '.join(classes[:12])}. "
            "Give labelled images of it, rename it, or take it out."
        )
    return np.array([place[label] for label in labels], np.int64)


def split(T: Labelled, share: float, classes: tuple[str, ...], seed: int) -> tuple[Labelled, Labelled, np.ndarray]:
    """T without `share` of each class, that share as val_in, and the rows that stay."""
    taken = []
    for c, name in enumerate(classes):
        own = stream(seed, "val_in", name).permutation(np.flatnonzero(T.y == c))
        n = max(1, round(share * len(own)))
        if n >= len(own):
            raise UserError(
                f"labelled: class {name!r} has {len(own)} image, too few to take val_in from. "
                "Give more, or a val_in of its own."
            )
        taken.append(own[:n])
    rows = np.sort(np.concatenate(taken))
    kept = np.setdiff1d(np.arange(len(T)), rows)
    return Labelled(T.x[kept], T.y[kept]), Labelled(T.x[rows], T.y[rows]), kept


def report_overlaps(hashes: dict[str, list[str]]) -> None:
    """Say which sets share images, before anything is trained on them."""
    for (one, a), (other, b) in combinations(hashes.items(), 2):
        shared = len(set(a) & set(b))
        if shared:
            log.warning(
                "%d images are in both %s and %s: numbers on them are not honest. Remove them from one.",
                shared,
                one,
                other,
            )


# the pool --------------------------------------------------------------------------------------------------------------------


def load_pool(section: DataSection, workspace: Path | None, classes: tuple[str, ...]) -> Pool:
    """The packed pool a config names, or its sources packed into `workspace`."""
    from odst.data.packing import build_pool
    from odst.data.pool import is_packed, open_labels, open_pool
    from odst.data.sources import open_sources

    assert section.pool is not None
    specs = (section.pool,) if isinstance(section.pool, str) else section.pool
    lists = (section.excluded,) if isinstance(section.excluded, str) else section.excluded
    if len(specs) == 1 and is_packed(Path(specs[0])):
        path = Path(specs[0])
    elif workspace is None:
        sources = open_sources(specs)
        row = (section.size, section.size, 3) if sources[0].width is None else (sources[0].width,)
        return Pool(
            Counted((sum(source.count() for source in sources), *row), np.dtype(sources[0].features or np.uint8))
        )
    else:
        path = workspace
        build_pool(specs, path, size=section.size, fit=section.fit)
    pool = open_pool(path, lists)
    if not section.pool_truth:
        return pool
    place = {name: c for c, name in enumerate(classes)}
    labels, truth = open_labels(path), np.empty(len(pool), np.int64)
    for start in range(0, len(pool), 1 << 16):
        rows = np.arange(start, min(start + (1 << 16), len(pool)))
        truth[rows] = [place.get(label or "", -1) for label in labels[rows]]
    return replace(pool, truth=truth)
