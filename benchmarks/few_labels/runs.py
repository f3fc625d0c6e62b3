"""One world and seed: the files, the config that `odst init` writes for them, a run of every method, and their rows."""

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from benchmarks.few_labels.worlds import PHOTOS, PIXELS, write_photographs, write_vectors
from odst.evaluation.metrics import auroc, confidence_log_odds
from odst.project.init import begin_project
from odst.run.config import read_config
from odst.run.directory import RunDir
from odst.run.execution import execute
from odst.run.preparation import prepare

ALONE, REGRESSION, ST, PAPER, AUTO = "labels alone", "logistic regression", "st", "odst, weight 1", "odst, auto"
Methods = dict[str, dict[str, Any]]  # what each changes in the config that `odst init` has written
METHODS: Methods = {
    AUTO: {},
    # eq. (1) and eq. (3) as the paper has them: all of the pool, every image once, the same weight
    PAPER: {"method.rest_weight": 1.0, "method.spare": None, "method.labelled_copies": 1, "run.labels_alone": False},
    ST: {"method.name": "st", "run.labels_alone": False},
}
KEYS = ("error", "od_auroc", "nll", "val_error", "val_od_auroc", "selected", "related", "correct")


def run_world(
    world: str, seed: int, more: Callable[[Path], Methods] | None = None, *, data: Path, features: Path, out: Path
) -> list[dict[str, Any]]:
    """The rows of every method, and of those that `more` says for the world's folder; the files and runs are gone afterwards."""
    folder = out / f"{world}-{seed}"
    shutil.rmtree(folder, ignore_errors=True)
    if world in (PHOTOS, PIXELS):
        write_photographs(seed, folder, data)
    else:
        write_vectors(world, seed, folder, features)
    backbone = "none" if world == PIXELS else None
    begin_project(folder, {}, folder / "project", size=None, seed=seed, backbone=backbone)
    methods = METHODS if more is None else METHODS | more(folder)
    rows: list[dict[str, Any]] = []
    for method in (AUTO,) if world == PIXELS else methods:  # a model takes minutes by pixels
        here = {"world": world, "seed": seed, "method": method}
        changes = methods[method] | {"run.seed": seed, "data.pool_truth": True}
        config = read_config(str(folder / "project" / "odst.toml"), changes)
        start = time.perf_counter()
        execute(config, folder / "runs" / method)
        run, seconds = RunDir(folder / "runs" / method), round(time.perf_counter() - start, 1)
        use = json.loads((run.path / "final.json").read_text())["use"] if method == AUTO else None
        weight = next((one.rest_weight for one in run.bases() if one.taken), config.recipe().rest_weight)
        for line in run.metrics():
            row = here | {"round": line["round"], "rest_weight": weight, "use": line["round"] == use}
            row |= {"harm": bool(line.get("harm"))} if line["round"] else {}
            rows.append(row | {key: line.get(key) for key in KEYS} | {"seconds": seconds})
        if method == AUTO:
            alone = run.note("labels-alone")["metrics"]
            row = here | {"method": ALONE, "round": 0, "rest_weight": 0.0, "use": use == "labels-alone"}
            rows.append(row | {key: alone.get(key) for key in KEYS})
            if world != PIXELS:
                rows.append(here | {"method": REGRESSION, "round": 0} | logistic_regression(prepare(config, run.path)))
    shutil.rmtree(folder)
    return rows


def logistic_regression(prepared: Any) -> dict[str, Any]:
    """scikit-learn's on the labelled vectors, its C the best of three on val_in."""
    data = prepared.data
    x, inside, test = (np.asarray(one.x[:], np.float32) for one in (data.labelled, data.val_in, data.test))
    start = time.perf_counter()
    fitted = [LogisticRegression(C=C, max_iter=1000).fit(x, data.labelled.y) for C in (0.01, 0.1, 1.0)]
    errors = [float((one.predict(inside) != data.val_in.y).mean()) for one in fitted]
    best = fitted[int(np.argmin(errors))]
    seconds = round(time.perf_counter() - start, 1)
    scores = [
        confidence_log_odds(best.decision_function(np.asarray(one[:], np.float32))) for one in data.out_tests.values()
    ]
    own = confidence_log_odds(best.decision_function(test))
    return {
        "error": float((best.predict(test) != data.test.y).mean()),
        "od_auroc": float(np.mean([auroc(own, other) for other in scores])),
        "val_error": min(errors),
        "seconds": seconds,
    }
