"""A finished run, or a model folder that was made of one, as a classifier."""

import logging
from dataclasses import replace
from functools import partial
from pathlib import Path

from odst.classifier.model import Classifier
from odst.classifier.model_folder import is_model_folder, read_folder
from odst.errors import UserError
from odst.run.bases import ALONE
from odst.run.directory import RunDir, Which
from odst.run.preparation import encoding_of
from odst.run.round_folder import is_whole
from odst.run.round_note import thresholds_from_json
from odst.run.trust import check_code
from odst.training.precision import pick_device
from odst.vision.networks import make_network

log = logging.getLogger("odst")


def load(
    run: str | Path, *, round: int | str | None = None, device: str = "auto", trust_code: bool = False
) -> Classifier:
    """The classifier of a run: the one that its final.json says to use, or that of the round asked for, or "labels-alone".
    The run's images are not needed. Or that of a folder which `odst export --hub-folder` has written."""
    if is_model_folder(Path(run)):
        if round is not None:
            raise UserError(f"{run}: a model folder holds one model. Leave the round out, or take the run.")
        return read_folder(Path(run), device=device, trust_code=trust_code)
    folder = RunDir(Path(run), trust_code)
    info = folder.info()
    there = folder.finished_rounds()
    models: list[Which] = [*there, *([ALONE] if is_whole(folder.round(ALONE)) else [])]
    if round is None:
        round = _final_round(folder, there)
    elif isinstance(round, str) and round.isdecimal():
        round = int(round)
    if round not in models:
        raise UserError(f"{folder.path}: there is no round {round}. It has {', '.join(map(str, models))}.")
    note = folder.note(round)
    classes, shape = tuple(info["classes"]), tuple(info["shape"])
    config = folder.config()
    network = config.model.network()
    check_code(folder.path, network["name"], trust_code)
    model = make_network(K=len(classes), shape=shape, blank=True, **network)
    anywhere = replace(folder, path=folder.path.absolute())  # on machines with another current folder, too
    return Classifier(
        path=folder.path,
        run=anywhere,
        round=round,
        classes=classes,
        shape=shape,
        temperature=note["temperature"],
        tau=thresholds_from_json(note["thresholds"]).tau,
        model=folder.load_model(round, model).eval(),  # mean and spread come with the weights
        device=pick_device(device),
        size=config.data.size,
        fit=config.data.fit,
        see=partial(encoding_of, anywhere),
    )


def _final_round(folder: RunDir, there: list[int]) -> Which:
    if (final := folder.final()) is not None:
        use: Which = final.get("use", final["round"])  # an older odst knew of rounds only
        return use
    log.warning("%s is not finished: taking round %d, the last there is", folder.path, there[-1])
    return there[-1]
