"""One run: a config and a directory in, rounds out. The same call goes on where an earlier one stopped."""

import hashlib
import logging
import platform
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from odst.data.checks import check_data
from odst.data.images import Data, Pool, fingerprint, is_image
from odst.data.loading import load_data
from odst.errors import UserError
from odst.evaluation.corruptions import mean_corruption_error, published_corruption_errors, published_labels
from odst.evaluation.scoring import Scored, best_round, harm, score
from odst.files import digest, sha256, write_json
from odst.method.labelling import infer
from odst.method.selection import Selection
from odst.progress import listening
from odst.run.config import Config
from odst.run.directory import RunDir
from odst.run.journal import Timings, logging_to
from odst.run.selection_file import read_selection
from odst.self_training import Round, calibrated, self_train
from odst.training.precision import pick_device, resolve
from odst.vision.augmentation import augmenter
from odst.vision.networks import make_network, statistics

log = logging.getLogger("odst")


@dataclass(frozen=True)
class Prepared:
    """A config brought to life: the sets, the network, the device."""

    config: Config
    data: Data
    make_model: Callable[[], nn.Module]
    device: str
    given: Selection | None


def prepare(config: Config, workspace: Path | None) -> Prepared:
    """Load and check everything a run needs, before anything is written."""
    recipe = config.recipe()
    data = _load(config, workspace)
    given = None
    if recipe.given_selection and config.data.selection is not None:
        given = read_selection(Path(config.data.selection), data)
    check_data(recipe, data, given)
    _check_corruptions(config, data)
    mean, std = statistics(data.labelled.x)
    device = pick_device(config.run.device)

    def make_model() -> nn.Module:
        return make_network(config.model.name, data.K, data.labelled.x.shape[1:], mean, std)

    make_model()  # an unknown network, augmentation or number format is an error now, not when the run has begun
    for schedule in config.schedules():
        resolve(schedule.precision, device)
        for phase in schedule.phases:
            augmenter(phase.augment, (0, 0, 0))
    return Prepared(config, data, make_model, device, given)


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


def _load(config: Config, workspace: Path | None) -> Data:
    section, recipe = config.data, config.recipe()
    if section.task is not None and not recipe.rounds and not recipe.rest_weight:
        # it learns from T alone: do not ask for Tiny Images, which nobody can fetch any more
        section = section.model_copy(update={"pool": None, "excluded": ()})
    data = load_data(section, seed=config.run.seed, workspace=workspace)
    return closed_world(data) if recipe.closed_world and not section.closed_pool else data


def sets_of(run: RunDir) -> Data:
    """The sets of a run that has been made, here or on another machine: neither its device nor its network is needed.

    The run's logits stand row by row for these images, so sets that have changed since are refused; a pool of which only the
    exclusions can have changed is warned of.
    """
    then, data = run.info()["sets"], _load(run.config(), run.path)
    now = _describe_sets(data)
    changed = [name for name, value in now.items() if then.get(name) != value]
    if data.pool is not None and len(data.pool) != then["pool"]["images"]:
        changed.append("pool")
    if changed:
        raise UserError(
            f"{run.path}: the images of {', '.join(changed)} have changed since this run was made, and its numbers are of those "
            "it had. Put them back, or run again with --fresh."
        )
    if data.pool is not None and data.pool.identity is not None and _describe_pool(data.pool) != then["pool"]:
        log.warning("%s: the pool, or what is excluded from it, has changed since this run was made", run.path)
    return data


def execute(
    config: Config, out: Path, *, fresh: bool = False, tell: Callable[[dict[str, Any]], None] = lambda _: None
) -> int:
    """Run `config` in `out`, or go on with it; return the round to use. `tell` hears each round's metrics."""
    run = RunDir(out)
    if fresh:
        prepare(config, None)  # an old run is moved aside only for a config that can be run
    resumed = run.open(config, fresh=fresh)
    prepared = prepare(config, out)
    data, recipe = prepared.data, config.recipe()
    info = describe(prepared)
    if resumed:
        changed = [name for name, value in run.info()["sets"].items() if info["sets"].get(name) != value]
        if changed:
            raise UserError(
                f"{out}: the images of {', '.join(changed)} have changed since this run began. Start again with --fresh."
            )
    else:
        run.begin(config, info)
    with logging_to(out / "log.txt"), listening(Timings(out / "timings.jsonl")):
        log.info("%s: %s, seed %d", "going on" if resumed else "start", config.method.name, config.run.seed)
        last, scored = _last_round(run, prepared, info["base"])
        for one in run.metrics():
            tell(one)
        stopped = _harm_on_file(run, config) if last is not None else None
        rounds: Iterator[Round] = iter(())
        if stopped is None:
            rounds = self_train(
                recipe, data, prepared.make_model, config.schedules(), seed=config.run.seed, start=last, given=prepared.given,
                device=prepared.device, scratch=run.scratch, checkpoint_seconds=config.run.checkpoint_seconds,
            )  # fmt: skip
        for round_ in rounds:
            before, scored = scored, _score(prepared, round_)
            worse = None
            if before is not None:
                worse = scored.metrics["harm"] = harm(before, scored, data.val_in.y)
            run.save_round(
                round_, scored, data, None if round_.t == 0 or recipe.given_selection else run.note(round_.t - 1)
            )
            tell(scored.metrics)
            if worse:
                log.warning("round %d harms: %s", round_.t, worse)
                if config.run.stop_on_harm:
                    stopped = "harm"
                    break
        return _finish(run, recipe.rounds, stopped)


def _last_round(run: RunDir, prepared: Prepared, base: str) -> tuple[Round | None, Scored | None]:
    """The round to go on from: the run's own last, or a base that a run beside this one has already trained."""
    done = run.rounds()
    for t in done[:-1]:
        run.note(t)
    if done:
        return run.load_round(done[-1], prepared.make_model())
    donor = find_base(run.path, base)
    if donor is None:
        return None, None
    log.info("the base of %s is the same: taking it over", donor.path.name)
    model = donor.load_model(0, prepared.make_model())
    round_ = calibrated(prepared.config.recipe(), prepared.data, 0, model, None, prepared.device)
    scored = _score(prepared, round_)
    run.save_round(round_, scored, prepared.data, None)
    return round_, scored


def _score(prepared: Prepared, round_: Round) -> Scored:
    """The numbers of a round; where the config asks for it, the mean corruption error among them."""
    config, test = prepared.config, prepared.data.test
    scored = score(round_, prepared.data, prepared.device)

    def predict(x: np.ndarray) -> np.ndarray:
        return infer(round_.model, x, device=prepared.device).argmax(axis=1)

    if isinstance(config.data.corruptions, str):
        errors = published_corruption_errors(predict, config.data.corruptions)
        scored.metrics["corruption_error"] = float(errors.mean())
    elif config.data.corruptions and test is not None:
        scored.metrics["corruption_error"] = mean_corruption_error(predict, test.x, test.y, seed=config.run.seed)
    return scored


def find_base(path: Path, base: str) -> RunDir | None:
    """A run in the same folder with an equal base: T, val_in, network, schedule, seed and rest_weight (and pool) agree."""
    for beside in sorted(path.resolve().parent.iterdir()):
        run = RunDir(beside)
        try:
            if beside == path.resolve() or not (beside / "run.json").exists() or not run.rounds():
                continue
            if run.info().get("base") == base and run.note(0):
                return run
        except (UserError, OSError) as error:  # somebody else's folder, or a damaged run: train the base here
            log.debug("not taking over a base: %s", error)
    return None


def _harm_on_file(run: RunDir, config: Config) -> str | None:
    return "harm" if config.run.stop_on_harm and run.metrics()[-1].get("harm") else None


def _finish(run: RunDir, rounds: int, stopped: str | None) -> int:
    run.tidy()
    metrics = run.metrics()
    best, last = best_round(metrics), metrics[-1]["round"]
    if stopped is None and last < rounds:
        stopped = "nothing above the thresholds"
    write_json(
        run.path / "final.json",
        {
            "round": best,
            "last_round": last,
            "planned_rounds": rounds,
            "stopped": stopped,
            "harmful_rounds": [one["round"] for one in metrics if one.get("harm")],
            "model": f"round-{best}/model.safetensors",
            "model_hash": run.note(best)["model_hash"],
            "val_error": metrics[best]["val_error"],
            "val_od_auroc": metrics[best]["val_od_auroc"],
        },
    )
    log.info("done: use round %d", best)
    return best


def describe(prepared: Prepared) -> dict[str, Any]:
    """What run.json says of a run: enough to tell whether two runs are the same, nothing of where or when."""
    config, data = prepared.config, prepared.data
    sets = _describe_sets(data)
    if data.pool is not None:
        sets["pool"] = _describe_pool(data.pool)
    if config.data.selection is not None and prepared.given is not None:
        sets["selection"] = {"images": len(prepared.given), "hash": sha256(config.data.selection)}
    recipe = config.recipe()
    base = {
        "sets": [sets["labelled"], sets["val_in"], sets.get("pool") if recipe.rest_weight else None],
        "model": config.model.model_dump(),
        "schedule": asdict(config.schedules()[0]),
        "seed": config.run.seed,
        "rest_weight": recipe.rest_weight,
        "device": prepared.device,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
    }
    return {
        "method": config.method.name,
        "recipe": asdict(recipe),
        "seed": config.run.seed,
        "classes": list(data.classes),
        "shape": list(data.labelled.x.shape[1:]),
        "sets": sets,
        "base": digest(base),
        "device": prepared.device,
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in ("odst", "torch", "numpy", "pyarrow", "safetensors")}
        | {"python": platform.python_version()},
    }


def _describe_sets(data: Data) -> dict[str, Any]:
    """How many images each set but the pool has, and a hash of them and their labels."""
    sets = {}
    for name, one in (("labelled", data.labelled), ("val_in", data.val_in), ("test", data.test)):
        if one is not None:
            sets[name] = {"images": len(one), "hash": fingerprint(one.x, one.y)}
    for name, x in {"val_out": data.val_out, **{f"out_test.{name}": x for name, x in data.out_tests.items()}}.items():
        if x is not None:
            sets[name] = {"images": len(x), "hash": fingerprint(x)}
    return sets


def _describe_pool(pool: Pool) -> dict[str, Any]:
    excluded = hashlib.blake2b(np.ascontiguousarray(pool.excluded).data, digest_size=16).hexdigest()
    return {"images": len(pool), "excluded": len(pool.excluded), "hash": digest([pool.id, excluded])}


def closed_world(data: Data) -> Data:
    """The pool without its unrelated images: possible only where the truth is known."""
    if data.pool is None or data.pool.truth is None:
        raise UserError(
            "st-cw: it needs a pool of task images only, and this pool's truth is unknown. Set data.closed_pool = true if it is one."
        )
    unrelated = np.flatnonzero(data.pool.truth < 0)
    return replace(data, pool=replace(data.pool, excluded=np.union1d(data.pool.excluded, unrelated)))
