"""The open-world benchmark: python -m benchmarks.open_world [--data FOLDER] [--out DIR] [--only NAME] [--known FILE] [--workers N] [--smoke]

Builds the worlds, runs every method, and writes results.json, tables.md, figures and the page compare.html. Interrupted, the same command goes on.
FOLDER holds the benchmark's parquet files (cifar10_train.parquet, ...; default $ODST_TEST_DATA); without one the sets of
`odst data get cifar10 cifar100 svhn` are used. --smoke is a few steps of everything, in minutes: on the folder where it is
there, on the built-in world otherwise.
"""

import argparse
import os
import sys
from concurrent.futures import Future, as_completed
from pathlib import Path
from typing import Any

from benchmarks.measuring import commit, side_by_side
from benchmarks.open_world.conditions import PAPER, World, conditions
from benchmarks.open_world.figures import draw_exclusive, draw_rounds
from benchmarks.open_world.jobs import SEEDS, Job, jobs, run
from benchmarks.open_world.known import by_job, known_jobs
from benchmarks.open_world.peers import budget, peer_table, peers, run_peer
from benchmarks.open_world.sweep import draw_sweep, sweep_tables
from benchmarks.open_world.tables import tables
from benchmarks.open_world.world import Set, build, cifar_sets, cut, svhn_sets
from odst.cli.screen import bars
from odst.errors import UserError
from odst.files import write_json, write_text
from odst.report.comparison import write_comparison
from odst.run.directory import RunDir

SMOKE_WITHOUT = ("sweep-1500", "sweep-29400", "near", "far")  # worlds that are no different at a few steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=os.environ.get("ODST_TEST_DATA"))
    parser.add_argument("--out", type=Path, default=Path("runs/open_world"))
    parser.add_argument("--only", default="", help="jobs whose WORLD/NAME/SEED holds this text")
    parser.add_argument(
        "--known",
        type=Path,
        help="results.json of an earlier call: its runs are taken as they are, as are those of --out",
    )
    parser.add_argument("--workers", type=int, default=2, help="runs at a time; each gets its share of the cores")
    parser.add_argument("--smoke", "--quick", action="store_true", dest="smoke")
    options = parser.parse_args()
    data = Path(options.data) if options.data else None
    out = options.out / "smoke" if options.smoke else options.out
    if options.smoke and data is None:
        from odst.cli import main as odst

        sys.argv = ["odst", "demo", "--out", str(out), "--methods", "odst,st", "--quiet"]
        odst()
        return

    def wanted(job: Job) -> bool:
        small = not (job.seed or job.world in SMOKE_WITHOUT)
        return options.only in str(job) and (small or not options.smoke) and (data is not None or job.world != "svhn")

    own, others = [job for job in jobs() if wanted(job)], [job for job in peers() if wanted(job)]
    with bars():
        build_worlds({job.world for job in own + others}, data, out, options.smoke)
    results = out / "results.json"
    known = {}
    for file in (options.known, results if results.exists() else None):
        known |= known_jobs(file, options.smoke) if file else {}
    rows = [row for some in known.values() for row in some]
    command = "python -m benchmarks.open_world" + " --data FOLDER" * (data is not None) + " --smoke" * options.smoke
    made = commit()  # hours later it may be another

    def how(only: object) -> dict[str, Any]:
        return {"command": f"{command} --only {only}", "commit": made}

    def finish(waiting: dict[Future[list[dict[str, Any]]], Job]) -> None:
        """As they end, each on disk before the next."""
        for done in as_completed(waiting):
            rows[:] = [row for some in by_job([*rows, *done.result()]).values() for row in some]
            print(f"{waiting[done]}: error " + " ".join(f"{r['error']:.1%}" for r in done.result()), flush=True)
            write_json(results, rows)

    with side_by_side(options.workers) as workers:
        smoke = options.smoke
        finish({workers.submit(run, job, out, smoke, how(job)): job for job in own if str(job) not in known})
        left = [(job, budget(job, rows)) for job in others if str(job) not in known]
        # a peer is run together with odst, whose number of images it gets
        finish({workers.submit(run_peer, job, n, out, smoke, how(f"{job.world}/")): job for job, n in left})
    write_text(out / "tables.md", "\n".join([tables(rows), sweep_tables(rows), peer_table(rows)]))
    draw(rows, out)
    print((out / "tables.md").read_text())
    for sentence, fine, said in conditions(rows):
        print(f"{'met' if fine else 'NOT MET'}: {sentence}: {said}")
    print(f"open_world ratio={difference(rows):.3g} anchor=st-error-of-the-third-round")


def draw(rows: list[dict[str, Any]], out: Path) -> None:
    """The figures, and the page with the pictures that odst and st-ot alone selected, of the first seed that has both runs here."""
    draw_rounds(rows, out / "rounds.png")
    draw_sweep(rows, out / "sweep.png")
    for seed in SEEDS:
        pair = {method: out / "runs" / f"33-{method}-{seed}" for method in ("odst", "st-ot")}
        if all((run / "round-3" / "selection.parquet").exists() for run in pair.values()):
            draw_exclusive(pair, out / "world-33" / "pool", out / "exclusive.png")
            write_comparison([RunDir(run) for run in pair.values()], out / "compare.html")
            return


def build_worlds(names: set[str], data: Path | None, out: Path, smoke: bool) -> None:
    weights = data / "weights" / "lpips_alexnet.npz" if data and (data / "weights").is_dir() else None
    sets: dict[str, dict[str, Set]] = {}
    for name in sorted(names):
        if (out / f"world-{name}" / "whole").exists():
            continue
        kind = "svhn" if name == "svhn" else "cifar"
        if kind not in sets:
            sets[kind] = svhn_sets(data) if kind == "svhn" and data else cifar_sets(data)
            if smoke:
                sets[kind] = {
                    key: one.sample(40 if key == "related" else 8, "smoke") for key, one in sets[kind].items()
                }
        build(out / f"world-{name}", cut(name, sets[kind]), weights)


def difference(rows: list[dict[str, Any]]) -> float:
    """odst's last error at 33 %, as a ratio to st's."""
    both = World(rows, "33").together(PAPER, "st")
    return both.mean(PAPER, 3) / both.mean("st", 3)


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        sys.exit(f"open_world: {error}")
