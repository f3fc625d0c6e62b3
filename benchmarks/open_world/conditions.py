"""What the results should show: each sentence, whether it does, and the numbers."""

from collections.abc import Collection
from typing import Any

import numpy as np

from benchmarks.open_world.sweep import ALONE, FIRST, PEERS, PEERS_FIRST, area, curves, last_rounds, seeds_of, slope
from benchmarks.open_world.world import SWEEP

Rows = list[dict[str, Any]]
Check = tuple[str, bool, str]
PAPER, AUTO = "odst", "odst-auto"


class World:
    """The rows of one world, looked up by method and round; seeds in one order."""

    def __init__(self, rows: Rows, name: str):
        self.name = name
        self.rows = sorted((row for row in rows if row["share"] == name), key=lambda row: row["seed"])

    def of(self, method: str, t: int, key: str = "error") -> dict[int, float]:
        """By seed, in percent; of a run that ended before this round its last."""
        own = [row for row in self.rows if row["method"] == method and row["round"] <= t and row.get(key) is not None]
        return {row["seed"]: 100 * row[key] for row in sorted(own, key=lambda row: row["round"])}

    def together(self, *names: str) -> "World":
        """Only the seeds that all of these have run from, so that none is compared on others' luck."""
        seeds = set.intersection(*({row["seed"] for row in self.rows if row["method"] == name} for name in names))
        return World([row for row in self.rows if row["seed"] in seeds], self.name)

    def mean(self, method: str, t: int, key: str = "error") -> float:
        found = list(self.of(method, t, key).values())
        return float(np.mean(found)) if found else float("nan")

    def gap_closed(self, method: str) -> float:
        """How much of the way from the labels alone, the base of st, to the bound the third round has come, in percent."""
        own = self.together(method, "st", "bound")
        alone, bound = own.mean("st", 0), own.mean("bound", 0)
        return 100 * (alone - own.mean(method, 3)) / (alone - bound) if alone != bound else float("nan")

    def better(self) -> str:
        """The paper's weight or auto, as val_in has it."""
        own = self.together(PAPER, AUTO)
        return AUTO if own.rows and own.mean(AUTO, 3, "val_error") < own.mean(PAPER, 3, "val_error") else PAPER


def conditions(rows: Rows) -> list[Check]:
    """A sentence that the rows cannot speak to yet is left out; each says of how many seeds it is."""
    checks: list[Check] = []
    world = World(rows, "33")
    if (three := world.together(PAPER, "st", "st-ot")).rows:
        checks += of_rounds(three)
    if world.together(PAPER, "st", "bound").rows:
        checks.append(of_gap(world))
    return checks + of_peers(world) + of_sweep(rows)


def of_rounds(world: World) -> list[Check]:
    base, first, third = (world.mean(PAPER, t) for t in (0, 1, 3))
    ours, others = world.of(PAPER, 3), {name: world.of(name, 3) for name in ("st", "st-ot")}
    below = all(ours[seed] < other[seed] for other in others.values() for seed in ours)
    aware, st = world.mean(PAPER, 3, "od_auroc"), world.mean("st", 3, "od_auroc")
    start = world.mean(PAPER, 0, "od_auroc")
    said = "; ".join(f"{name} {mean(other):.1f}" for name, other in others.items())
    checks = [
        ("33 %: the third round below the first below the base", third < first < base, f"{base:.1f} {first:.1f} {third:.1f}"),
        ("33 %: by at least 3.5 points", base - third >= 3.5, f"{base - third:.1f}"),
        ("33 %: below st and st-ot on every seed", below, f"odst {mean(ours):.1f}; {said}"),
        ("33 %: OD-AUROC at least 10 points above st's", aware - st >= 10, f"{aware:.1f} against {st:.1f}"),
        ("33 %: OD-AUROC not below its base's", aware >= start, f"{start:.1f} to {aware:.1f}"),
    ]  # fmt: skip
    return [(sentence, fine, f"{numbers} ({seeds(ours)})") for sentence, fine, numbers in checks]


def of_gap(world: World) -> Check:
    both = world.together(PAPER, AUTO, "st", "bound")
    world = both if both.rows else world.together(PAPER, "st", "bound")
    shown = "; ".join(f"{name} {world.gap_closed(name):.0f} %" for name in (PAPER, AUTO) if world.of(name, 3))
    taken = world.better()
    said = f"{shown}; val_in takes {taken} ({seeds(world.of('st', 0))})"
    return "33 %: at least 40 % of the way from labels alone to the bound", world.gap_closed(taken) >= 40, said


def of_peers(world: World) -> list[Check]:
    """A peer has one training; its OD-AUROC is the better of its own score's and the plain confidence's."""
    checks = []
    for method, peer in ((m, p) for p in PEERS for m in (PAPER, AUTO)):
        both = world.together(method, peer)
        if both.rows:
            ours, theirs = both.of(method, 3), both.of(peer, 0)
            aware = max(both.mean(peer, 0, key) for key in ("od_auroc", "own_od_auroc"))
            for name, fine, said in (
                ("error", mean(ours) <= mean(theirs), f"{mean(ours):.1f} against {mean(theirs):.1f}"),
                ("OD-AUROC", both.mean(method, 3, "od_auroc") >= aware, f"{both.mean(method, 3, 'od_auroc'):.1f} against {aware:.1f}"),
            ):  # fmt: skip
                checks.append((f"33 %: {method} no worse than {peer} in {name}", fine, f"{said} ({seeds(ours)})"))
    return checks


def of_sweep(rows: Rows) -> list[Check]:
    last = last_rounds(rows)
    checks: list[Check] = []
    for method in (PAPER, AUTO):
        own, alone = curves(last, method, ALONE)
        if not own:
            continue
        above = {n: own[n] - alone[n] for n in own}
        said = "; ".join(f"{n:,} {value:+.1f}" for n, value in above.items())
        said += f" ({seeds(seeds_of(last, method) & seeds_of(last, ALONE))})"
        checks.append((f"sweep: {method} at most 0.5 points above labels alone", max(above.values()) <= 0.5, said))
        for other in ("st", "st-ot", *PEERS):
            checks += against(last, method, other)
    return checks


def against(last: Rows, method: str, other: str) -> list[Check]:
    """Area and slope, from the smallest number that both have."""
    own, theirs = curves(last, method, other)
    first = FIRST if len(theirs) == len(SWEEP) else PEERS_FIRST
    checks = []
    for name, measure, form in (("area", area, ".1f"), ("slope", slope, "+.2f")):
        mine, them = measure(own, first), measure(theirs, first)
        if np.isfinite(mine) and np.isfinite(them):
            of = seeds(seeds_of(last, method) & seeds_of(last, other))
            said = f"{mine:{form}} against {them:{form}}, from {first:,} unrelated images ({of})"
            checks.append((f"sweep: the {name} of {method} below {other}'s", mine < them, said))
    return checks


def seeds(which: Collection[int]) -> str:
    return "one seed" if len(which) == 1 else f"{len(which)} seeds"


def mean(values: dict[int, float]) -> float:
    return float(np.mean(list(values.values())))
