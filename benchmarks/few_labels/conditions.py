"""What must hold of the results: each sentence, whether it does, and the numbers."""

from typing import Any

import numpy as np

from benchmarks.few_labels.runs import ALONE, AUTO, PAPER, REGRESSION, ST
from benchmarks.few_labels.tables import WORLDS, Mean, Results, mean
from benchmarks.few_labels.worlds import CIFAR, PHOTOS, PIXELS

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


def prose(results: dict[str, Any]) -> list[str]:
    """What docs/method.md says of the tables in words, each sentence with its numbers."""
    found, costs = Results(results["rows"]), Results(results["costs"])
    cifar, sentences = [world for world in found.worlds() if world in CIFAR], []
    if cifar:
        world, most = worst(found, cifar)
        sentences.append(
            f"The round to use has {centre(found, cifar):.3f} of the error of labels alone, the geometric mean over the CIFAR worlds, and "
            f"{most.value:.3f}{spread(most, 3)} in the worst of them ({WORLDS[world]}); labels alone were the choice in {chosen(found, cifar)}."
        )
    for world in (world for world in (PHOTOS, PIXELS) if world in found.worlds()):
        alone = found.of(world, ALONE)
        base, use = (difference(one, alone) for one in (found.of(world, AUTO, 0), found.used(world)))
        aware = difference(found.used(world, "od_auroc"), found.of(world, ALONE, key="od_auroc"))
        sentences.append(
            f"Against labels alone the base of `auto` has {told(base)} points of error on {SAID[world]}, the round to use {told(use)}, "
            f"and {told(aware)} of OD-AUROC; labels alone were the choice in {chosen(found, [world])}."
        )
    for world in dict.fromkeys(row["world"] for row in costs.rows):
        error, aware = (cost(costs, world, key) for key in ("error", "od_auroc"))
        sentences.append(
            f"On {world} the third round of `auto` has {told(error)} points of error and {told(aware)} of OD-AUROC against that of weight 1."
        )
    return sentences


SAID = {PHOTOS: "photographs", PIXELS: "photographs by pixels"}


def worst(found: Results, worlds: list[str]) -> tuple[str, Mean]:
    """The world with the largest ratio, and the ratio."""
    world = max(worlds, key=lambda world: ratio(found, world)[0])
    return world, Mean(*ratio(found, world))


def chosen(found: Results, worlds: list[str]) -> str:
    return f"{sum(found.alone_chosen(w) for w in worlds)} of {sum(len(found.used(w)) for w in worlds)}"


def cost(found: Results, world: str, key: str) -> Mean:
    """What auto has more of than weight 1 in the last round."""
    return difference(found.of(world, AUTO, key=key), found.of(world, PAPER, key=key))


def told(one: Mean) -> str:
    return f"{one.value:+.1f}{spread(one, 1)}"


def centre(found: Results, worlds: list[str]) -> float:
    """The geometric mean of the ratios."""
    return float(np.exp(np.mean([np.log(ratio(found, world)[0]) for world in worlds])))


def of_ratios(found: Results) -> list[Check]:
    worlds = found.worlds()
    cifar = [world for world in worlds if world in CIFAR]
    checks = []
    if cifar:
        sentence = "geometric mean of the ratios over the CIFAR worlds at most 0.95"
        checks.append((sentence, centre(found, cifar) <= 0.95, f"{centre(found, cifar):.3f}"))
        few = sum(found.alone_chosen(w) for w in cifar) <= sum(len(found.used(w)) for w in cifar) / 4
        checks.append(("labels alone the choice in at most a quarter of the CIFAR runs", few, chosen(found, cifar)))
    if worlds:
        world, most = worst(found, worlds)
        sentence = "the worst world's ratio at most 1 within its standard error"
        checks.append((sentence, most.value - allowed(most) <= 1, f"{world} {most.value:.3f}{spread(most, 3)}"))
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
    error, aware = ({w: cost(found, w, key) for w in worlds} for key in ("error", "od_auroc"))
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
