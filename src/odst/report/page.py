"""`odst report`: one run on one page that opens offline."""

import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from odst.data.images import Pool
from odst.files import write_text
from odst.progress import stage
from odst.report import panels, words
from odst.report.findings import Findings, gather
from odst.report.foresight import compare_forecast
from odst.report.galleries import RoundGalleries, choose, describe_tiles, gallery_size, scan_round, sources_of
from odst.report.measures import measures
from odst.report.sprites import COLUMNS, Album
from odst.report.templates import Hidden, environment
from odst.run.audit import headline
from odst.run.directory import RunDir
from odst.run.preparation import named_sources, pool_of

ROWS = 6  # galleries of a class: random, above, below, repeated, and twice for what comes and goes
COLUMNS_SHOWN = measures(
    "error", "corruption_error", "ece", "nll", "brier", "od_auroc", "val_error", "val_od_auroc", "temperature", "selected",
    "repeats", "related", "correct",
)  # fmt: skip

MARKED_SHOWN = measures("error", "od_auroc", "val_error", "val_od_auroc", "correct")


def write_report(run: RunDir, page: Path, *, images: bool = True, relative_paths: bool = False) -> Path:
    """Write the page of a run, finished or not. Without `images` it embeds none; with `relative_paths` it names no place
    outside the run's folder."""
    with stage("report"):
        write_text(page, render_report(run, pool_of(run), images=images, relative_paths=relative_paths))
    return page


def render_report(run: RunDir, pool: Pool | None, *, images: bool, relative_paths: bool) -> str:
    """The page as text, for a run over this pool."""
    found = gather(run, pool)
    hide = Hidden(run.path, named_sources(run)) if relative_paths else None
    galleries, album = _galleries(found, images)
    pools = {one.student.t - 1: one.scan.histogram for one in galleries if one.scan is not None}
    students = [one.student.t for one in galleries]
    place = run.path.resolve()
    context = {
        "found": found,
        "audits": _audits(run),
        "marked": _marked(found),
        "title": place.name if relative_paths else "/".join(place.parts[-2:]),
        "place": place.name if relative_paths else str(place),
        "headline": words.headline(found),
        "summary": words.summary(found),
        "bases": found.run.bases(),
        "alphas": words.alphas(found.recipe),
        "columns": [one for one in COLUMNS_SHOWN if any(r.metrics.get(one.key) is not None for r in found.rounds)],
        "foresight": compare_forecast(found),
        "curves": panels.curves(found),
        "bars": panels.bars(found),
        "confidence": [panels.confidence(found, one, pools.get(one.t)) for one in found.rounds],
        "reliability": panels.reliability(found),
        "thresholds": [panels.thresholds(found, one) for one in found.rounds],
        "config": _config(run, hide),
        "timings": run.timings(),
        "album": album,
        "script": "report.js",
        "data": _data(found, galleries, album, hide),
        "default_histogram": found.best.t if found.best.t in pools else max(pools, default=found.best.t),
        "default_round": found.best.t if found.best.t in students else max(students, default=0),
    }
    return environment().get_template("report.html").render(context)


def _audits(run: RunDir) -> list[dict[str, Any]]:
    """What is certified, round by round."""
    found = [audit for t in run.rounds() if (audit := run.audit(t)) is not None]
    return [audit | {"headline": headline(audit)} for audit in found]


def _marked(found: Findings) -> dict[str, Any] | None:
    """What marks brought into this run, and the run they were made on."""
    marks, parent = found.info["sets"].get("marks"), found.info.get("parent")
    if marks is None:
        return None
    columns = [one for one in MARKED_SHOWN if parent and parent.get(one.key) is not None]
    return {"marks": marks, "parent": parent, "columns": columns}


def _config(run: RunDir, hide: Hidden | None) -> str:
    text = run.config_text()
    return tomli_w.dumps(hide.within(tomllib.loads(text))) if hide else text


def _galleries(found: Findings, images: bool) -> tuple[list[RoundGalleries], Album | None]:
    pool = found.pool
    students = [one for one in found.rounds if one.selection is not None]
    if pool is None or not students:
        return [], None
    shown = pool.shown if images else None
    album, most, sheets = None, 0, 0
    if shown is not None:
        album = Album(shown.shape[1:])
        most, sheets = gallery_size(album, shown, len(students) * found.K, ROWS)
    chosen = [choose(found, one, scan_round(found, one, most), most) for one in students]
    if album and shown is not None:
        for one in reversed(chosen):  # where not all fit, the last round comes first
            for gallery in one.classes:
                if len(album.sheets) < sheets and gallery.tiles:
                    gallery.sheet = album.add(shown, list(gallery.tiles))
    return chosen, album


def _data(found: Findings, galleries: list[RoundGalleries], album: Album | None, hide: Hidden | None) -> dict[str, Any]:
    """What the page's script works on: per student round the stops of the slider, and per class counts and pictures."""
    pool, classes = found.pool, found.classes
    sources: dict[int, str] = {}
    if pool is not None and album is not None:
        ids = [j for one in galleries for gallery in one.classes if gallery.sheet is not None for j in gallery.tiles]
        sources = {j: hide(text) if hide else text for j, text in sources_of(pool, ids).items()}
    rounds = {}
    for one in galleries:
        assert one.student.selection is not None and pool is not None
        k = one.student.selection["k"]
        rows = []
        for c, (name, gallery) in enumerate(zip(classes, one.classes, strict=True)):
            row: dict[str, Any] = {"name": name, **one.student.selection["classes"][name], "sheet": gallery.sheet}
            if one.scan is not None and one.stops is not None:
                row["at"] = one.scan.above[:, c].tolist()
                row["tau"] = [words.probability(odds) for odds in one.stops.tau[:, c]]
            if gallery.sheet is not None:
                place = {j: i for i, j in enumerate(gallery.tiles)}
                row["tiles"] = describe_tiles(gallery, c, pool, classes, sources)
                row["rows"] = {key: [place[j] for j in ids] for key, ids in gallery.rows.items()}
                row["ladder"] = [[place[j], rank] for j, rank in gallery.ladder]
            rows.append(row)
        rounds[one.student.t] = {"k": k, "classes": rows, "stops": _stops(one, pool.truth, words.alphas(found.recipe))}
    return {"rounds": rounds, "tile": album.size if album else None, "columns": COLUMNS}


def _stops(one: RoundGalleries, truth: np.ndarray | None, named: str) -> dict[str, Any] | None:
    """The slider's alphas, what the run calls its own, and where the truth is known how good the selection at each would be.
    A run that draws its images has no slider: which ones another alpha would draw is not stored."""
    if one.stops is None or one.scan is None or one.student.selection is None or one.student.selection.get("pick"):
        return None
    alphas = [float(f"{a:.6g}") for a in one.stops.alphas]
    found: dict[str, Any] = {"alphas": alphas, "own": one.stops.own, "named": named}
    if truth is not None:
        counts = np.minimum(one.student.selection["k"], one.scan.above)  # (S, K)
        related, correct = np.zeros(len(counts)), np.zeros(len(counts))
        for c in range(counts.shape[1]):
            ids = one.scan.ranked.ids[one.scan.ranked.classes == c]
            for total, hit in ((related, truth[ids] >= 0), (correct, truth[ids] == c)):
                total += np.concatenate([[0], np.cumsum(hit)])[counts[:, c]]
        size = np.maximum(1, counts.sum(axis=1))
        found |= {"related": (related / size).tolist(), "correct": (correct / size).tolist()}
    return found
