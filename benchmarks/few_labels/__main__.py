"""Few labels: python -m benchmarks.few_labels [--quick] [--data FOLDER] [--features FOLDER] [--out DIR] [--only TEXT] [--workers N]

Worlds with 80 to 4,000 labelled images, mostly as vectors of a frozen backbone: labels alone, plain self-training, the paper's
weight and `odst init`'s defaults, from five seeds. Writes results.json and tables.md to DIR, says which of the things that must
hold do, and goes on where it was interrupted. FOLDER of --data holds cifar10_train.parquet, ... (default $ODST_TEST_DATA); the
vectors are made once, timed apart and kept in --features. --quick is one world of each kind and two seeds.
"""

import argparse
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.few_labels import features
from benchmarks.few_labels.conditions import conditions, prose, ratio
from benchmarks.few_labels.costs import DIGITS, OPEN, run_costs
from benchmarks.few_labels.promise import run_promise
from benchmarks.few_labels.runs import run_world
from benchmarks.few_labels.shares import SEEDS as SHARES_SEEDS
from benchmarks.few_labels.shares import run_shares, shares_tables
from benchmarks.few_labels.tables import Results, tables
from benchmarks.few_labels.worlds import CIFAR, PHOTOS, PIXELS, SHARES
from benchmarks.measuring import commit, conclude, side_by_side
from odst.data.named.download import data_folder
from odst.errors import UserError
from odst.files import write_json, write_text

SEEDS = range(5)
PROMISES = [("400", 0.8, 20), ("400", 0.9, 20), ("400-rare", 0.9, 1)]  # world, share, seeds
COSTS = [(DIGITS, 5), (OPEN, 1)]  # world, seeds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one world of each kind, two seeds, no promise")
    parser.add_argument("--data", type=Path, default=os.environ.get("ODST_TEST_DATA"))
    parser.add_argument("--features", type=Path, help="where the vectors are kept (default: below the data folder)")
    parser.add_argument("--out", type=Path, default=Path("runs/few_labels"))
    parser.add_argument("--only", default="", help="jobs whose WORLD/SEED, or WORLD@PROMISE/SEED, holds this text")
    parser.add_argument("--workers", type=int, default=2, help="worlds at a time, each on its share of the cores")
    options = parser.parse_args()
    if options.data is None:
        raise UserError("few_labels: where are the pictures? Give --data FOLDER, or set ODST_TEST_DATA.")
    out = options.out / "quick" if options.quick else options.out
    kept = options.features or data_folder() / "benchmarks" / "few_labels"
    file = out / "results.json"
    results: dict[str, Any] = (
        json.loads(file.read_text())
        if file.exists()
        else {"done": [], "rows": [], "promise": [], "costs": [], "shares": []}
    )
    if features.missing(kept):
        results["features_seconds"] = round(features.make(Path(options.data), kept))
        print(f"vectors made in {results['features_seconds']} s, kept in {kept}", flush=True)
    made = commit()  # hours later it may be another
    with side_by_side(options.workers) as workers:
        waiting = [
            ((part, name), workers.submit(work, *arguments, data=Path(options.data), features=kept, out=out))
            for part, name, work, arguments in jobs(options.quick)
            if options.only in name and name not in results["done"]
        ]
        for (part, name), job in waiting:
            results.setdefault(part, []).extend(job.result())
            results["done"].append(name)
            results.setdefault("how", {})[name] = {
                "command": f"python -m benchmarks.few_labels --only {name}", "commit": made, "load": round(os.getloadavg()[2], 1)
            }  # fmt: skip
            write_json(file, results)
            print(f"{name} ({len(results['done'])} done)", flush=True)
    show(results, out)


def jobs(quick: bool) -> list[tuple[str, str, Callable[..., list[dict[str, Any]]], tuple]]:
    """Part of the results, name, function and its arguments; the most telling first."""
    if quick:
        return [("rows", f"{world}/{seed}", run_world, (world, seed)) for world in ("100", PHOTOS) for seed in (0, 1)]
    rows = [
        ("rows", f"{world}/{seed}", run_world, (world, seed)) for seed in SEEDS for world in (*CIFAR, PHOTOS, PIXELS)
    ]
    promise = [
        ("promise", f"{world}@{share:g}/{seed}", run_promise, (world, share, seed))
        for world, share, seeds in PROMISES
        for seed in range(seeds)
    ]
    costs = [("costs", f"{world}/{seed}", run_costs, (world, seed)) for world, seeds in COSTS for seed in range(seeds)]
    shares = [("shares", f"{world}/{seed}", run_shares, (world, seed)) for seed in SHARES_SEEDS for world in SHARES]
    return [*rows, *promise, *costs, *shares]


def show(results: dict[str, Any], out: Path) -> None:
    write_text(out / "tables.md", "\n".join([tables(results), *prose(results)]) + "\n")
    print((out / "tables.md").read_text())
    print(shares_tables(results.get("shares", [])))
    for sentence, fine, said in conditions(results):
        print(f"{'met' if fine else 'NOT MET'}: {sentence}: {said}")
    found = Results(results["rows"])
    if found.worlds():
        conclude("few_labels", max(ratio(found, world)[0] for world in found.worlds()), "labels-alone")


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(str(error))
