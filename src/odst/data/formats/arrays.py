"""Arrays as sources: `.npy` and `.npz` of images or features, packed pools, and whatever a reader turns into rows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from odst.data.decoding import Rejected
from odst.data.images import Images, Lookup
from odst.data.items import Item, file_uri, label_text
from odst.errors import UserError, refused


@dataclass(frozen=True)
class Rows:
    """A part: rows of an array, carried along, or opened again (memory-mapped) where the part is read."""

    array: np.ndarray | Callable[[], Images]
    ids: np.ndarray  # row numbers, ascending
    uris: str | Sequence[str]  # a prefix for the row number, or one each
    labels: Sequence[str | None] | None
    absent: np.ndarray | None = None  # which rows say nothing, of a table with gaps

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Item]:
        rows = self.array()[self.ids] if callable(self.array) else self.array
        absent = np.zeros(len(rows), bool) if self.absent is None else self.absent
        if rows.ndim == 2:
            self._check(rows, absent)
        for i, row in enumerate(rows):
            read = partial(_no_vector if absent[i] else _same, row)
            yield Item(self._uri(i), None if self.labels is None else self.labels[i], read)

    def _uri(self, i: int) -> str:
        return f"{self.uris}{self.ids[i]}" if isinstance(self.uris, str) else self.uris[i]

    def _check(self, vectors: np.ndarray, absent: np.ndarray) -> None:
        """One such vector says that the encoder, or what wrote its file, was faulty: the others are not to be trusted either."""
        with np.errstate(over="ignore"):
            kept = vectors.astype(np.float32) if vectors.dtype == np.float64 else vectors
        if not (fine := np.isfinite(kept).all(1) | absent).all():
            i = int(np.argmin(fine))
            raise UserError(
                f"{self._uri(i)}: its vector, row {self.ids[i]}, holds NaN, infinity or a number beyond {kept.dtype}. Embed the "
                "pictures again, or leave such rows out of the file."
            )


def _same(row: np.ndarray) -> np.ndarray:
    return row


def _no_vector(row: np.ndarray) -> np.ndarray:
    raise Rejected("no vector", "the row holds none")


class ArraySource:
    """Rows of images (uint8, n×H×W×3, n×H×W×1 or n×H×W) or of features (float, n×D).

    `rows` picks some of them. `reopen` gives the same array in another process without copying it; without it the parts carry their rows.
    """

    def __init__(
        self,
        path: Path,
        array: Images,
        *,
        rows: np.ndarray | None = None,
        labels: Lookup | Sequence[str | None] | None = None,
        sources: Lookup | None = None,
        reopen: Callable[[], Images] | None = None,
    ):
        self.name, self.array, self.sources, self.reopen = str(path), array, sources, reopen
        self.labels: Any = np.array(labels, dtype=object) if isinstance(labels, list) else labels
        self.uri = file_uri(path)
        self.rows = np.arange(len(array)) if rows is None else rows
        if len(self.rows) == 0:
            raise UserError(f"{path}: it has no rows, or none that is asked for. Give at least one image.")
        if 0 in array.shape[1:]:
            raise UserError(f"{path}: its rows are empty, of shape {tuple(array.shape[1:])}. Write the array again.")
        if len(array.shape) == 2:
            if array.dtype not in (np.float16, np.float32, np.float64):
                raise UserError(
                    f"{path}: features are float16, float32 or float64, got {array.dtype}. Convert with .astype('float32')."
                )
        elif (
            array.dtype != np.uint8
            or len(array.shape) not in (3, 4)
            or (len(array.shape) == 4 and array.shape[3] not in (1, 3))
        ):
            raise UserError(
                f"{path}: expected images (uint8, n×H×W×3) or features (float, n×D), got {array.dtype} {tuple(array.shape)}."
            )
        kept = np.dtype(np.float32) if array.dtype == np.float64 else array.dtype
        self.features = kept if len(array.shape) == 2 else None
        self.width = array.shape[1] if len(array.shape) == 2 else None

    def count(self) -> int:
        return len(self.rows)

    def parts(self, start: int, most: int) -> Iterator[Rows]:
        for low in range(start, len(self.rows), most):
            ids = self.rows[low : low + most]
            uris: str | Sequence[str] = f"{self.uri}#row=" if self.sources is None else self.sources[ids]
            labels = None if self.labels is None else self.labels[ids]
            yield Rows(self.reopen or np.asarray(self.array[ids]), ids, uris, labels)


def open_npy(path: Path, labels: Path | None) -> ArraySource:
    """`labels` is a .npy of one label per row, e.g. CIFAR-10-C's labels.npy."""
    array = map_npy(path)
    named = None if labels is None else _labels(labels, load_npy(labels), len(array))
    return ArraySource(path, array, labels=named, reopen=partial(map_npy, path))


def map_npy(path: Path) -> np.ndarray:
    array = load_npy(path, "r")
    return _channels_last(array) if array.ndim == 4 else array


def open_npz(path: Path) -> ArraySource:
    """The array with 2 to 4 dimensions is the data, a one-dimensional `labels`, `label` or `y` its classes, `classes` their names."""
    with refused(str(path), "a readable .npz of plain arrays", "Write it again with np.savez."):
        with open(path, "rb") as file, np.load(file, allow_pickle=False) as archive:
            if not isinstance(archive, np.lib.npyio.NpzFile):
                raise ValueError("it is a single array")
            arrays = {name: archive[name] for name in archive.files}
        if texts := [name for name, array in arrays.items() if not isinstance(array, np.ndarray)]:
            raise ValueError(f"{texts[0]} is no array")
    data = [name for name, array in arrays.items() if array.ndim >= 2]
    if len(data) != 1:
        raise UserError(
            f"{path}: expected one array of images or features, found {', '.join(data) or 'none'}. Keep one per file."
        )
    array = arrays[data[0]]
    named = next((arrays[name] for name in ("labels", "label", "y") if name in arrays), None)
    labels = None if named is None else _labels(path, named, len(array), arrays.get("classes"))
    return ArraySource(path, _channels_last(array) if array.ndim == 4 else array, labels=labels)


def load_npy(path: Path, mode: str | None = None) -> np.ndarray:
    """Whole, or mapped with mode "r"; never unpickled."""
    if not path.is_file():
        raise UserError(f"{path}: there is no such file.")
    with refused(str(path), "a readable .npy array", "Fetch it, or write it with np.save, again."):
        with open(path, "rb") as file:
            if file.read(6) != np.lib.format.MAGIC_PREFIX:
                raise ValueError("it does not begin as one does")
        array = np.load(path, mmap_mode=mode, allow_pickle=False)  # type: ignore[arg-type]
        if array.ndim == 0:
            raise ValueError("it is a single number")
        return array


def _channels_last(array: np.ndarray) -> np.ndarray:
    """n×3×H×W, as torch keeps images, seen as n×H×W×3."""
    return array.transpose(0, 2, 3, 1) if array.shape[3] not in (1, 3) and array.shape[1] in (1, 3) else array


def whole_labels(path: Path, labels: np.ndarray) -> np.ndarray:
    """Names as they are, numbers as whole ones: NaN, halves and the like would become classes of their own."""
    if labels.dtype.kind in "iub":
        return labels
    if labels.dtype.kind in "SU":
        bad = np.char.str_len(np.char.strip(labels)) == 0
    elif labels.dtype.kind == "f":
        bad = ~(np.isfinite(labels) & (labels == np.trunc(labels)))
    else:
        bad = np.ones(labels.shape, bool)
    if bad.any():
        row = int(bad.argmax())
        raise UserError(
            f"{path}: the label of row {row} is {str(labels.reshape(-1)[row]) or 'empty'}. A label is a name or a whole number: mend it, or "
            "leave the row out."
        )
    return labels


def numbered(path: Path, labels: np.ndarray, first: int, last: int) -> np.ndarray:
    """Labels of an original as whole numbers, all of them from `first` to `last`."""
    if whole_labels(path, labels).dtype.kind not in "iubf":
        raise UserError(f"{path}: its labels are {labels.dtype} and not numbers. Fetch it again.")
    if (bad := (labels < first) | (labels > last)).any():
        row = int(bad.argmax())
        raise UserError(
            f"{path}: the label of row {row} is {labels.reshape(-1)[row]!s}, and those of this set go from {first} to {last}. "
            "The file is damaged: fetch it again."
        )
    return labels.astype(np.int64)


def _labels(path: Path, labels: np.ndarray, n: int, names: np.ndarray | None = None) -> list[str | None]:
    if labels.shape != (n,):
        raise UserError(f"{path}: {n} rows but labels of shape {labels.shape}. Give one label per row.")
    if names is None:
        return [label_text(label) for label in whole_labels(path, labels).tolist()]
    if names.ndim != 1 or labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= len(names):
        raise UserError(
            f"{path}: `labels` must number the {names.size} `classes` from 0. Correct them, or leave `classes` out."
        )
    texts = [label_text(name) for name in names.tolist()]
    return [texts[label] for label in labels.tolist()]
