"""The truth as the reviewer: what is certified, and what its marks are worth to the next run.

python -m benchmarks.feedback [--out DIR] [--quick]       digits, five seeds (one with --quick): a run, its audit, a run with its marks
python -m benchmarks.feedback --run RUN [--round T]       only the audit, of a run whose pool has its truth

150 draws a class; every mark is right, relabelled or none of the classes, as the truth has it. Interrupted, the same command goes
on. `ratio` is the mean error with the marks over that without.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from odst.cli.screen import bars
from odst.evaluation.audit import DELTA, DRAWS, TARGET
from odst.files import write_json
from odst.run.audit import audit_run, audited_round, drawn_ranks, ranked
from odst.run.config import read_config
from odst.run.directory import RunDir
from odst.run.execution import execute, feed_back
from odst.run.marks import AUDIT, NONE, RELABELLED, RIGHT, Mark, run_hash, write_marks
from odst.run.preparation import pool_of


def truthful(run: RunDir, t: int) -> list[Mark]:
    """What a reviewer who knows the truth says of every draw."""
    pool, classes = pool_of(run), run.info()["classes"]
    assert pool is not None and pool.truth is not None
    sets, hash_, marks = ranked(run, t), run_hash(run, t), []
    for c, (one, places) in enumerate(zip(sets, drawn_ranks(run, t, sets, DRAWS), strict=True)):
        for at in places:
            truth = int(pool.truth[one.ids[at]])
            verdict = RIGHT if truth == c else NONE if truth < 0 else RELABELLED
            label = classes[truth] if verdict == RELABELLED else None
            j = int(one.ids[at])
            marks.append(Mark(j, one.hashes[at], hash_, t, AUDIT, one.name, verdict, label, DRAWS, "truth"))
    return marks


def audited(run: RunDir, t: int | None, file: Path) -> dict[str, Any]:
    """Audit a run by its truth; a row with what the thresholds alone gave beside it."""
    t = audited_round(run, t)
    write_marks(file, truthful(run, t))
    found = audit_run(run, [file], t=t, target=TARGET, delta=DELTA)
    print(*found["words"], sep="\n")
    of, metrics = found["classes"].values(), run.metrics()[t]
    return {
        "round": t,
        "selected": metrics["selected"],
        "correct": metrics["correct"],
        "seen": sum(one["seen"] for one in of),
        "wrong": sum(one["wrong"] for one in of),
        "certified": sum(one["certified"] for one in of),
        "classes": f"{sum(one['certified'] > 0 for one in of)} of {sum(one['selected'] > 0 for one in of)}",
    }


def fed_back(seed: int, out: Path) -> dict[str, Any]:
    execute(read_config("digits", {"run.seed": seed}), out / f"digits-{seed}")
    run, file = RunDir(out / f"digits-{seed}"), out / f"marks-{seed}.json"
    row = {"seed": seed, **audited(run, None, file)}
    config, parent = feed_back(run, run.config(), [file])
    execute(config, child := out / f"digits-{seed}-marked", parent=parent)
    for name, one in (("without", run), ("with", RunDir(child))):
        final = one.final()
        assert final is not None
        metrics = one.metrics()[final["round"]]
        row |= {
            f"error {name}": metrics["error"],
            f"od_auroc {name}": metrics["od_auroc"],
            f"round {name}": final["round"],
        }
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/feedback"))
    parser.add_argument("--run", type=Path, default=None)
    parser.add_argument("--round", type=int, default=None)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    if options.run is not None:
        print(audited(RunDir(options.run), options.round, options.out / "marks.json"))
        return
    with bars(quiet=True):
        rows = [fed_back(seed, options.out) for seed in range(1 if options.quick else 5)]
    write_json(options.out / "results.json", rows)
    keys = list(rows[0])
    print(f"| {' | '.join(keys)} |\n{'|---' * len(keys)}|")
    for row in rows:
        print("| " + " | ".join(f"{one:.1%}" if isinstance(one, float) else str(one) for one in row.values()) + " |")
    errors = {name: np.array([row[f"error {name}"] for row in rows]) for name in ("without", "with")}
    aurocs = {name: np.array([row[f"od_auroc {name}"] for row in rows]) for name in ("without", "with")}
    for name, values in (("error", errors), ("OD-AUROC", aurocs)):
        change = values["with"] - values["without"]
        spread = f" ± {change.std(ddof=1) / len(change) ** 0.5:.1%}" if len(change) > 1 else ""
        print(
            f"{name}: {values['without'].mean():.1%} without, {values['with'].mean():.1%} with ({change.mean():+.1%}{spread})"
        )
    print(f"feedback ratio={errors['with'].mean() / errors['without'].mean():.3g} anchor=error-without-marks")


if __name__ == "__main__":
    main()
