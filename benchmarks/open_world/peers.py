"""Peers at equal compute: each trains on as many images, every view counted, as odst's whole chain, in the same world and
from the same seed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.measuring import table
from benchmarks.open_world.jobs import SEEDS, Job, noted
from benchmarks.open_world.sweep import PEERS
from benchmarks.open_world.tables import cell
from benchmarks.peers.runs import run
from benchmarks.peers.settings import Settings, settings_of
from odst.errors import UserError

WORLDS = ("33", "sweep-0", "sweep-6000", "sweep-29400")
# By kind of world and method, other values than the originals', which are for a million steps; none has been settled yet
TUNED: dict[tuple[str, str], dict[str, Any]] = {}
SMOKE: dict[str, Any] = {"network": "tiny", "batch": 4, "mu": 1}
SMOKE_IMAGES = 2_000

Rows = list[dict[str, Any]]


def peers() -> Iterator[Job]:
    for seed in SEEDS:
        for world in WORLDS:
            for method in PEERS:
                yield Job(world, method, method, seed)


def budget(job: Job, rows: Rows) -> int:
    """The images of odst's chain, which must have been run."""
    for row in rows:
        if (row["share"], row["method"], row["seed"]) == (job.world, "odst", job.seed) and "images" in row:
            images: int = row["images"]
            return images
    raise UserError(
        f"{job}: it is to see as many images as {job.world}/odst/{job.seed}, and that was not run. Run it first, or name "
        "results that hold it with --known."
    )


def settings_for(job: Job, images: int, smoke: bool = False) -> Settings:
    changes = TUNED.get((kind(job.world), job.method), {}) | (SMOKE if smoke else {})
    return settings_of(job.method, SMOKE_IMAGES if smoke else images, job.seed, **changes)


def kind(world: str) -> str:
    """Of a world: one number of labels has one tuning."""
    return world.split("-")[0]


def tuned() -> bool:
    """Whether every peer is, in every kind of world."""
    return {(kind(job.world), job.method) for job in peers()} <= TUNED.keys()


def run_peer(job: Job, images: int, out: Path, smoke: bool, how: dict[str, Any]) -> Rows:
    """Its row of results.json."""
    file = out / "runs" / f"{str(job).replace('/', '-')}.json"
    file.parent.mkdir(exist_ok=True)
    found = run(out / f"world-{job.world}", settings_for(job, images, smoke), file)
    how = {"images": images} | noted(file.with_suffix(".how.json"), how)
    return [row | how for row in found]


def peer_table(rows: Rows) -> str:
    """The last round of odst and st beside the peers, world by world."""
    titles = dict(zip(WORLDS, ("4,000 labels, 33 % related", *(f"1,000 labels, 3,000 related, {n} unrelated" for n in ("no", "6,000", "29,400"))), strict=True))  # fmt: skip
    parts = []
    for world, title in titles.items():
        here = [row for row in rows if row["share"] == world]
        if not any(row["method"] in PEERS for row in here):
            continue
        lines = []
        for method in ("odst", "odst-auto", "st", *PEERS):
            own = last([row for row in here if row["method"] == method])
            if own:
                score = [cell([row.get("own_od_auroc", row["od_auroc"]) for row in own], "od_auroc")]
                shown = [cell([row[key] for row in own if row[key] is not None], key) for key in ("error", "od_auroc")]
                picked = [
                    cell([row[key] for row in own if row[key] is not None], key) for key in ("related", "correct")
                ]
                minutes = sum(row["seconds"] for row in own) / len(own) / 60
                lines.append([method, *shown, *score, *picked, f"{own[0]['images'] / 1e6:.2f}", f"{minutes:.0f}"])
        columns = ["method", "error, %", "OD-AUROC, %", "by its own score", "related, %", "correct, %", "million images", "minutes"]  # fmt: skip
        parts.append(f"**{title}**\n\n{table(columns, lines)}\n")
    return "\n".join(["## Peers at equal compute\n", *parts]) if parts else ""


def last(rows: Rows) -> Rows:
    """The last round of every seed."""
    found: dict[int, dict[str, Any]] = {}
    for row in sorted(rows, key=lambda row: row["round"]):
        found[row["seed"]] = row
    return list(found.values())
