"""Which pool images a page shows: chosen at random, next to the thresholds, most repeated, and those another alpha would add
or drop."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from odst.data.images import Images, Pool
from odst.report.findings import Findings, RoundFindings
from odst.report.pool_scan import PoolScan, Stops, alpha_stops, scan_pool
from odst.report.sprites import Album
from odst.report.words import probability
from odst.run.selection_file import of_class
from odst.seeds import stream

MOST = 24  # pictures in one gallery
FEWEST = 2
PICTURE_BYTES = 6_500_000  # of a page that must stay under 10 MB
NOTE_BYTES = 250  # of one picture: what the page says of it


@dataclass
class Gallery:
    """Pool images of one class, each with log-odds and copies (0: not selected), and the rows of pictures they stand in."""

    tiles: dict[int, tuple[float, int]] = field(default_factory=dict)
    rows: dict[str, list[int]] = field(default_factory=dict)
    ladder: list[tuple[int, int]] = field(default_factory=list)  # (id, rank): between neighbouring alphas
    sheet: int | None = None

    def add(self, name: str, ids: np.ndarray, odds: np.ndarray, copies: np.ndarray) -> None:
        self.rows[name] = ids.tolist()
        self._keep(ids, odds, copies)

    def add_ladder(self, ids: np.ndarray, odds: np.ndarray, copies: np.ndarray, ranks: np.ndarray) -> None:
        self.ladder = list(zip(ids.tolist(), ranks.tolist(), strict=True))
        self._keep(ids, odds, copies)

    def _keep(self, ids: np.ndarray, odds: np.ndarray, copies: np.ndarray) -> None:
        self.tiles |= dict(zip(ids.tolist(), zip(odds.tolist(), copies.tolist(), strict=True), strict=True))


@dataclass(frozen=True)
class RoundGalleries:
    student: RoundFindings
    stops: Stops | None
    scan: PoolScan | None
    classes: list[Gallery]


def scan_round(found: Findings, student: RoundFindings, nearest: int) -> tuple[Stops, PoolScan] | None:
    """What the student's teacher saw in the pool; None where its logits are not at hand or it did not choose."""
    teacher = found.rounds[student.t - 1]
    p = found.run.pool_predictions(teacher.t, teacher.temperature)
    if p is None or found.pool is None or found.recipe.given_selection or student.selection is None:
        return None
    rows, tau = student.selection["classes"], teacher.thresholds.tau
    if student.selection.get("pick"):
        tau = np.array([float(rows[name]["threshold"]) for name in found.classes])
    stops = alpha_stops(
        teacher.logits["val_in"], found.labels_in, teacher.logits.get("val_out"), teacher.temperature,
        tau, found.recipe.alpha,
        inside=found.recipe.in_threshold, outside=found.recipe.out_threshold,
    )  # fmt: skip
    scan = scan_pool(
        p, stops, student.selection["k"], excluded=found.pool.excluded, seed=found.info["seed"], t=teacher.t,
        nearest=nearest,
    )  # fmt: skip
    return stops, scan


def choose(
    found: Findings, student: RoundFindings, scanned: tuple[Stops, PoolScan] | None, most: int
) -> RoundGalleries:
    """At most `most` pictures a gallery and class."""
    stops, scan = scanned or (None, None)
    table = found.run.selection(student.t)
    galleries = []
    for c, name in enumerate(found.classes):
        chosen = of_class(table, name)
        gallery = Gallery()
        copies = dict(zip(chosen.ids.tolist(), chosen.copies.tolist(), strict=True))
        rng = stream(found.info["seed"], "report", student.t, c)
        some = np.sort(rng.permutation(len(chosen.ids))[:most])
        gallery.add("random", chosen.ids[some], chosen.odds[some], chosen.copies[some])
        if scan is not None and stops is not None:
            for row, near in (("above", scan.just_above), ("below", scan.just_below)):
                ids, odds = (part[:most] for part in near[c])
                gallery.add(row, ids, odds, np.array([copies.get(j, 0) for j in ids.tolist()], int))
            own = scan.ranked.classes == c
            ids, odds = scan.ranked.ids[own], scan.ranked.log_odds[own]
            ranks = ladder(np.minimum(student.selection["k"], scan.above[:, c]), 2 * most)  # type: ignore[index]
            taken = np.array([copies.get(j, 0) for j in ids[ranks].tolist()], int)
            gallery.add_ladder(ids[ranks], odds[ranks], taken, ranks)
        again = np.flatnonzero(chosen.copies > 1)
        again = again[np.argsort(-chosen.copies[again], kind="stable")][:most]
        gallery.add("repeated", chosen.ids[again], chosen.odds[again], chosen.copies[again])
        galleries.append(gallery)
    return RoundGalleries(student, stops, scan, galleries)


def ladder(counts: np.ndarray, most: int) -> np.ndarray:
    """Ranks that stand for what comes and goes between the counts of neighbouring alphas: some between any two, then evenly."""
    levels = np.unique(counts)
    ranks = np.empty(0, int)
    for each in (6, 3, 2, 1):
        between = [np.linspace(a, b - 1, each).astype(int) for a, b in pairwise(levels)]
        ranks = np.unique(np.concatenate([np.empty(0, int), *between]))
        if len(ranks) <= most:
            more = np.linspace(levels[0], levels[-1] - 1, most - len(ranks)).astype(int) if len(ranks) else ranks
            return np.union1d(ranks, more)
    return ranks[np.unique(np.linspace(0, len(ranks) - 1, most).astype(int))]


def gallery_size(album: Album, x: Images, sheets: int, rows: int) -> tuple[int, int]:
    """(pictures a row, sheets that fit) for sheets of `rows` rows of pictures each."""
    sample = stream(0, "report", "sample").integers(len(x), size=min(64, len(x)))
    one = rows * (album.bytes_per_tile(x, sample.tolist()) + NOTE_BYTES)
    most = int(min(MOST, PICTURE_BYTES / (max(1, sheets) * one)))
    return max(FEWEST, most), int(min(sheets, PICTURE_BYTES / (FEWEST * one)))


def describe_tiles(
    gallery: Gallery, c: int, pool: Pool, classes: tuple[str, ...], sources: dict[int, str]
) -> list[Any]:
    """What the page knows of each picture, in the order of the sheet."""
    tiles = []
    for j, (odds, copies) in gallery.tiles.items():
        tile = {"id": j, "p": probability(odds), "n": copies, "src": sources[j]}
        if pool.truth is not None:
            truth = int(pool.truth[j])
            tile |= {"ok": truth == c, "is": classes[truth] if truth >= 0 else "unrelated"}
        tiles.append(tile)
    return tiles


def sources_of(pool: Pool, ids: list[int]) -> dict[int, str]:
    """Looked up at once: a packed pool reads a part of its index for every call."""
    unique = np.unique(np.asarray(ids, np.int64))
    return dict(zip(unique.tolist(), pool.source(unique), strict=True)) if len(unique) else {}
