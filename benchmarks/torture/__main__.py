"""Torture odst, and count what it did not survive. The last two columns must be 0.

Run: python -m benchmarks.torture [--quick] [--seed 0] [--part kills --part pairs …]
"""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from benchmarks.measuring import conclude, table
from benchmarks.torture import cases
from benchmarks.torture.calls import preload
from benchmarks.torture.nodes import nodes
from benchmarks.torture.scenes import LEFT_OUT, missing

PARTS = {
    "kills": "killed at a file operation, then again",
    "full": "disk full from an operation on, then again",
    "small": "a real disk of too few bytes, then again",
    "pairs": "two at once",
    "damage": "a damaged file × a command",
    "malformed": "malformed sources and configs",
    "nodes": "a stage on two Ray nodes, one killed",
}
ASKED = ("nodes",)  # only when named


def verdicts(
    world: cases.World, place: Path, seed: int, quick: bool
) -> dict[str, Callable[[], Iterator[cases.Verdict]]]:
    def rng(part: str) -> np.random.Generator:
        return np.random.default_rng([seed, list(PARTS).index(part)])

    return {
        "kills": lambda: cases.kills(world, rng("kills"), 8 if quick else None, anew=1 if quick else 5),
        "full": lambda: cases.full_disks(world, rng("full"), 6 if quick else None),
        "small": lambda: cases.small_disks(world, rng("small"), 1 if quick else 8, place / "small"),
        "pairs": lambda: cases.pairs(world, rng("pairs"), 2 if quick else 20),
        "damage": lambda: cases.damages(world, rng("damage"), 120 if quick else None),
        "malformed": lambda: cases.malformed(
            world, place / "malformed", seed, 200 if quick else 1500, 60 if quick else 500
        ),
        "nodes": lambda: nodes(place, seed),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a draw of the cases, in minutes")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--part", action="append", choices=list(PARTS))
    asked = parser.parse_args()
    if unknown := missing():
        raise SystemExit(f"no scene for {', '.join(unknown)}: add one to benchmarks/torture/scenes.py")
    preload()
    rows, total = [], Counter[str]()
    with tempfile.TemporaryDirectory() as folder:
        world = cases.World(Path(folder), asked.seed)
        for part, run in verdicts(world, Path(folder), asked.seed, asked.quick).items():
            if part not in (asked.part or [name for name in PARTS if name not in ASKED]):
                continue
            begin, counts = time.monotonic(), Counter[str]()
            for verdict in run():
                counts[verdict.outcome] += 1
                if verdict.outcome != "survived":
                    print(f"{verdict.outcome}: {verdict.case}: {verdict.detail}", flush=True)
            seconds = f"{time.monotonic() - begin:.0f}"
            kinds = [counts[kind] for kind in ("survived", "stuck", "wrong", "traceback")]
            rows.append([PARTS[part], sum(kinds), *kinds, seconds])
            print(f"{part}: {kinds[0]} of {sum(kinds)} survived, {seconds} s", flush=True)
            total += counts
    print()
    print(table(("what", "tried", "survived", "refused for ever", "silently wrong", "tracebacks", "seconds"), rows))
    print(f"\nLeft out: {'; '.join(f'`odst {name}` ({why})' for name, why in LEFT_OUT.items())}.")
    conclude("torture", (total["wrong"] + total["traceback"] + total["stuck"]) / max(1, total.total()), "tried")


if __name__ == "__main__":
    main()
