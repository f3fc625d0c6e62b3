"""The [data] section of a config, and the sets of a run: labelled, val_in, val_out, test, the numbers of their classes."""

import logging
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from odst.data.encoding import Encoding
from odst.data.images import Data, Labelled
from odst.data.items import label_text
from odst.data.reading import ReadSet, read_set
from odst.data.sources import absolute_spec
from odst.errors import UserError
from odst.seeds import stream

log = logging.getLogger("odst")

Sources = str | tuple[str, ...]  # any source that `odst pool build` takes, or several
RENAME = "Give labelled images of it, rename it, or take it out."
SPECS = ("labelled", "pool", "val_in", "val_out", "test", "out_test", "excluded", "selection", "corruptions", "marks")


class DataSection(BaseModel):
    """A built-in world, an experiment of the paper, or sources of one's own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    world: str | None = None  # a built-in open world: digits or photos
    pool_size: Annotated[int, Field(ge=1)] | None = None  # of a built-in world
    task: str | None = None  # the sets of an experiment of the paper: cifar10, cifar100 or svhn
    labelled: Sources | None = None  # images of the classes, a folder per class or a list with labels
    pool: Sources | None = None  # unlabelled images, most of them of anything else
    val_in: Sources | Annotated[float, Field(gt=0, lt=1)] = 0.2  # a source, or a fraction of labelled, class by class
    val_out: Sources | None = None  # images of none of the classes; they set the out-thresholds
    test: Sources | None = None  # labelled images for scoring only
    out_test: dict[str, Sources] = {}  # named sets of other things, for scoring only
    corruptions: bool | str = (
        False  # score every round under the 15 corruptions too: true: of test; a folder: CIFAR-10-C
    )
    excluded: Sources = ()  # lists of pool ids to leave out, beside what `odst dedup` has left in the pool
    marks: Sources = ()  # what people said of pool images (`odst review`): right ones join labelled, foreign ones val_out
    size: Annotated[int, Field(ge=1)] = 32  # images are brought to this height and width
    fit: Literal["crop", "pad", "stretch"] = "crop"  # how a picture that is not square becomes so
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

    @field_validator(*SPECS)
    @classmethod
    def _named(cls, value: Any, info: ValidationInfo) -> Any:
        """An empty text would be the config's own folder."""
        for one in value.values() if isinstance(value, dict) else [value]:
            texts = one if isinstance(one, tuple) else (one,)
            nothing = texts == () and info.field_name not in ("excluded", "marks")
            if nothing or any(isinstance(text, str) and not text.strip() for text in texts):
                raise ValueError("an empty text or list names nothing: give a path, or take the key out")
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
            if isinstance(value, dict):
                return {name: there(one) for name, one in value.items()}
            return absolute_spec(value, base.resolve()) if isinstance(value, str) else value

        return self.model_copy(update={name: there(getattr(self, name)) for name in SPECS})

    def read(self, specs: Sources, encoding: Encoding | None = None, *, labelled: bool = False) -> ReadSet:
        """The images of a source at this section's size, or their vectors."""
        reading = read_set if encoding is None else encoding.read
        return reading(specs, self.size, self.fit, labelled=labelled)


def own_sets(section: DataSection, seed: int, encoding: Encoding | None = None) -> Data:
    """All sets that the section names by sources of one's own, but the pool."""
    assert section.labelled is not None
    T = section.read(section.labelled, encoding, labelled=True)
    classes = tuple(sorted(set(T.labels or ())))
    sets: dict[str, ReadSet] = {"labelled": T}

    def numbered(name: str) -> Labelled:
        return Labelled(sets[name].x, class_numbers(name, sets[name].labels or (), classes))

    labelled = numbered("labelled")
    if isinstance(section.val_in, float):
        taken = _share(labelled.y, section.val_in, classes, seed)
        labelled, val_in = split(labelled, taken)
        sets["labelled"] = T._replace(hashes=np.delete(T.hashes, taken).tolist())
        sets["val_in"] = T._replace(hashes=np.take(T.hashes, taken).tolist())
    else:
        sets["val_in"] = section.read(section.val_in, encoding, labelled=True)
        val_in = numbered("val_in")
    if section.test is not None:
        sets["test"] = section.read(section.test, encoding, labelled=True)
    if section.val_out is not None:
        sets["val_out"] = section.read(section.val_out, encoding)
    outs = {name: section.read(specs, encoding) for name, specs in section.out_test.items()}
    sets |= {f"out_test.{name}": found for name, found in outs.items()}
    report_overlaps({name: found.hashes for name, found in sets.items()})
    return Data(
        labelled=labelled,
        pool=None,
        val_in=val_in,
        val_out=sets["val_out"].x if "val_out" in sets else None,
        test=numbered("test") if "test" in sets else None,
        out_tests={name: found.x for name, found in outs.items()},
        classes=classes,
    )


def class_numbers(
    name: str, labels: Sequence[str | None], classes: Sequence[str], *, foreign: int | None = None, advice: str = RENAME
) -> np.ndarray:
    """Labels as positions in `classes`, matched by name and never by position; one of no class is `foreign`, or refused."""
    place = {label_text(one): c for c, one in enumerate(classes)}
    unknown = sorted({str(label) for label in labels} - place.keys()) if foreign is None else []
    if unknown:
        some = f"{', '.join(classes[:12])}{', …' if len(classes) > 12 else ''}"
        raise UserError(f"{name}: its class {unknown[0]!r} is none of {some}. {advice}")
    return np.array([place.get(label, foreign) for label in labels], np.int64)  # type: ignore[arg-type]


def split(T: Labelled, rows: np.ndarray) -> tuple[Labelled, Labelled]:
    """T without these rows, and the rows."""
    kept = np.setdiff1d(np.arange(len(T)), rows)
    return Labelled(T.x[kept], T.y[kept]), Labelled(T.x[rows], T.y[rows])


def hold_out(y: np.ndarray, counts: Sequence[int], rngs: Sequence[np.random.Generator]) -> np.ndarray:
    """Sorted rows of y: `counts[c]` of class c, as `rngs[c]` draws them."""
    drawn = [rng.permutation(np.flatnonzero(y == c))[:n] for c, (n, rng) in enumerate(zip(counts, rngs, strict=True))]
    return np.sort(np.concatenate(drawn))


def share_of_classes(y: np.ndarray, share: float, K: int) -> tuple[np.ndarray, np.ndarray]:
    """(K,) how many images of each class that share is, at least one, and how many there are."""
    sizes = np.bincount(y, minlength=K)
    return np.maximum(1, np.rint(share * sizes)).astype(np.int64), sizes


def _share(y: np.ndarray, share: float, classes: Sequence[str], seed: int) -> np.ndarray:
    """The rows that become val_in; every class keeps some."""
    counts, sizes = share_of_classes(y, share, len(classes))
    if (counts >= sizes).any():
        c = int((counts >= sizes).argmax())
        raise UserError(
            f"labelled: class {classes[c]!r} has {sizes[c]} image, too few to take val_in from. "
            "Give more, or a val_in of its own."
        )
    return hold_out(y, counts.tolist(), [stream(seed, "val_in", name) for name in classes])


def report_overlaps(hashes: dict[str, list[str]]) -> None:
    """Say which sets share images, before anything is trained on them."""
    for (one, a), (other, b) in combinations(hashes.items(), 2):
        if shared := len(set(a) & set(b)):
            log.warning(
                f"{shared} images are in both {one} and {other}: numbers on them are not honest. Remove them from one."
            )


def hold_back(y: np.ndarray, fraction: float, seed: int) -> np.ndarray:
    """The rows of val_in, class by class: at least one of each class that has two; a class's only row stays in T."""
    if not 0 < fraction < 1:
        raise UserError(
            f"val_fraction is between 0 and 1, got {fraction:g}. It is the share of the labelled rows for val_in."
        )
    counts, sizes = share_of_classes(y, fraction, K := int(y.max()) + 1)
    rows = hold_out(y, np.minimum(counts, sizes - 1).tolist(), [stream(seed, "val_in", c) for c in range(K)])
    if len(rows) == 0:
        raise UserError(
            f"y: {len(y)} labelled rows of {K} classes, one each: none is left for val_in. Label more, or give val_in."
        )
    return rows
