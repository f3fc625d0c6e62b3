"""`odst compare`: runs side by side on one page that opens offline, with the images that each alone selected."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odst.data.images import Pool
from odst.errors import UserError
from odst.files import write_text
from odst.progress import stage
from odst.report import plots
from odst.report.galleries import Gallery, describe_tiles, gallery_size, sources_of
from odst.report.measures import HIGH, LOW
from odst.report.plots import Series
from odst.report.sprites import COLUMNS, Album
from odst.report.story import Taken, tell
from odst.report.tables import check_same_classes, grids
from odst.report.templates import Hidden, environment
from odst.run.bases import ALONE
from odst.run.directory import RunDir
from odst.run.preparation import named_sources, pool_of
from odst.seeds import stream


@dataclass(frozen=True)
class Compared:
    """What a comparison knows of a run."""

    name: str
    run: RunDir
    info: dict[str, Any]
    metrics: list[dict[str, Any]]
    finished: bool


def open_runs(runs: list[RunDir]) -> list[Compared]:
    """Runs that may stand side by side: of one set of classes, with at least one round each, and a name of their own."""
    places = [run.path.resolve() for run in runs]
    for place in places:
        if places.count(place) > 1:
            raise UserError(f"{place}: this run is named twice. Name each run once.")
    deep = 1  # as many folders as tell them apart
    while len(names := ["/".join(place.parts[-deep:]) for place in places]) > len(set(names)):
        deep += 1
    compared = []
    for name, run in zip(names, runs, strict=True):
        info = run.info()
        run.finished_rounds()
        compared.append(Compared(name, run, info, run.metrics(), run.final() is not None))
    check_same_classes({one.name: one.info["classes"] for one in compared})
    return compared


def write_comparison(runs: list[RunDir], page: Path, *, images: bool = True, relative_paths: bool = False) -> Path:
    """Write the page of these runs. Without `images` it embeds none; with `relative_paths` it names no place outside the
    runs' folders."""
    compared = open_runs(runs)
    with stage("comparison"):
        data, album = exclusive_galleries(compared, relative_paths) if images else ({"rounds": {}}, None)
        data["story"] = None if album is None else story(compared, album, relative_paths)
        context = {
            "compared": compared,
            "grids": grids({one.name: one.metrics for one in compared}),
            "cautions": cautions(compared),
            "curves": curves(compared),
            "album": album,
            "data": data,
            "script": "comparison.js",
        }
        write_text(page, environment().get_template("comparison.html").render(context))
    return page


def cautions(compared: list[Compared]) -> list[str]:
    """What makes the numbers of these runs less comparable than they look."""
    lines = [
        f"{one.name} is not finished: it has {len(one.metrics)} of {_planned(one.info) + 1} rounds."
        for one in compared
        if not one.finished
    ]
    for one in compared:
        if (one.run.final() or {}).get("use") == ALONE:
            lines.append(f"{one.name} is best used with its labels alone, which are none of these rounds.")
    for name, what in (
        ("test", "tested on"), ("out_test", "tested on"), ("labelled", "given"), ("pool", "given"), ("val_in", "given"),
        ("val_out", "given"),
    ):  # fmt: skip
        if len({_hashes(one.info["sets"], name) for one in compared}) > 1:
            lines.append(f"These runs were not {what} the same {name} images: differences may come from that.")
    if len({one.info["seed"] for one in compared}) > 1:
        lines.append("These runs have different seeds.")
    return lines


def _hashes(sets: dict[str, Any], name: str) -> frozenset[tuple[str, str]]:
    """Of the set of this name, or of all sets below it: out_test.flowers, out_test.noise."""
    return frozenset((key, one["hash"]) for key, one in sets.items() if key.partition(".")[0] == name)


def _planned(info: dict[str, Any]) -> int:
    return len(info["recipe"]["k"] or info["recipe"]["ratio"])


def curves(compared: list[Compared]) -> list[tuple[str, Any]]:
    tested = any(one["error"] is not None for run in compared for one in run.metrics)
    error, auroc = ("error", "od_auroc") if tested else ("val_error", "val_od_auroc")
    K = len(compared[0].info["classes"])

    def lines(key: str, scale: float = 1.0) -> list[Series]:
        return [
            Series(run.name, f"c{i % 8 + 1}", [None if one[key] is None else one[key] * scale for one in run.metrics])
            for i, run in enumerate(compared)
        ]

    return [
        (f"Error on {'test' if tested else 'val_in'}, {LOW}", plots.rounds_chart("Error", lines(error))),
        (f"OD-AUROC, {HIGH}", plots.rounds_chart("OD-AUROC", lines(auroc), unit="")),
        (
            "Selected images, mean per class",
            plots.rounds_chart("Selected images per class", lines("selected", 1 / K), scale=1, unit=""),
        ),
        ("Of these task-related", plots.rounds_chart("Task-related share", lines("related"))),
    ]


def story(compared: list[Compared], album: Album, relative_paths: bool) -> dict[str, Any] | None:
    """Plain self-training beside odst, where both are here, have selected from pools of one truth, and it is known."""
    taken = {}
    for one in compared:
        table, method = one.run.selection(len(one.metrics) - 1), one.info["method"]
        if table is not None and method in ("st", "odst") and method not in taken:
            pool = pool_of(one.run)
            if pool is not None and pool.truth is not None and pool.shown is not None:
                taken[method] = Taken(one.name, table, pool, one.info["seed"])
    if taken.keys() != {"st", "odst"}:
        return None
    told = tell(taken["st"], taken["odst"], tuple(compared[0].info["classes"]), album)
    for tile in (tile for row in told["rows"] for tile in row["tiles"]) if told and relative_paths else ():
        tile["src"] = Hidden(compared[0].run.path, named_sources(compared[0].run))(tile["src"])
    return told


# images that one run alone selected ------------------------------------------------------------------------------------------


def exclusive_galleries(compared: list[Compared], relative_paths: bool) -> tuple[dict[str, Any], Album | None]:
    """Per round and run, a random few of the images that no other run selected in that round, class by class."""
    classes = compared[0].info["classes"]
    pools: dict[str, Pool] = {}
    album: Album | None = None
    last = max(len(one.metrics) for one in compared)
    tables = {(one.name, t): one.run.selection(t) for one in compared for t in range(1, last)}
    sheets = len(classes) * sum(table is not None for table in tables.values())
    rounds: dict[int, list[Any]] = {}
    most, fit = 0, 0
    for t in reversed(range(1, last)):  # where not all fit, the last round comes first
        for one in compared:
            table = tables[one.name, t]
            if table is None:
                continue
            pool = _pool(one, pools)
            if pool.shown is None:
                return {"rounds": {}}, None
            if album is None:
                album = Album(pool.shown.shape[1:])
                most, fit = gallery_size(album, pool.shown, sheets, rows=1)
            others = [tables[other.name, t] for other in compared if other is not one]
            alone = _exclusive(table, [other for other in others if other is not None])
            rows = []
            for c, name in enumerate(classes):
                gallery = _random(alone.filter(pc.equal(alone["class"], name)), most, one, t, c)
                row: dict[str, Any] = {"name": name, "count": gallery[1], "sheet": None}
                tiles = gallery[0].tiles
                if tiles and len(album.sheets) < fit:
                    row["sheet"] = album.add(pool.shown, list(tiles))
                    sources = sources_of(pool, list(tiles))
                    if relative_paths:
                        hide = Hidden(one.run.path, named_sources(one.run))
                        sources = {j: hide(text) for j, text in sources.items()}
                    row["tiles"] = describe_tiles(gallery[0], c, pool, tuple(classes), sources)
                rows.append(row)
            rounds.setdefault(t, []).append(
                {"run": one.name, "count": alone.num_rows, "of": table.num_rows, "classes": rows}
            )
    shown = {str(t): rounds[t] for t in sorted(rounds)}
    return {"rounds": shown, "tile": album.size if album else None, "columns": COLUMNS}, album


def _pool(one: Compared, pools: dict[str, Pool]) -> Pool:
    """The run's pool; runs over the same one share it."""
    known = one.info["sets"]["pool"]["hash"]
    if known not in pools:
        pool = pool_of(one.run)
        assert pool is not None  # something was selected from it
        pools[known] = pool
    return pools[known]


def _exclusive(table: pa.Table, others: list[pa.Table]) -> pa.Table:
    """An image is the same one if it shows the same, in whichever pool it stands."""
    if not others:
        return table
    seen = pa.concat_arrays([chunk for other in others for chunk in other["content_hash"].chunks])
    return table.filter(pc.invert(pc.is_in(table["content_hash"], value_set=seen)))


def _random(table: pa.Table, most: int, one: Compared, t: int, c: int) -> tuple[Gallery, int]:
    rows = np.sort(stream(one.info["seed"], "compare", one.name, t, c).permutation(table.num_rows)[:most])
    some = table.take(pa.array(rows))
    gallery = Gallery()
    gallery.add("random", *(some[key].to_numpy() for key in ("pool_id", "log_odds", "repeats")))
    return gallery, table.num_rows
