"""B) Label a pool: the teacher's logits in files, a fixed range of rows each, made on any engine and read as one array.

    FOLDER/00000.npy       float32 (rows of range 0, K)
    FOLDER/manifest.json   model, pool, and the hash of every file: there when all of them are

While it is made the folder holds notes as well (engine/parts.py). Batches are cut at fixed rows, the last one padded, and a
range is computed by one thread, so the bits do not depend on who labels what.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from odst.data.images import Images
from odst.data.views import Concatenated, opener
from odst.data.visible import files_of_images
from odst.engine.interface import engine, running_on, share
from odst.engine.local import Local
from odst.engine.parts import Note, complete, tidy
from odst.engine.processors import threads
from odst.errors import UserError, refused
from odst.files import whole, write_json
from odst.method.labelling import BATCH, Forward, Predictions, classes_of, infer, model_hash, ready

RANGE = 64 * BATCH  # rows of one file
FILES = 512  # at most, of longer ranges: each stays open while the logits are read
THREADS = 1  # of a range on a CPU: part of the result's bits, so not an option
MANIFEST = "manifest.json"


class StoredLogits(Concatenated):
    """The files of a folder as one array (m, K), mapped from disk."""

    def __init__(self, folder: Path, manifest: Note):
        self.folder = folder
        super().__init__([np.load(folder / part["file"], mmap_mode="r") for part in manifest["parts"]])

    def __reduce__(self) -> tuple[Any, ...]:
        return _open, (self.folder,)


def _open(folder: Path) -> StoredLogits:
    """For a process that is sent them: they were checked where they came from."""
    return StoredLogits(folder, _read(folder))


def logits_folder(scratch: Path, t: int) -> Path:
    """Where a scan of teacher t over the pool goes."""
    return scratch / f"pool-logits-{t}"


def range_rows(m: int) -> int:
    return RANGE * max(1, -(-m // (RANGE * FILES)))


def read_logits(folder: Path) -> StoredLogits | np.ndarray | None:
    """The logits of a scan that is finished, checked; None where there are none, or not all."""
    if (folder / MANIFEST).exists():
        with refused(str(folder), "the logits that were written", "Delete the folder to do without."):
            manifest = _read(folder)
            for part in manifest["parts"]:
                _check(folder, part)
            return StoredLogits(folder, manifest)
    file = folder.with_name(f"{folder.name}.npy")  # of an older odst
    try:
        note = json.loads(file.with_suffix(".json").read_text())
        logits = np.load(file, mmap_mode="r")
        return logits if note["done"] == note["rows"] == len(logits) else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_predictions(folder: Path, temperature: float) -> Predictions | None:
    logits = read_logits(folder)
    return None if logits is None else Predictions(logits, temperature)


def label(
    model: nn.Module,
    x: Images,
    folder: Path | None,
    *,
    device: str = "cpu",
    name: str | None = None,
    identity: str = "",
) -> Images:
    """The logits of every row of x in `folder`; a later call goes on where this one stopped. Without one, in memory.

    `identity` names the pool: a folder that belongs to another model or pool is refused. `name` is the stage shown to the user.
    """
    if folder is None:
        return infer(model, x, device=device, name=name)
    model = ready(model, x, device)
    K = classes_of(model, x, device)
    device = engine().device or device
    about: Note = {"model": model_hash(model), "pool": identity, "rows": len(x), "classes": K, "threads": THREADS}
    if (folder / MANIFEST).exists():
        manifest = _read(folder)
        if {key: manifest.get(key) for key in about} != about:
            raise _other(folder)
        for part in manifest["parts"]:
            _check(folder, part)
        tidy(folder)
        return StoredLogits(folder, manifest)
    length = range_rows(len(x))
    sizes = [min(length, len(x) - start) for start in range(0, len(x), length)]
    before = {file.stem for file in folder.glob("[0-9]*.json")}
    labeller = Labeller(model.cpu(), opener(x), folder.absolute(), length, K, device)
    one_gpu = device != "cpu" and engine().alone
    with running_on(Local(1) if one_gpu else engine(), share()):
        parts = complete(
            folder,
            about,
            sizes,
            labeller,
            name=name,
            stale="Delete the folder to label the pool again.",
            reads=files_of_images(x),
        )
    parts = [{key: part[key] for key in ("file", "rows", "hash")} for part in parts]
    for part in parts:
        if Path(part["file"]).stem in before:
            _check(folder, part)
    write_json(folder / MANIFEST, about | {"parts": parts})
    tidy(folder)
    return StoredLogits(folder, about | {"parts": parts})


@dataclass(frozen=True)
class Labeller:
    """Makes the function that labels a range of rows, by its number."""

    model: nn.Module
    open_x: Callable[[], Images]
    folder: Path
    length: int
    K: int
    device: str

    def __call__(self) -> Callable[[int], Note]:
        x = self.open_x()
        forward = Forward(ready(self.model, x, self.device), x, self.K, self.device, padded=True)

        def part(number: int) -> Note:
            first = number * self.length
            n = min(self.length, len(x) - first)
            logits = np.empty((n, self.K), np.float32)
            with threads(THREADS):
                for block in range(0, n, RANGE):  # the same cuts whatever the length of a range is
                    for start in range(block, min(block + RANGE, n), forward.step):
                        stop = min(start + forward.step, block + RANGE, n)
                        logits[start:stop] = forward(first + start, first + stop)
            file = f"{number:05d}.npy"
            with whole(self.folder / file) as temporary, open(temporary, "wb") as opened:
                np.lib.format.write_array(opened, logits, version=(1, 0), allow_pickle=False)
            return {"file": file, "rows": n, "hash": _hash(logits)}

        return part


def _hash(logits: np.ndarray) -> str:
    return hashlib.blake2b(np.ascontiguousarray(logits).data, digest_size=16).hexdigest()


def _read(folder: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text())
        if not isinstance(manifest, dict) or not isinstance(manifest["parts"], list):
            raise ValueError("no list of files")
        return manifest
    except (OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{folder / MANIFEST}: it is damaged ({error}). Delete {folder} to label the pool again."
        ) from None


def _check(folder: Path, part: Note) -> None:
    file = folder / str(part["file"])
    try:
        logits = np.load(file, mmap_mode="r")
        sound = len(logits) == part["rows"] and _hash(logits) == part["hash"]
    except (OSError, ValueError, EOFError):
        sound = False
    if not sound:
        raise UserError(f"{file}: these logits are damaged. Delete {folder} to label the pool again.")


def _other(folder: Path) -> UserError:
    return UserError(
        f"{folder}: these logits belong to another model or pool. Delete the folder to label the pool again."
    )
