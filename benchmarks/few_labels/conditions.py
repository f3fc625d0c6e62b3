"""What must hold of the results: each sentence, whether it does, and the numbers."""

from typing import Any

import numpy as np

from benchmarks.few_labels.runs import ALONE, AUTO, PAPER, REGRESSION, ST
from benchmarks.few_labels.tables import Mean, Results, mean
from benchmarks.few_labels.worlds import CIFAR

Check = tuple[str, bool, str]


def conditions(results: dict[str, Any]) -> list[Check]:
    """A sentence that no world here can speak to is left out."""
    found = Results(results["rows"])
    checks = [
        *of_worlds(found),
        *of_ratios(found),
        *of_promises(results["promise"]),
        *of_costs(Results(results["costs"])),
    ]
    return [(sentence, bool(fine), said) for sentence, fine, said in checks if said]


def of_worlds(found: Results) -> list[Check]:
    worlds = found.worlds()
    cifar = [world for world in worlds if world in CIFAR]
    few = [world for world in cifar if CIFAR[world].labelled <= 1000]
    compared = [world for world in worlds if found.of(world, ST)]
    photos = [world for world in worlds if world not in CIFAR]
    features = [world for world in worlds if found.of(world, REGRESSION)]
    alone = {world: found.of(world, ALONE) for world in worlds}
    base = {w: difference(found.of(w, AUTO, 0), alone[w]) for w in worlds}
    use = {w: difference(found.used(w), alone[w]) for w in worlds}
    third = {w: difference(found.of(w, AUTO, 3), alone[w]) for w in few}
    st = {w: difference(found.of(w, AUTO, 3), found.of(w, ST, 3)) for w in compared}
    aware = {w: difference(found.of(w, AUTO, 3, "od_auroc"), found.of(w, ST, 3, "od_auroc")) for w in cifar}
    shown = {w: difference(found.used(w, "od_auroc"), found.of(w, ALONE, key="od_auroc")) for w in photos}
    head = {w: difference(alone[w], found.of(w, REGRESSION)) for w in features}
    return [
        by_world("auto's base at most 1.5 points above labels alone", base, lambda d: d.value <= 1.5),
        by_world(
            "the round to use not above labels alone beyond a standard error", use, lambda d: d.value <= allowed(d)
        ),
        by_world("the third round below labels alone, up to 1,000 labels", third, lambda d: d.value < 0),
        by_world("the third round not above st's beyond a standard error", st, lambda d: d.value <= allowed(d)),
        by_world("OD-AUROC at least 5 points above st's with CIFAR-100", aware, lambda d: d.value >= 5),
        by_world("OD-AUROC on photographs above that of labels alone", shown, lambda d: d.value > 0),
        by_world("labels alone at most a point above logistic regression", head, lambda d: d.value <= 1),
    ]


def of_ratios(found: Results) -> list[Check]:
    worlds = found.worlds()
    cifar = [world for world in worlds if world in CIFAR]
    checks = []
    if cifar:
        centre = float(np.exp(np.mean([np.log(ratio(found, world)[0]) for world in cifar])))
        sentence = "geometric mean of the ratios over the CIFAR worlds at most 0.95"
        checks.append((sentence, centre <= 0.95, f"{centre:.3f}"))
        chosen, runs = sum(found.alone_chosen(w) for w in cifar), sum(len(found.used(w)) for w in cifar)
        sentence = "labels alone the choice in at most a quarter of the CIFAR runs"
        checks.append((sentence, chosen <= runs / 4, f"{chosen} of {runs}"))
    if worlds:
        worst = max(worlds, key=lambda world: ratio(found, world)[0])
        one = Mean(*ratio(found, worst))
        sentence = "the worst world's ratio at most 1 within its standard error"
        checks.append((sentence, one.value - allowed(one) <= 1, f"{worst} {one.value:.3f}{spread(one, 3)}"))
    return checks


def of_promises(rows: list[dict[str, Any]]) -> list[Check]:
    """An empty selection counts as kept."""
    checks = []
    for world, promise in dict.fromkeys((row["world"], row["promise"]) for row in rows):
        own = [row for row in rows if (row["world"], row["promise"]) == (world, promise)]
        share = mean([1.0 if row["related"] is None else row["related"] for row in own])
        said = f"{share} %, classes open in {sum(row['open'] > 0 for row in own)} of {len(own)} seeds"
        closed = next((row["said"] for row in own if row["said"]), None)
        checks.append((
            f"{world}: the mean related share at or above the {100 * promise:.0f} % promised", share.value >= 100 * promise,
            said + (f'; the run says "{closed}"' if closed and not any(row["open"] for row in own) else ""),
        ))  # fmt: skip
    return checks


def of_costs(found: Results) -> list[Check]:
    worlds = list(dict.fromkeys(row["world"] for row in found.rows))
    error = {w: difference(found.of(w, AUTO), found.of(w, PAPER)) for w in worlds}
    aware = {w: difference(found.of(w, AUTO, key="od_auroc"), found.of(w, PAPER, key="od_auroc")) for w in worlds}
    return [
        by_world(
            "auto's last error not above weight 1's beyond a standard error", error, lambda d: d.value <= allowed(d)
        ),
        by_world(
            "auto's last OD-AUROC not below weight 1's beyond a standard error", aware, lambda d: -d.value <= allowed(d)
        ),
    ]


def by_world(sentence: str, differences: dict[str, Mean], holds: Any) -> Check:
    said = [f"{w} {d.value:+.2f}{spread(d)}{'' if holds(d) else ' NOT MET'}" for w, d in differences.items()]
    return sentence, all(map(holds, differences.values())), "; ".join(said)


def spread(one: Mean, digits: int = 2) -> str:
    return f" ± {one.error:.{digits}f}" if np.isfinite(one.error) else " (one seed)"


def allowed(one: Mean) -> float:
    """A standard error; a single seed has none to excuse it with."""
    return one.error if np.isfinite(one.error) else 0.0


def difference(one: list[float], other: list[float]) -> Mean:
    """Paired by seed, in points."""
    return mean(list(np.array(one) - np.array(other)))


def ratio(found: Results, world: str) -> tuple[float, float]:
    """The mean error of the round to use over that of labels alone, and its standard error over the seeds."""
    used, alone = np.array(found.used(world)), np.array(found.of(world, ALONE))
    value = float(used.mean() / alone.mean())
    error = (used - value * alone).std(ddof=1) / np.sqrt(len(used)) / alone.mean() if len(used) > 1 else np.inf
    return value, float(error)
