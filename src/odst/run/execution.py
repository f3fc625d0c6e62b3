"""One run: a config and a directory in, rounds out. The same call goes on where an earlier one stopped."""

import logging
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from odst.errors import UserError
from odst.evaluation.corruptions import mean_corruption_error, published_corruption_errors
from odst.evaluation.scoring import Scored, best_round, harm, score
from odst.locks import lock
from odst.method.labelling import infer
from odst.run.config import Config
from odst.run.directory import RunDir
from odst.run.preparation import Prepared, describe, prepare
from odst.self_training import Round, calibrated, self_train

log = logging.getLogger("odst")


def execute(config: Config, out: Path, *, fresh: bool = False) -> int:
    """Run `config` in `out`, or go on with it; return the round to use. One process at a time does so in one folder."""
    run = RunDir(out)
    if fresh:
        prepare(config, None)  # an old run is moved aside only for a config that can be run
        with lock(out, "odst run"):
            run.move_aside()
    with lock(out, "odst run"):
        return _execute(config, run)


def _execute(config: Config, run: RunDir) -> int:
    out = run.path
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
        run.begin(config, info)
    with run.recording():
        log.info("%s: %s, seed %d", "going on" if resumed else "start", config.method.name, config.run.seed)
        last, scored = _last_round(run, prepared, info["base"])
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
            run.save_round(round_, scored, data, chosen_by_teacher=not recipe.given_selection)
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
    donor = find_base(run, base)
    if donor is None:
        return None, None
    log.info("the base of %s is the same: taking it over", donor.path.name)
    model = donor.load_model(0, prepared.make_model())
    round_ = calibrated(prepared.config.recipe(), prepared.data, 0, model, None, prepared.device)
    scored = _score(prepared, round_)
    run.save_round(round_, scored, prepared.data)
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


def find_base(run: RunDir, base: str) -> RunDir | None:
    """A run in the same folder with an equal base: T, val_in, network, schedule, seed and rest_weight (and pool) agree."""
    for beside in run.runs_beside():
        try:
            if beside.rounds() and beside.info().get("base") == base and beside.note(0):
                return beside
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
    run.finish(best, rounds, stopped)
    log.info("done: use round %d", best)
    return best
