"""A trained peer -> its row of results.json, with the keys of benchmarks.open_world's rows."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from benchmarks.peers.settings import Settings
from benchmarks.peers.training import inlier_log_odds
from odst.data.images import Data
from odst.evaluation.metrics import auroc, confidence_log_odds, error
from odst.method.calibration import fit_temperature, probabilities
from odst.method.labelling import infer, model_hash


def row_of(model: nn.Module, data: Data, s: Settings, world: Path) -> dict[str, Any]:
    """`od_auroc` is by the calibrated confidence, as odst's is; `own_od_auroc` by the peer's own score: OpenMatch's inlier
    probability, or else the confidence as the network gives it. `selected` are the pool images that would count in the
    pseudo-label term, by the final model. Truth and test sets are read here only."""
    assert data.pool is not None and data.test is not None and data.val_out is not None
    sets = {"val_in": data.val_in.x, "val_out": data.val_out, "test": data.test.x, **data.out_tests}
    outputs = {name: infer(model, x) for name, x in sets.items()}
    logits = {name: z[:, : data.K] for name, z in outputs.items()}
    temperature = fit_temperature(logits["val_in"], data.val_in.y)
    plain = {name: confidence_log_odds(z, temperature) for name, z in logits.items()}
    own = {name: own_score(z, data.K) for name, z in outputs.items()}
    by_set = {name: auroc(plain["test"], plain[name]) for name in data.out_tests}
    own_by_set = {name: auroc(own["test"], own[name]) for name in data.out_tests}
    return {
        "share": world.name.removeprefix("world-"),
        "method": s.method,
        "seed": s.seed,
        "round": 0,
        "error": error(logits["test"], data.test.y),
        "od_auroc": float(np.mean(list(by_set.values()))),
        "od_auroc_by_set": by_set,
        "own_od_auroc": float(np.mean(list(own_by_set.values()))),
        "own_od_auroc_by_set": own_by_set,
        **selected(infer(model, data.pool.x), data, s),
        "val_error": error(logits["val_in"], data.val_in.y),
        "val_od_auroc": auroc(plain["val_in"], plain["val_out"]),
        "own_val_od_auroc": auroc(own["val_in"], own["val_out"]),
        "corruption_error": corruption_error(model, data, world / "corrupted.npz"),
        "settings": asdict(s),
        "model": model_hash(model),
    }


def own_score(outputs: np.ndarray, K: int) -> np.ndarray:
    return inlier_log_odds(outputs, K) if outputs.shape[1] == 3 * K else confidence_log_odds(outputs)


def selected(outputs: np.ndarray, data: Data, s: Settings) -> dict[str, Any]:
    """Keys and meaning as of a round's selection; nothing is repeated."""
    assert data.pool is not None
    p = probabilities(outputs[:, : data.K], 1.0)
    passes = p.max(axis=1) >= s.threshold
    if outputs.shape[1] == 3 * data.K:
        passes &= inlier_log_odds(outputs, data.K) > 0
    ids = np.setdiff1d(np.flatnonzero(passes), data.pool.excluded)
    truth = None if data.pool.truth is None or len(ids) == 0 else data.pool.truth[ids]
    return {
        "selected": len(ids),
        "repeats": 0,
        "related": None if truth is None else float((truth >= 0).mean()),
        "correct": None if truth is None else float((truth == p[ids].argmax(axis=1)).mean()),
    }


def corruption_error(model: nn.Module, data: Data, file: Path) -> float | None:
    """The mean error on the world's corrupted images, where it has some."""
    if not file.exists():
        return None
    with np.load(file) as corrupted:
        y = np.searchsorted(data.classes, corrupted["labels"])
        return error(infer(model, corrupted["x"])[:, : data.K], y)
