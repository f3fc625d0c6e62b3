"""A config -> what a run works on: the sets, the network, the device; and what run.json says of them."""

import logging
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from odst.data.checks import check_data
from odst.data.encoding import CachedEmbedder, Encoding
from odst.data.images import Data, Pool, is_counted, is_image
from odst.data.loading import load_data, load_pool, open_encoding
from odst.data.pool import is_packed, read_manifest
from odst.data.sets import DataSection
from odst.data.vectors import Embedder
from odst.errors import UserError
from odst.evaluation.corruptions import published_labels
from odst.files import digest, sha256
from odst.method.selection import Selection
from odst.run.config import Config
from odst.run.directory import RunDir, Which
from odst.run.feedback import describe_marks, marked_pool, settled_marks, with_marks
from odst.run.identity import begun_key, describe_pool, describe_sets
from odst.run.selection_file import read_selection
from odst.run.trust import check_code
from odst.training.precision import pick_device, resolve
from odst.vision.augmentation import augmenter
from odst.vision.backbones import Identity
from odst.vision.networks import make_network, normalisation
from odst.vision.weights import network_key

log = logging.getLogger("odst")


@dataclass(frozen=True)
class Prepared:
    """A config brought to life: the sets, the network, the device."""

    config: Config
    data: Data
    make_model: Callable[[], nn.Module]
    device: str
    given: Selection | None
    encoding: Encoding | None = None  # of a run on embeddings
    marks: dict[str, Any] | None = None  # what people's marks have changed


def prepare(config: Config, workspace: Path | None) -> Prepared:
    """Load and check everything a run needs, before anything is written. Without a workspace, the run directory, a pool that
    is still to be packed is only counted."""
    recipe = config.recipe()
    data, encoding, marks = _load(config, workspace)
    given = None
    if recipe.given_selection and config.data.selection is not None:
        given = read_selection(Path(config.data.selection), data)
    check_data(recipe, data, given)
    _check_corruptions(config, data)
    device = pick_device(config.run.device)
    mean, std = normalisation(config.model.name, data.labelled.x)  # once: every round makes a network
    shape = tuple(data.labelled.x.shape[1:])
    make_model = partial(make_network, K=data.K, shape=shape, mean=mean, std=std, **config.model.network())
    make_model()  # an unknown network, augmentation or number format is an error now, not when the run has begun
    for schedule in config.schedules():
        resolve(schedule.precision, device)
        for phase in schedule.phases:
            augmenter(phase.augment, (0, 0, 0))
    return Prepared(config, data, make_model, device, given, encoding, marks)


def _check_corruptions(config: Config, data: Data) -> None:
    asked = config.data.corruptions
    if asked and not is_image(data.labelled.x):
        raise UserError(
            "data.corruptions: corruptions are made on images, and this run works on features. Take it out."
        )
    if isinstance(asked, str):
        published_labels(asked, data.K)
    elif asked and data.test is None:
        raise UserError("data.corruptions: there are no test images to corrupt. Set data.test, or take it out.")


def _load(config: Config, workspace: Path | None) -> tuple[Data, Encoding | None, dict[str, Any] | None]:
    """The sets, how the run sees them, and what marks have made of them."""
    run = None if workspace is None else RunDir(workspace)
    packed, section, encoding = None if run is None else run.pool, _section(config), None
    if config.model.backbone is not None:
        embedder = CachedEmbedder(config.model.backbone)
        if run is not None and run.exists():
            _check_encoder(run, embedder)
        encoding = open_encoding(section, packed, embedder)
    data = load_data(section, seed=config.run.seed, workspace=packed, encoding=encoding)
    if config.model.backbone is not None:
        embedder.release()
    data = replace(data, pool=_closed(config, data.pool))
    marks = settled_marks(section.marks, data.pool, data.classes)
    told = None if marks is None or data.pool is None else describe_marks(marks, data.pool)
    return with_marks(data, marks), encoding, told


def _check_encoder(run: RunDir, embedder: Embedder) -> dict[str, Any]:
    """Refuse a backbone that is not the run's; how the run sees, as run.json has it."""
    then = dict(run.info().get("encoder") or {})
    was = Identity.from_json({name: then.get(name) for name in embedder.identity.to_json()})
    if was != embedder.identity:
        raise UserError(
            f"{run.path}: this run works on vectors of {was}, and the backbone here is {embedder.identity}. They never mix: "
            "bring the first one back, or run again with --fresh."
        )
    return then


def encoding_of(run: RunDir) -> Encoding | None:
    """How the run sees; None for one on pixels, or on vectors that it was given."""
    if (spec := run.config().model.backbone) is None:
        return None
    check_code(run.path, spec, run.trust_code)
    embedder = Embedder(spec)
    return Encoding(embedder, _check_encoder(run, embedder).get("side"))


def _section(config: Config) -> DataSection:
    section, recipe = config.data, config.recipe()
    if section.task is not None and not recipe.rounds and not recipe.rest_weight:
        # it learns from T alone: do not ask for Tiny Images, which nobody can fetch any more
        return section.model_copy(update={"pool": None, "excluded": ()})
    return section


def _closed(config: Config, pool: Pool | None) -> Pool | None:
    """For a method of the closed world the pool without its unrelated images: possible only where the truth is known."""
    if not config.recipe().closed_world or config.data.closed_pool:
        return pool
    if pool is not None and is_counted(pool.x) and config.data.pool_truth:
        return pool  # still to be packed, and its truth with it
    if pool is None or pool.truth is None:
        raise UserError(
            "st-cw: it needs a pool of task images only, and this pool's truth is unknown. Set data.closed_pool = true if it is one."
        )
    return replace(pool, excluded=np.union1d(pool.excluded, np.flatnonzero(pool.truth < 0)))


# a run that has been made ----------------------------------------------------------------------------------------------------


def sets_of(run: RunDir) -> Data:
    """The sets of a run, here or on another machine: neither its device nor its network is needed.

    The run's logits stand row by row for these images, so sets that have changed since are refused.
    """
    then, config = run.info()["sets"], with_own_pool(run)
    check_code(run.path, config.model.backbone, run.trust_code)
    data, _, _ = _load(config, run.path)
    changed = [name for name, value in describe_sets(data).items() if then.get(name) != value]
    if changed:
        raise _changed(run, changed)
    _check_pool(run, data.pool)
    return data


def labels_of(run: RunDir, t: Which = 0) -> dict[str, np.ndarray]:
    """Of val_in and test, as the run kept them; a run of an older odst kept none, and its images are read again."""
    for one in (t, *run.rounds()):  # a run that an older odst began has them in its later rounds only
        if kept := run.labels(one):
            return kept
    data = sets_of(run)
    return {"val_in": data.val_in.y} | ({} if data.test is None else {"test": data.test.y})


def named_sources(run: RunDir) -> list[str]:
    """The sources of a run as its config names them, and those that its packed pool was made from."""
    section = with_own_pool(run).data
    values = (section.labelled, section.pool, section.val_in, section.val_out, section.test, *section.out_test.values())
    specs = [
        spec
        for one in values
        if one and not isinstance(one, float)
        for spec in ([one] if isinstance(one, str) else one)
    ]
    for pool in (Path(spec) for spec in list(specs) if is_packed(Path(spec))):
        specs += read_manifest(pool).get("order", {}).get("sources", [])
    return specs


def pool_of(run: RunDir) -> Pool | None:
    """The pool of a run, to be looked at: of a run on embeddings the pictures, and its backbone is not needed. No image of
    the other sets is read, unless they come together, as a world or a task."""
    classes, config = tuple(run.info()["classes"]), with_own_pool(run)
    section = _section(config)
    if section.labelled is None:
        check_code(run.path, config.model.backbone, run.trust_code)
        pool = _load(config, run.path)[0].pool
    elif section.pool is None:
        return None
    else:
        pool = load_pool(section, None, classes)
        if is_counted(pool.x):
            raise UserError(f"{run.path}: its pool {section.pool} is packed no more. Put the packed pool back.")
        pool = _closed(config, pool)
        if pool is not None and (marks := settled_marks(section.marks, pool, classes)) is not None:
            pool = marked_pool(pool, marks, classes)
    _check_pool(run, pool)
    return pool


def with_own_pool(run: RunDir) -> Config:
    """The config with the pool that the run has packed for itself, whatever has become of its sources."""
    config = run.config()
    if not is_packed(run.pool):
        return config
    return config.model_copy(update={"data": config.data.model_copy(update={"pool": str(run.pool)})})


def _check_pool(run: RunDir, pool: Pool | None) -> None:
    """Ids of another pool are refused; one of which only the exclusions can have changed is warned of."""
    then = run.info()["sets"].get("pool")
    if pool is None or then is None:
        return
    if len(pool) != then["images"]:
        raise _changed(run, ["pool"])
    if pool.identity is not None and describe_pool(pool) != then:
        log.warning("%s: the pool, or what is excluded from it, has changed since this run was made", run.path)


def _changed(run: RunDir, names: list[str]) -> UserError:
    return UserError(
        f"{run.path}: the images of {', '.join(names)} have changed since this run was made, and its numbers are of those "
        "it had. Put them back, or run again with --fresh."
    )


# what run.json says ----------------------------------------------------------------------------------------------------------


def describe(prepared: Prepared) -> dict[str, Any]:
    """Enough to tell whether two runs are the same, nothing of where or when."""
    config, data, recipe = prepared.config, prepared.data, prepared.config.recipe()
    sets = describe_sets(data)
    if data.pool is not None:
        sets["pool"] = describe_pool(data.pool)
    if config.data.selection is not None and prepared.given is not None:
        sets["selection"] = {"images": len(prepared.given), "hash": sha256(config.data.selection)}
    if prepared.marks is not None:
        sets["marks"] = prepared.marks
    encoder = None if prepared.encoding is None else prepared.encoding.to_json()
    settled = None if recipe.rest_weight == "auto" else recipe.rest_weight
    return {
        "method": config.method.name,
        "recipe": asdict(recipe),
        "seed": config.run.seed,
        "classes": list(data.classes),
        "shape": list(data.labelled.x.shape[1:]),
        "sets": sets,
        **({} if encoder is None else {"encoder": encoder}),
        "base": None if settled is None else base_key(prepared, sets, settled),
        "device": prepared.device,
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("odst", "torch", "numpy", "pyarrow", "safetensors")}
        | {"python": platform.python_version()},
    }


def base_key(prepared: Prepared, sets: dict[str, Any], rest_weight: float) -> str:
    """What a base depends on, in short: two runs with one key share it."""
    config, model, spare = prepared.config, prepared.make_model(), prepared.config.recipe().spare
    base = {
        "sets": [sets["labelled"], sets["val_in"], sets.get("pool") if rest_weight else None],
        "model": config.model.model_dump(exclude={"weights", "backbone"}),  # a file may move
        "encoder": None if prepared.encoding is None else prepared.encoding.to_json(),
        "network": network_key(config.model.name, model),
        "begun": begun_key(model) if config.model.pretrained or config.model.weights else None,
        "schedule": asdict(config.schedules()[0]),
        "seed": config.run.seed,
        "rest_weight": rest_weight,
        **({"spare": spare} if spare and rest_weight else {}),
        "device": prepared.device,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "odst": version("odst"),
    }
    return digest(base)
