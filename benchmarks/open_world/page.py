"""results.json -> docs/results.md and its figures: python -m benchmarks.open_world.page

Every number of the page is taken from the results here; what has not been run yet is left out, and said so.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.few_labels.shares import SEEDS as SHARES_SEEDS
from benchmarks.few_labels.shares import shares_tables
from benchmarks.few_labels.worlds import SHARES
from benchmarks.open_world.conditions import AUTO, PAPER, World, conditions
from benchmarks.open_world.figures import draw_rounds
from benchmarks.open_world.jobs import jobs
from benchmarks.open_world.peers import peer_table, peers, tuned
from benchmarks.open_world.sweep import ALONE, FIRST, PEERS, curves, draw_sweep, last_rounds, slope, sweep_tables, swept
from benchmarks.open_world.tables import tables
from benchmarks.open_world.world import LABELLED, RELATED
from odst.files import write_text

ROOT = Path(__file__).parent.parent.parent
RESULTS, FEW, PAGE = (
    ROOT / "benchmarks" / "open_world" / "results.json",
    ROOT / "benchmarks" / "few_labels" / "results.json",
    ROOT / "docs" / "results.md",
)
IMAGES = PAGE.parent / "img"
EXCLUSIVES = IMAGES / "open_world_exclusive.png"  # drawn where the runs are, whose selections it needs
Rows = list[dict[str, Any]]


def page(rows: Rows, features: Rows) -> str:
    world = World(rows, "33")
    screen = "\n".join(f"{i}. {sentence}" for i, sentence in enumerate(first_screen(world, rows), 1))
    parts = [
        "# Results: CIFAR-10 in an open world, on two CPU cores\n",
        figure(rows),
        screen and screen + "\n",
        "\n".join(how(rows)) + "\n",
        missing(rows),
        whether(rows),
        taken(world),
        paper_shape(world),
        EXCLUSIVE if EXCLUSIVES.exists() and world.together(PAPER, "st-ot").rows else "",
        tables(rows),
        sweep_tables(rows),
        peer_table(rows),
        on_features(features),
    ]
    return "\n".join(part for part in parts if part).rstrip("\n") + "\n"


def figure(rows: Rows) -> str:
    name, shows = ("sweep", "error, OD-AUROC and right labels against the number of unrelated images") if swept(rows) else (
        "rounds", "error, OD-AUROC, selected and right over the rounds")  # fmt: skip
    return f"![{shows}](img/open_world_{name}.png)\n"


def first_screen(world: World, rows: Rows) -> Iterator[str]:
    """The five sentences, as far as there are numbers for them."""
    three = world.together(PAPER, "st", "bound")
    if three.rows:
        own = three.together(PAPER, AUTO) if three.of(AUTO, 0) else None
        auto = f" (as `odst init` sets it to {own.mean(AUTO, 3):.1f})" if own else ""
        yield (
            f"**4,000 labels, a pool of which a third is related** ({seeds(three)}): odst's error goes from {three.mean(PAPER, 0):.1f} to "
            f"**{three.mean(PAPER, 3):.1f} %** in three rounds{auto}, plain self-training's from {three.mean('st', 0):.1f} to "
            f"{three.mean('st', 3):.1f}; with the true labels of all related images the network has {three.mean('bound', 0):.1f}."
        )
        yield (
            f"**It knows what it does not know**: OD-AUROC goes from {three.mean(PAPER, 0, 'od_auroc'):.1f} to "
            f"**{three.mean(PAPER, 3, 'od_auroc'):.1f}**, plain self-training's from {three.mean('st', 0, 'od_auroc'):.1f} to "
            f"{three.mean('st', 3, 'od_auroc'):.1f}."
        )
        right = {method: three.mean(method, 3, "correct") for method in (PAPER, "st")}
        yield (
            f"**What it selects is what it takes it for**: {right[PAPER]:.0f} % of the third round's images carry the right "
            f"class, {right['st']:.0f} % of plain self-training's."
        )
    named = (AUTO, PAPER, "st", "st-ot", ALONE)
    points = dict(zip(named, curves(last_rounds(rows), *named), strict=True))
    rises = {method: slope(own) for method, own in points.items()}
    if all(map(np.isfinite, rises.values())):
        yield (
            f"**What unrelated images cost**, in points of error for ten times as many: odst {rises[PAPER]:+.1f}, as `odst init` "
            f"sets it {rises[AUTO]:+.1f}, st {rises['st']:+.1f}, st-ot {rises['st-ot']:+.1f}; the labels alone have "
            f"{points[ALONE][FIRST]:.1f} %."
        )
    here = {method: both for method in PEERS if (both := world.together(method, PAPER)).rows}
    if here:
        said = "; ".join(
            f"{method} {own.mean(method, 0):.1f} % and {own.mean(method, 0, 'od_auroc'):.1f} (by its own score "
            f"{own.mean(method, 0, 'own_od_auroc'):.1f}) against odst's "
            f"{own.mean(PAPER, 3):.1f} % and {own.mean(PAPER, 3, 'od_auroc'):.1f}"
            for method, own in here.items()
        )
        yield f"**Peers trained on as many images**, error and OD-AUROC in the first world: {said}."


RUN = """## What was run

One command builds the worlds, runs every method and writes the tables, the figures and a page with pictures; interrupted, it
goes on. Every number of this page is in `benchmarks/open_world/results.json`, with its command, commit, seconds and the load of the machine (those on
features, which another command makes, in `benchmarks/few_labels/results.json`), and the page is made from it (`python -m benchmarks.open_world.page`):

```
python -m benchmarks.open_world --data FOLDER      # or without --data, after `odst data get cifar10 cifar100 svhn`
```

- **The 33 % world.** 4,000 labelled CIFAR-10 images, 2,000 for val_in, 5,000 for the test. The pool: 29,400 CIFAR-100 images (without
  *bus* and *pickup_truck*, which show CIFAR-10's automobile and truck) and 14,700 other CIFAR-10 images. Both come from one source, so
  nothing but what they show tells them apart. val_out and the out-test set *cifar100* are disjoint halves of CIFAR-100's test
  images; *svhn*, *flowers*, *textures* and *scenes* are further out-test sets, and OD-AUROC is the mean over all (without `--data` over
  *cifar100* and *svhn*, and there is no SVHN world). The leak guard ran on
  every pool against val_in, val_out and all test sets. The truth of the pool scores, and nothing else.
- **Training.** The preset `open-world-cpu`: the network `small`, batches of 64+64, crop, flip and Cutout, 40 epochs of T for a base and 40 of
  T ∪ I for a student{longer}, an eighth of them to warm up, then a line down to 0; the same for every method. {runs} took {hours:.1f} hours of one core; a base that
  runs share counts once.
- **α = 0.998**, as in the paper. **Ratio 1.25, 2.5, 3.75** instead of its 5, 10, 15, which would ask for 6,000 images a class where the pool holds 1,470. An
  image is repeated at most three times. The same for all methods but *odst-auto*'s α.
- **Rows.** *odst* is the paper's. *odst-auto* is what `odst init` writes of the method but for the ratio ([Few labels](method.md#few-labels)): val_in chooses the weight of the rest, the base spares a part of
  it, two α follow the sizes of the sets, and each labelled image stands five times in T ∪ I, of which students have a fifth of the epochs: as many
  passes over T, a fifth of those over I. The base of *st* is the labels
  alone. *bound* is T and all related images with their true labels; *supervised+val_in* is T and val_in, because val_in's labels steer thresholds and the choice of the model.
- **Corruption error**: 1,000 fixed test images with each of the 15 corruptions, the five levels in turn, made once.
- Settled on val_in and val_out of seed 100; no seed was left out. After test errors of seeds 0 and 1 had been seen with students of 20 epochs, these were lengthened to
  their base's, for what val_in of seed 100 said ([log](log.md)). All seeds have the same images, so ± is the chance of training alone: the standard deviation over
  seeds; rows without it are one seed."""

RUN_SWEEP = """- **The sweep.** {labelled:,} labelled and {related:,} related images, the same everywhere, among 0, 1,500, 6,000 and 29,400 unrelated ones, each
  number holding the smaller. *near* and *far* have 6,000 unrelated images of classes like the task's (land mammals, reptiles, vehicles) and of the others."""

RUN_SVHN = """- **SVHN** in small, as in the paper: 2,000 labelled house numbers, 2,000 for val_in, a pool of 8,000 more among 30,000 CIFAR-100
  images; crops as the only augmentation, since a flipped digit is another one."""

RUN_PEERS = """- **Peers** are in `benchmarks/peers/`, written from their papers on the same network and batches, their losses checked against the originals; each trained on as many
  images, every view counted, as odst's whole chain (its labelling of the pool and OpenMatch's ten looks at it are not counted). {settings}"""
UNTUNED = (
    "They have their papers' settings, scaled to that number, where odst's rate and epochs were tuned on seed 100."
)
TUNED_TOO = "Their settings were tuned on val_in of seed 100, as odst's were: docs/log.md has every trial."


def how(rows: Rows) -> Iterator[str]:
    """What was run, as far as it was."""
    longer = " (160 and 80 with 1,000 labels)" if swept(rows) else ""
    yield RUN.format(
        longer=longer, hours=hours(rows), runs=f"{n} runs" if (n := len(run_names(rows))) != 1 else "One run"
    )
    if swept(rows):
        yield RUN_SWEEP.format(labelled=LABELLED, related=RELATED)
    if any(row["share"] == "svhn" for row in rows):
        yield RUN_SVHN
    if any(row["method"] in PEERS for row in rows):
        yield RUN_PEERS.format(settings=TUNED_TOO if tuned() else UNTUNED)


def whether(rows: Rows) -> str:
    """What should come out, as far as it can be said."""
    lines = [f"- {'Yes' if fine else '**No**'}: {sentence}: {said}." for sentence, fine, said in conditions(rows)]
    return "\n".join(["## What should come out, and whether it does\n", *lines]) + "\n" if lines else ""


EXCLUSIVE = """What only one of two methods selected in the third round, from one seed, by true name; grey is unrelated:

![what odst alone and st-ot alone selected](img/open_world_exclusive.png)

The pictures themselves are in `compare.html`, which the command writes beside the results; CIFAR's images are not ours to ship.
"""


def readme(rows: Rows) -> str:
    """The sentence of README.md; empty as long as a method of it has not been run."""
    world = World(rows, "33").together(PAPER, "st", "bound")
    if not world.rows:
        return ""

    def told(method: str) -> str:
        error, aware = ([world.mean(method, t, key) for t in (0, 3)] for key in ("error", "od_auroc"))
        return (
            f"error goes from {error[0]:.1f} to {error[1]:.1f} % and its OD-AUROC from {aware[0]:.0f} to {aware[1]:.0f}"
        )

    return (
        f"{seeds(world)}, base → third round: odst's {told(PAPER)}; "
        f"plain self-training's {told('st')}; with the true labels of all related images the network has {world.mean('bound', 0):.1f} %."
    )


def seeds(world: World) -> str:
    n = len({row["seed"] for row in world.rows})
    return "one seed" if n == 1 else f"mean of {n} seeds"


def run_names(rows: Rows) -> set[str]:
    return {f"{row['share']}/{row['method']}/{row['seed']}" for row in rows}


def hours(rows: Rows) -> float:
    return sum({(row["share"], row["method"], row["seed"]): row["seconds"] for row in rows}.values()) / 3600


def missing(rows: Rows) -> str:
    every = [str(job) for job in (*jobs(), *peers())]
    left = [name for name in every if name not in run_names(rows)]
    return (
        f"Not run yet: {len(left)} of {len(every)} runs ({', '.join(left[:3])}{', …' * (len(left) > 3)}).\n"
        if left
        else ""
    )


def taken(world: World) -> str:
    """What odst-auto has chosen, which its table of rounds does not say."""
    own = [row for row in world.rows if row["method"] == AUTO]
    said = []
    for seed in dict.fromkeys(row["seed"] for row in own):
        rounds = [row for row in own if row["seed"] == seed]
        use = next(
            (f"round {row['round']}" if row["round"] else "its base" for row in rounds if row["use"]), "labels alone"
        )
        said.append(f"weight {rounds[0]['rest_weight']:g} and {use} (seed {seed})")
    return f"odst-auto took, by val_in, {', '.join(said)}.\n" if said else ""


def paper_shape(world: World) -> str:
    """What agrees with the paper's table, sentence by sentence, with the numbers."""
    if not (world.of(PAPER, 3) and world.of("st", 3)):
        return ""
    lines = ["## What agrees with the paper, and what does not\n"]

    def say(sentence: str, agrees: bool, *names: str, key: str = "error", own: World = world) -> None:
        told = "; ".join(
            f"{m} " + " → ".join(f"{own.mean(m, t, key):.1f}" for t in range(4) if own.of(m, t, key)) for m in names
        )
        lines.append(f"- {'Agrees' if agrees else '**Does not agree**'}: {sentence} ({told}).")

    def falls(m: str, key: str) -> bool:
        return world.mean(m, 3, key) < world.mean(m, 0, key)

    in_every_round = all(world.mean(PAPER, t + 1) < world.mean(PAPER, t) for t in range(3))
    say("odst's error falls in every round", in_every_round, PAPER)
    no_better = world.mean("st", 3) >= world.mean("st", 1)
    say("plain self-training is no better in its third round than in its first", no_better, "st")
    say("odst keeps its OD-AUROC", not falls(PAPER, "od_auroc"), PAPER, key="od_auroc")
    say("plain self-training loses OD-AUROC", falls("st", "od_auroc"), "st", key="od_auroc")
    for name in ("uniform-rest", "soft-rest"):
        both = world.together(name, PAPER)
        if both.rows:
            say(f"{name} ends above odst in error", both.mean(name, 3) > both.mean(PAPER, 3), name, PAPER, own=both)
    corrupted = "corruption_error"
    say("the corruption error of odst's third round is below its base's", falls(PAPER, corrupted), PAPER, key=corrupted)
    return "\n".join(lines) + "\n"


def on_features(rows: Rows) -> str:
    if not rows:
        return ""
    run = {(row["world"], row["seed"]) for row in rows}
    most = len({seed for _, seed in run})
    told = "one seed" if most == 1 else f"the mean over up to {most} seeds and its standard error"
    every = len(SHARES) * len(SHARES_SEEDS)
    left = f" {len(run)} of {every} deals have been run." if len(run) < every else ""
    return (
        "## On frozen features\n\n"
        "All methods on vectors of a frozen EfficientNet-Lite1 of the same images, a pool of 18,000, what `odst init` writes; every seed deals other images. "
        f"Error of the last round in % and its OD-AUROC, {told}.{left} Logistic regression on the labels is the row to beat "
        "(`python -m benchmarks.few_labels`).\n\n" + shares_tables(rows)
    )


def made(rows: Rows) -> str:
    return page(rows, json.loads(FEW.read_text()).get("shares", []))


if __name__ == "__main__":
    rows = json.loads(RESULTS.read_text())
    draw_rounds(rows, IMAGES / "open_world_rounds.png")
    draw_sweep(rows, IMAGES / "open_world_sweep.png")
    write_text(PAGE, made(rows))
