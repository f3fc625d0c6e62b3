"""A round's folder: model.safetensors, logits.safetensors, selection.parquet, and round.json, which is written last.

If round.json is there, the round is whole; it lists the hashes of the other files.
"""

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from safetensors import SafetensorError
from safetensors.numpy import load_file, save
from safetensors.torch import load as load_weights
from torch import nn

from odst.data.images import Data
from odst.errors import UserError
from odst.evaluation.scoring import Scored
from odst.files import sha256, whole
from odst.method.labelling import weights
from odst.rounds import Round
from odst.run.round_note import selection_summary, thresholds_from_json, thresholds_to_json
from odst.run.sealed import read_sealed, write_sealed
from odst.run.selection_file import Teacher, read_table, write_selection

NOTE = "round.json"
LOGITS = "logits.safetensors"
SELECTED = "selection.parquet"
LABELS = "labels/"  # among the logits, before the name of the set whose labels they are


def is_whole(folder: Path) -> bool:
    return (folder / NOTE).exists()


def model_file(folder: Path) -> Path:
    return folder / "model.safetensors"


def write_round(
    folder: Path, round_: Round, scored: Scored, data: Data, teacher: Teacher | None, **bonds: str | None
) -> None:
    """What was there before is replaced. `bonds` are further entries of its note, by which it is known to be in its place."""
    raw = weights(round_.model)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    with whole(model_file(folder)) as temporary:
        temporary.write_bytes(raw)
    labels = {"val_in": data.val_in.y} | ({} if data.test is None else {"test": data.test.y})
    arrays = scored.logits | {LABELS + name: np.asarray(y, np.int64) for name, y in labels.items()}
    with whole(folder / LOGITS) as temporary:
        temporary.write_bytes(save({name: np.ascontiguousarray(array) for name, array in arrays.items()}))
    selection = None
    if round_.selection is not None:
        selection = selection_summary(round_.selection, data.classes, teacher)
        write_selection(folder / SELECTED, round_.selection, data, teacher)
    note = {
        "round": round_.t,
        "folder": folder.name,
        **bonds,
        "model_hash": hashlib.sha256(raw).hexdigest(),
        "temperature": round_.temperature,
        "thresholds": thresholds_to_json(round_.thresholds, data.classes),
        "selection": selection,
        "metrics": scored.metrics,
        "files": {file.name: sha256(file) for file in sorted(folder.iterdir())},
    }
    write_sealed(folder / NOTE, note)


def read_note(folder: Path, *, files: bool = True) -> dict[str, Any]:
    """round.json, after checking that neither it nor, unless told otherwise, any file of the round has changed since it was
    written, and that it is the note of this folder."""
    note = read_sealed(folder / NOTE)
    if note.get("folder", folder.name) != folder.name:  # an older odst did not say
        raise UserError(
            f"{folder}: this is {note['folder']} under another name. Put the right one back, or start again with --fresh."
        )
    for name in note["files"] if files else ():
        check_file(folder / name, note)
    return note


def check_file(file: Path, note: dict[str, Any]) -> Path:
    """A file of a round, known to be as its note says."""
    if not file.exists():
        raise UserError(f"{file}: this file of {file.parent.name} is missing. Restore it, or start again with --fresh.")
    if sha256(file) != note["files"].get(file.name):
        raise UserError(
            f"{file}: this file has changed since the run wrote it. Restore it, or start again with --fresh."
        )
    return file


def check_bonds(folder: Path, note: dict[str, Any], classes: list[str], **bonds: Any) -> None:
    """Refuse a round that was made elsewhere: by what its note says of itself, as far as the odst that wrote it did."""
    if any(note.get(key, bond) != bond for key, bond in bonds.items()) or list(note["thresholds"]) != classes:
        raise UserError(
            f"{folder}: this round was not made here: its run, its classes or the round before it are others. Put the right one "
            "back, or start again with --fresh."
        )


def read_arrays(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Logits by set, and the labels of val_in and test; a round of an older odst has none of these."""
    arrays = load_file(check_file(folder / LOGITS, read_note(folder, files=False)))
    labels = {name.removeprefix(LABELS): y for name, y in arrays.items() if name.startswith(LABELS)}
    return {name: array for name, array in arrays.items() if not name.startswith(LABELS)}, labels


def read_selected(folder: Path, *, every: bool = False) -> pa.Table | None:
    note = read_note(folder, files=False)
    return read_table(check_file(folder / SELECTED, note), every=every) if SELECTED in note["files"] else None


def read_model(folder: Path, model: nn.Module) -> nn.Module:
    """The round's weights, into a model of the run's network."""
    file = model_file(folder)
    try:
        model.load_state_dict(load_weights(file.read_bytes()))
    except (SafetensorError, RuntimeError, OSError) as error:
        raise UserError(
            f"{file}: these weights do not fit the run's network ({error}). Start again with --fresh."
        ) from None
    return model


def read_round(folder: Path, model: nn.Module) -> tuple[Round, Scored]:
    """To go on from; its selection is not needed for that."""
    note, (logits, _) = read_note(folder), read_arrays(folder)
    round_ = Round(
        t=note["round"],
        model=read_model(folder, model),
        temperature=note["temperature"],
        thresholds=thresholds_from_json(note["thresholds"]),
        selection=None,
        logits_in=logits["val_in"],
        logits_out=logits.get("val_out"),
    )
    return round_, Scored(note["metrics"], logits)
