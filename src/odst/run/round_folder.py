"""A round's folder: model.safetensors, logits.safetensors, selection.parquet, and round.json, which is written last.

If round.json is there, the round is whole; it lists the hashes of the other files.
"""

import hashlib
import json
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
from odst.files import digest, sha256, whole, write_json
from odst.method.labelling import weights
from odst.rounds import Round
from odst.run.round_note import selection_summary, thresholds_from_json, thresholds_to_json
from odst.run.selection_file import Teacher, read_table, write_selection

NOTE = "round.json"
LOGITS = "logits.safetensors"
SELECTED = "selection.parquet"
LABELS = "labels/"  # among the logits, before the name of the set whose labels they are


def is_whole(folder: Path) -> bool:
    return (folder / NOTE).exists()


def model_file(folder: Path) -> Path:
    return folder / "model.safetensors"


def write_round(folder: Path, round_: Round, scored: Scored, data: Data, teacher: Teacher | None) -> None:
    """What was there before is replaced."""
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
        "model_hash": hashlib.sha256(raw).hexdigest(),
        "temperature": round_.temperature,
        "thresholds": thresholds_to_json(round_.thresholds, data.classes),
        "selection": selection,
        "metrics": scored.metrics,
        "files": {file.name: sha256(file) for file in sorted(folder.iterdir())},
    }
    write_json(folder / NOTE, note | {"digest": digest(note)})


def read_note(folder: Path) -> dict[str, Any]:
    """round.json, after checking that no file of the round has changed since it was written."""
    note = read_json(folder / NOTE)
    if note.pop("digest", None) != digest(note):
        raise UserError(f"{folder / NOTE}: this file is damaged. Restore it, or start again with --fresh.")
    for name, hash_ in note["files"].items():
        file = folder / name
        if not file.exists():
            raise UserError(f"{file}: this file of {folder.name} is missing. Restore it, or start again with --fresh.")
        if sha256(file) != hash_:
            raise UserError(
                f"{file}: this file has changed since the run wrote it. Restore it, or start again with --fresh."
            )
    return note


def read_metrics(folder: Path) -> dict[str, Any]:
    """The round's line of metrics.jsonl, without a look at its other files."""
    metrics: dict[str, Any] = read_json(folder / NOTE)["metrics"]
    return metrics


def read_arrays(folder: Path) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Logits by set, and the labels of val_in and test; a round of an older odst has none of these."""
    arrays = load_file(folder / LOGITS)
    labels = {name.removeprefix(LABELS): y for name, y in arrays.items() if name.startswith(LABELS)}
    return {name: array for name, array in arrays.items() if not name.startswith(LABELS)}, labels


def read_selected(folder: Path, *, every: bool = False) -> pa.Table | None:
    file = folder / SELECTED
    return read_table(file, every=every) if file.exists() else None


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


def read_json(file: Path) -> dict[str, Any]:
    """An object of a run's own, or one line."""
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(value, dict):
            raise ValueError("no object")
        return value
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(
            f"{file}: this file is missing: {file.parent} is no run directory, or not a whole one."
        ) from None
    except ValueError as error:
        raise UserError(f"{file}: this file is damaged ({error}). Restore it, or start again with --fresh.") from None
