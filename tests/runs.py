"""Small real runs for the tests of what comes after a run: pictures of bars, classes with awkward names."""

from pathlib import Path
from typing import Any

import numpy as np

from odst.data.images import Data, Labelled, Pool
from odst.evaluation.scoring import best_round, harm, score
from odst.run.config import Config, parse_config
from odst.run.directory import RunDir
from odst.run.preparation import Prepared, describe
from odst.seeds import stream
from odst.self_training import self_train
from odst.vision.networks import make_network

NAMES = ('<script>alert("x")</script>', "it's & 😀", "plain")
SIDE = 12


def bars(rng: np.random.Generator, kind: np.ndarray) -> np.ndarray:
    """Noisy pictures: a bar across (0), a bar down (1), a diagonal (2), and for -1 a blob, which is none of these."""
    x = rng.integers(0, 60, size=(len(kind), SIDE, SIDE, 3))
    place = rng.integers(2, SIDE - 4, size=len(kind))
    for picture, k, p in zip(x, kind, place, strict=True):
        if k == 0:
            picture[p : p + 2] += 150
        elif k == 1:
            picture[:, p : p + 2, :2] += 150
        elif k == 2:
            picture[np.arange(SIDE), np.arange(SIDE)] += 150
        else:
            picture[p : p + 4, p - 2 : p + 2] += rng.integers(40, 150)
    return x.astype(np.uint8)


def bar_world(seed: int = 0, pool: int = 400, classes: tuple[str, ...] = NAMES) -> Data:
    rng = stream(seed, "bars")
    K = len(classes)

    def task(n: int) -> Labelled:
        y = np.arange(n) % K
        return Labelled(bars(rng, y), y)

    def others(n: int) -> np.ndarray:
        return bars(rng, np.full(n, -1))

    truth = np.where(rng.random(pool) < 0.4, rng.integers(K, size=pool), -1)
    names = np.array([f"file:///home/anna/pool/%3Cimg src=x onerror=alert(1)%3E-{j}.png" for j in range(pool)])
    return Data(
        labelled=task(6 * K),
        pool=Pool(bars(rng, truth), sources=names, truth=truth, excluded=np.array([0, 7])),
        val_in=task(40 * K),
        val_out=others(120),
        test=task(50 * K),
        out_tests={"blobs": others(150), "<b>dark</b>": bars(rng, np.full(80, -1)) // 2},
        classes=classes,
    )


def config(**changes: Any) -> Config:
    values: dict[str, Any] = {
        "data": {"world": "digits"},  # what a config must name; these tests hand in their own sets
        "method": {"name": "odst", "alpha": 0.95, "ratio": [4, 15], "max_copies": 3},
        "model": {"name": "tiny"},
        "training": {"batch": 24, "phases": [{"steps": 40, "lr": 0.1, "shape": "cosine"}]},
    }
    for section, keys in changes.items():
        values[section] = {**values.get(section, {}), **keys}
    return parse_config(values, "test")


def make_run(path: Path, data: Data, settings: Config, *, rounds: int | None = None, finish: bool = True) -> RunDir:
    """Run `settings` over `data` as `odst run` does; `rounds` ends it early, without a final round."""

    def make_model() -> Any:
        network = settings.model.network()
        return make_network(K=data.K, shape=data.labelled.x.shape[1:], mean=0.3, std=0.3, **network)

    run, recipe = RunDir(path), settings.recipe()
    run.begin(settings, describe(Prepared(settings, data, make_model, "cpu", None)))
    made = []
    seed = settings.run.seed
    for round_ in self_train(recipe, data, make_model, settings.schedules(), seed=seed, scratch=run.scratch):
        scored = score(round_, data)
        if made:
            scored.metrics["harm"] = harm(made[-1], scored, data.val_in.y)
        run.save_round(round_, scored, data)
        made.append(scored)
        if rounds is not None and round_.t + 1 == rounds:
            return run
    if finish:
        run.finish(best_round(made), recipe.rounds, None)
    return run
