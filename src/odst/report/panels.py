"""The report's tables and plots, one function each."""

from typing import Any

import numpy as np
from markupsafe import Markup

from odst.method.calibration import BINS, probabilities, top_log_odds
from odst.report import plots, words
from odst.report.findings import Findings, RoundFindings
from odst.report.measures import HIGH, LOW
from odst.report.plots import Series
from odst.report.pool_scan import histogram_of


def curves(found: Findings) -> list[tuple[str, Markup]]:
    def over_rounds(key: str) -> list[float | None]:
        return [one.metrics[key] for one in found.rounds]

    error, auroc = ("error", "od_auroc") if found.tested else ("val_error", "val_od_auroc")
    outs = [one.placements.interval() if one.placements else None for one in found.rounds]
    errors = [Series("error", "c1", over_rounds(error), [one.error_interval for one in found.rounds], labelled=True)]
    aurocs = [Series("OD-AUROC", "c1", over_rounds(auroc), outs, labelled=True)]
    if found.tested:
        errors.append(Series("val_in error", "c2", over_rounds("val_error")))
        aurocs.append(Series("val OD-AUROC", "c2", over_rounds("val_od_auroc")))
    return [
        (f"Error on {found.set_name}, {LOW}", plots.rounds_chart("Error over rounds", errors)),
        (f"OD-AUROC, {HIGH}", plots.rounds_chart("OD-AUROC over rounds", aurocs, unit="")),
        (
            f"Calibration error (ECE), {LOW}",
            plots.rounds_chart("ECE over rounds", [Series("ECE", "c1", over_rounds("ece"), labelled=True)]),
        ),
    ]


def bars(found: Findings) -> list[tuple[int, Markup]]:
    bars = []
    for one in found.rounds:
        if one.selection is not None:
            rows = one.selection["classes"].values()
            used, entries = [row["used"] for row in rows], [row["entries"] for row in rows]
            title = f"Images per class selected for round {one.t}"
            bars.append((one.t, plots.class_bars(title, found.classes, used, entries, one.selection["k"])))
    return bars


def confidence(found: Findings, one: RoundFindings, pool: np.ndarray | None) -> dict[str, Any]:
    """Histograms of val_in, val_out and the pool: over all classes, and for those predicted as each class.

    `pool` holds the counts of PoolScan; None where this round did not label the pool.
    """
    K, tau = found.K, one.thresholds.tau
    counts: dict[str, np.ndarray] = {}
    for name in ("val_in", "val_out"):
        if name in one.logits:
            counts[name] = _by_class(one.logits[name], one.temperature, K)
    if pool is not None:
        counts["pool"] = pool
    classes = found.classes
    every = {name: table.sum(axis=0) for name, table in counts.items()}
    return {
        "pool": pool is not None,
        "every": plots.confidence_chart(
            f"Confidence of round {one.t}, all classes", every, zip(classes, tau, strict=True)
        ),
        "classes": [
            (
                name,
                plots.confidence_chart(
                    f"Confidence of round {one.t}, images predicted as {name}",
                    {key: table[c] for key, table in counts.items()},
                    [(name, tau[c])],
                    small=True,
                ),
            )
            for c, name in enumerate(classes)
        ],
    }


def _by_class(logits: np.ndarray, temperature: float, K: int) -> np.ndarray:
    classes, odds = top_log_odds(logits, temperature)
    return np.stack([histogram_of(odds[classes == c]) for c in range(K)])


def reliability(found: Findings) -> list[tuple[int, Markup]]:
    charts = []
    for one in found.rounds:
        p = probabilities(one.logits[found.set_name], one.temperature)
        right = p.argmax(axis=1) == found.labels
        charts.append((one.t, plots.reliability_chart(f"Reliability of round {one.t}", p.max(axis=1), right, BINS)))
    return charts


def thresholds(found: Findings, one: RoundFindings) -> dict[str, Any]:
    """The table of a round: per class both thresholds, what they hold on images that did not set them, and the selection."""
    rows = []
    for c, name in enumerate(found.classes):
        inside, outside = one.thresholds.inside[c], one.thresholds.outside[c]
        rows.append(
            {
                "name": name,
                "inside": words.probability(inside),
                "outside": words.probability(outside),
                "decides": "" if inside == outside else "in" if inside > outside else "out",
                "contract": one.contract[c] if one.contract else None,
            }
        )
    return {"t": one.t, "rows": rows, "shortfalls": one.shortfalls}
