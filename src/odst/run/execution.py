"""One run: a config and a directory in, rounds out. The same call goes on where an earlier one stopped."""

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from odst.engine.interface import share
from odst.engine.parts import writing
from odst.errors import UserError
from odst.evaluation.choice import choose
from odst.evaluation.scoring import Scored, harm
from odst.rounds import Round
from odst.run.audit import check_own
from odst.run.bases import ALONE
from odst.run.config import Config, files_of
from odst.run.directory import RunDir, Which
from odst.run.feedback import own_marks, write_copies
from odst.run.first_round import score_round, settled_recipe, write_first_round
from odst.run.marks import read_marks
from odst.run.preparation import Prepared, describe, prepare, with_own_pool
from odst.self_training import self_train

log = logging.getLogger("odst")


def execute(config: Config, out: Path, *, fresh: bool = False, parent: dict[str, Any] | None = None) -> Which:
    """Run `config` in `out`, or go on with it; return the round to use, or labels-alone. One process at a time does so in one
    folder.

    `parent` is what run.json says of the run whose marks are fed back, as `feed_back` gives it.
    """
    run = RunDir(out)
    given, (config, copies) = config, own_marks(config, run, fresh)
    if fresh:
        prepare(given, None)  # an old run is moved aside only for a config that can be run
        with writing(out, "odst run"):
            run.move_aside()
            write_copies(copies)
    elif copies and not run.exists():
        prepare(given, None)  # marks that do not belong leave nothing
        with writing(out, "odst run"):
            write_copies(copies)
    with writing(out, "odst run"):
        return _execute(config, run, parent)


def _execute(config: Config, run: RunDir, parent: dict[str, Any] | None) -> Which:
    out = run.path
    if share() is not None and not run.rounds():
        raise UserError(
            f"--shard: {out} has no trained round yet, so there is nothing to label. Run it without --shard first."
        )
    resumed = run.open(config)
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
        run.begin(config, info if parent is None else info | {"parent": parent})
    with run.recording():
        log.info("%s: %s, seed %d", "going on" if resumed else "start", config.method.name, config.run.seed)
        if not run.rounds():
            write_first_round(run, prepared, info["sets"])
        last, scored = _last_round(run, prepared)
        recipe = settled_recipe(run, recipe)
        stopped = _harm_on_file(run, config)
        rounds: Iterator[Round] = iter(())
        if stopped is None:
            rounds = self_train(
                recipe, data, prepared.make_model, config.schedules(), seed=config.run.seed, start=last, given=prepared.given,
                device=prepared.device, scratch=run.scratch, checkpoint_seconds=config.run.checkpoint_seconds,
            )  # fmt: skip
        for round_ in rounds:
            before, scored = scored, score_round(prepared, round_)
            worse = scored.metrics["harm"] = harm(before, scored, data.val_in.y)
            run.save_round(round_, scored, data, chosen_by_teacher=not recipe.given_selection)
            if worse:
                log.warning("round %d harms: %s", round_.t, worse)
                if config.run.stop_on_harm:
                    stopped = "harm"
                    break
        return _finish(run, config, data.val_in.y, stopped)


def _last_round(run: RunDir, prepared: Prepared) -> tuple[Round, Scored]:
    """The round to go on from, after checking those before it."""
    *before, last = run.rounds()
    beside: list[Which] = [one.name for one in run.bases() if one.name]
    for which in beside + before:
        run.note(which)
    return run.load_round(last, prepared.make_model())


def _harm_on_file(run: RunDir, config: Config) -> str | None:
    return "harm" if config.run.stop_on_harm and run.metrics()[-1].get("harm") else None


def _finish(run: RunDir, config: Config, y: np.ndarray, stopped: str | None) -> Which:
    run.tidy()
    planned = config.recipe().rounds
    rounds = [Scored(metrics, run.logits(t)) for t, metrics in enumerate(run.metrics())]
    if stopped is None and len(rounds) <= planned:
        stopped = "nothing above the thresholds"
    alone = None
    if config.run.labels_alone:
        alone = Scored(run.note(ALONE)["metrics"], run.logits(ALONE))
    choice = choose(rounds, alone, y, holds=all(one.holds for one in run.bases() if one.taken))
    use: Which = ALONE if choice.alone else choice.round
    beside = None
    if alone is not None:
        beside = {key: alone.metrics[key] for key in ("val_error", "val_od_auroc", "error", "od_auroc")}
        says = words(alone.metrics, rounds[choice.round].metrics, config.method.name, len(y), choice.verdict)
        beside |= {"verdict": choice.verdict, "says": says}
        log.info("%s", says)
    run.finish(choice.round, planned, stopped, use, beside)
    log.info("done: use %s", "labels alone" if use == ALONE else f"round {use}")
    return use


def words(alone: dict[str, Any], best: dict[str, Any], method: str, n_in: int, verdict: str | None) -> str:
    """Labels alone and the best round in one line: on test images where there are some, and how sure val_in is of it."""
    tested = alone["error"] is not None
    key, auroc, where = ("error", "od_auroc", "test images") if tested else ("val_error", "val_od_auroc", "val_in")
    told = "" if alone[auroc] is None else f", OD-AUROC {100 * alone[auroc]:.1f} and {100 * best[auroc]:.1f}"
    return (
        f"your labels alone: {100 * alone[key]:.1f} %, {method}: {100 * best[key]:.1f} % error on {where}{told}; "
        f"by the {n_in:,} images of val_in: {verdict}"
    )


def check_marked(run: RunDir, changed: Sequence[str], files: Sequence[Path]) -> None:
    """Marks on the command line are of the run that is named there: `changed` are those of --set data.marks, `files` of --marks."""
    if files and not run.exists():
        raise UserError(
            f"--marks: {run.path} is no run, and marks are of a run's selections. Give the run that they were made on; a config "
            "names marks of its pool as data.marks."
        )
    if run.exists():
        for name in changed:
            check_own(run, read_marks(Path(name)), name)


def feed_back(parent: RunDir, config: Config, files: Sequence[Path]) -> tuple[Config, dict[str, Any]]:
    """The config of a run that learns from marks on `parent`'s selections, and what its run.json says of the parent.

    How many images a class may take stays the parent's: marks change what is known, not how much is asked of the pool.
    """
    for file in files:
        check_own(parent, read_marks(file), str(file))
    info, recipe = parent.info(), config.recipe()
    marks = tuple(dict.fromkeys([*files_of(config.data.marks), *(str(file.resolve()) for file in files)]))
    data = with_own_pool(parent).data.pool if config.data.pool is not None else None
    section = config.data.model_copy(update={"marks": marks, "pool": data})
    n, K = info["sets"]["labelled"]["images"], len(info["classes"])
    method = config.method
    if recipe.rounds and not recipe.given_selection:
        k = tuple(recipe.per_class(t, n, K) for t in range(recipe.rounds))
        method = method.model_copy(update={"k": k})
    final, metrics = parent.final(), parent.metrics()
    best = metrics[final["round"] if final else -1]
    told = {"name": parent.path.resolve().name, "config_hash": info["config_hash"], "labelled": n}
    told |= {key: best[key] for key in ("round", "error", "od_auroc", "val_error", "val_od_auroc", "correct")}
    return config.model_copy(update={"data": section, "method": method}), told
