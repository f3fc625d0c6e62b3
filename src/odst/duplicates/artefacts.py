"""What a pass leaves behind: the exclusion list, the histogram of nearest distances, sheets of pairs, and dedup.json.

Everything is made from the parts, shard by shard: memory does not grow with the pool.
"""

import csv
import logging
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from odst.data.cells import cells
from odst.data.images import Lookup, Pool
from odst.duplicates.rule import Found, Rule, merged
from odst.duplicates.scan import Guard, begin, check_guard, describe, finished, forgotten, read_parts, scan
from odst.duplicates.search import squared_limit
from odst.engine.parts import writing
from odst.files import sha256, whole, write_json
from odst.vision.sheets import contact_sheet

log = logging.getLogger("odst")

BIN = 0.1  # the histogram's bins are at most this wide, in L2, and all of one width
ON_SHEET = 60  # pairs

SCHEMA = pa.schema(
    [
        ("pool_id", pa.int64()),
        ("source", pa.string()),
        ("reference_set", pa.string()),
        ("reference_id", pa.int64()),
        ("reference_source", pa.string()),
        ("l2", pa.float64()),
        ("ssim", pa.float32()),
        ("lpips", pa.float32()),
        ("reason", pa.string()),
    ]
)


def audit(
    pool: Pool,
    guard: Guard,
    out: Path,
    *,
    sources: Mapping[str, Lookup] | None = None,
    notes: Mapping[str, Any] | None = None,
    fresh: bool = False,
) -> dict[str, Any]:
    """One whole pass, begun or gone on with, and what its dedup.json says. A finished one is not repeated.

    `sources` names the rows of each reference set, `notes` are further entries of dedup.json, `fresh` forgets what an
    earlier pass left in `out`.
    """
    check_guard(pool, guard)
    about = describe(pool, guard)
    if not fresh and (before := finished(out, about)) is not None and not (out / ".dedup").exists():
        return before
    with writing(out, "odst dedup"):
        return _audit(pool, guard, about, out, sources or {}, notes or {}, fresh)


def _audit(
    pool: Pool,
    guard: Guard,
    about: Mapping[str, Any],
    out: Path,
    sources: Mapping[str, Lookup],
    notes: Mapping[str, Any],
    fresh: bool,
) -> dict[str, Any]:
    if fresh:
        begin(out / ".dedup", about, fresh=True)  # first: without its list the pool must not look guarded
        for name in ("dedup.json", "excluded.parquet"):
            (out / name).unlink(missing_ok=True)
    if (before := finished(out, about)) is not None:
        shutil.rmtree(out / ".dedup", ignore_errors=True)  # of a process that was killed between its last two lines
        return before
    if lost := forgotten(out, about):
        log.warning(
            f"{out}: an earlier pass guarded against {', '.join(lost)}. This one takes its place, and what only that one "
            "excluded comes back. To keep it, name all sets in one command."
        )
    scan(pool, guard, about, out / ".dedup")
    return _finish(pool, guard, about, out, sources, notes)


def _finish(
    pool: Pool,
    guard: Guard,
    about: Mapping[str, Any],
    out: Path,
    sources: Mapping[str, Lookup],
    notes: Mapping[str, Any],
) -> dict[str, Any]:
    """Every part is there: write the artefacts, dedup.json last."""
    names = guard.names
    n_bins = int(np.ceil(guard.rule.radius / BIN - 1e-9))
    bins = np.zeros((len(guard.references), n_bins), np.int64)
    counts: dict[str, Counter[str]] = {name: Counter() for name in names}
    sheets: dict[str, Found] = {}
    removed = 0
    with whole(out / "excluded.parquet") as temporary:
        schema = SCHEMA.with_metadata({"odst.pool": about["pool"]})
        with pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
            for found in read_parts(out / ".dedup", len(pool)):
                near = (found.set < len(guard.references)) & (found.squared < squared_limit(guard.rule.radius))
                place = np.minimum(found.l2[near] / guard.rule.radius * n_bins, n_bins - 1).astype(int)
                np.add.at(bins, (found.set[near], place), 1)
                gone = found[found.reason != ""]
                writer.write_table(_table(gone, pool, names, sources))
                for number, reason in zip(gone.set.tolist(), gone.reason.tolist(), strict=True):
                    counts[names[number]][reason] += 1
                removed += len(np.unique(gone.pool_id))
                for name in _doubt(found, guard):
                    sheets[name] = _closest(name, merged([sheets[name], found]) if name in sheets else found, guard)
    _histogram(out, list(guard.references), bins, len(pool), guard.rule)
    for name in _TITLES:
        (out / f"pairs-{name}.png").unlink(missing_ok=True)
    for name, kept in sheets.items():
        if len(kept):
            _sheet(name, kept, pool, guard, out)
    summary = {
        "complete": True,
        **notes,
        "about": dict(about),
        "lpips_used": "LPIPS" in guard.alike_by,
        "decided_by": ["L2", *guard.alike_by],
        "candidates": {name: int(row.sum()) for name, row in zip(guard.references, bins, strict=True)},
        "excluded": {name: dict(sorted(counter.items())) for name, counter in counts.items()},
        "excluded_images": removed,
        "excluded_sha256": sha256(out / "excluded.parquet"),
    }
    write_json(out / "dedup.json", summary)
    shutil.rmtree(out / ".dedup")
    return summary


def _table(gone: Found, pool: Pool, names: Sequence[str], sources: Mapping[str, Lookup]) -> pa.Table:
    theirs: list[str | None] = [None] * len(gone)
    for number in np.unique(gone.set):
        rows = np.flatnonzero((gone.set == number) & (gone.reference_id >= 0))
        if names[number] in sources:
            for row, text in zip(rows, sources[names[number]][gone.reference_id[rows]], strict=True):
                theirs[row] = text
    columns = {
        "pool_id": gone.pool_id,
        "source": list(pool.source(gone.pool_id)),
        "reference_set": [names[number] for number in gone.set],
        "reference_id": pa.array(gone.reference_id, mask=gone.reference_id < 0),
        "reference_source": theirs,
        "l2": pa.array(gone.l2, mask=gone.squared < 0),
        "ssim": pa.array(gone.ssim, mask=np.isnan(gone.ssim)),
        "lpips": pa.array(gone.lpips, mask=np.isnan(gone.lpips)),
        "reason": gone.reason.tolist(),
    }
    return pa.table(columns, schema=SCHEMA)


def _doubt(found: Found, guard: Guard) -> dict[str, np.ndarray]:
    """Per sheet, how far each pair lies from the threshold the sheet is about; infinite where it is not on it."""
    rule, l2 = guard.rule, found.l2
    stays, near = found.reason == "", found.squared < squared_limit(rule.radius)
    doubts = {
        "l2": (found.reason == "l2", rule.l2 - l2),
        "exact": (found.reason == "exact", np.zeros(len(found))),
        "just-outside-l2": (stays & near, l2 - rule.l2),
    }
    if guard.alike_by:
        look, feel = 1 - found.ssim < rule.dissim, np.ones(len(found), bool)
        strain = (1 - found.ssim) / max(rule.dissim, 1e-9)
        if "LPIPS" in guard.alike_by:
            feel = found.lpips < rule.lpips
            strain = np.fmax(strain, found.lpips / max(rule.lpips, 1e-9))
            doubts["just-outside-lpips"] = (stays & near & look & ~feel, found.lpips - rule.lpips)
        doubts |= {
            "perceptual": (found.reason == "perceptual", 1 - strain),
            "just-outside-ssim": (stays & near & ~look & feel, (1 - found.ssim) - rule.dissim),
            "just-outside-radius": (stays & ~near & look & feel, l2 - rule.radius),
        }
    return {name: np.where(on, distance, np.inf) for name, (on, distance) in doubts.items()}


def _closest(name: str, found: Found, guard: Guard) -> Found:
    doubt = _doubt(found, guard)[name]
    order = np.argsort(doubt, kind="stable")[:ON_SHEET]
    return found[order[np.isfinite(doubt[order])]]


_TITLES = {
    "l2": "Leave: L2 < {rule.l2:g}. The largest first",
    "perceptual": "Leave: alike by SSIM{lpips}, L2 < {rule.radius:.4g}. Closest to the thresholds first",
    "exact": "Leave: exact copies",
    "just-outside-l2": "Stay: L2 just above {rule.l2:g}",
    "just-outside-lpips": "Stay: LPIPS just above {rule.lpips:g}, alike by SSIM",
    "just-outside-ssim": "Stay: 1-SSIM just above {rule.dissim:g}{lpips_alike}",
    "just-outside-radius": "Stay: alike by SSIM{lpips}, but L2 is just above {rule.radius:.4g}",
}


def _sheet(name: str, found: Found, pool: Pool, guard: Guard, out: Path) -> None:
    """Each pool image above its reference."""
    names, references = guard.names, list(guard.references.values())
    pairs, captions = [], []
    for row in range(len(found)):
        j, number, k = int(found.pool_id[row]), int(found.set[row]), int(found.reference_id[row])
        mine = pool.x[j : j + 1][0]
        theirs = references[number][k : k + 1][0] if number < len(references) else mine  # an exact copy is the same
        gap = np.full((max(1, len(mine) // 16), *mine.shape[1:]), 255, np.uint8)
        pairs.append(np.concatenate([mine, gap, theirs]))
        measures = f"L2 {found.l2[row]:.2f}"
        if not np.isnan(found.ssim[row]):
            measures += f"\n1-SSIM {1 - found.ssim[row]:.3f}"
        if not np.isnan(found.lpips[row]):
            measures += f"\nLPIPS {found.lpips[row]:.4f}"
        captions.append(f"{j}\n{k} {names[number]}\n{measures}")  # a long name is cut, not the number
    lpips = "LPIPS" in guard.alike_by
    words = {"lpips": " and LPIPS" if lpips else "", "lpips_alike": ", alike by LPIPS" if lpips else ""}
    title = f"{_TITLES[name].format(rule=guard.rule, **words)}. Pool above, reference below."
    picture = contact_sheet(pairs, captions, columns=12, title=title, cell=200)
    with whole(out / f"pairs-{name}.png") as temporary:
        picture.save(temporary, "PNG")


def _histogram(out: Path, names: Sequence[str], bins: np.ndarray, m: int, rule: Rule) -> None:
    edges = np.linspace(0, rule.radius, bins.shape[1] + 1)
    with whole(out / "histogram.csv") as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["reference_set", "l2_from", "l2_below", "images"])
        for name, row in zip(names, bins, strict=True):
            for low, high, count in zip(edges[:-1], edges[1:], row.tolist(), strict=True):
                writer.writerow(cells([name, f"{low:.6g}", f"{high:.6g}", count]))
            writer.writerow(cells([name, f"{rule.radius:.6g}", "", m - int(row.sum())]))
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 3.3 + 0.17 * len(names)), layout="constrained")  # a line of the legend for each set
    axes = figure.subplots()
    for name, row in zip(names, bins, strict=True):
        axes.stairs(row, edges, label=f"{name} ({int(row.sum()):,} of {m:,} within {rule.radius:.3g})", linewidth=1.4)
    for place, text in [(rule.l2, f"leaves below {rule.l2:g}"), (rule.radius, "candidates below")]:
        axes.axvline(place, color="0.35", linestyle="--", linewidth=1)
        axes.annotate(
            text, (place, 0), (-4, 4), xycoords=("data", "axes fraction"), textcoords="offset points",
            rotation=90, ha="right", va="bottom", fontsize=8, color="0.35",
        )  # fmt: skip
    axes.set_yscale("symlog", linthresh=1)
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, rule.radius * 1.02)
    axes.set_xlabel("L2 distance to the nearest reference, pixels in [0,1]")
    axes.set_ylabel(f"pool images per bin of {edges[1]:.2g}")
    figure.legend(frameon=False, fontsize=8, loc="outside upper left")
    with whole(out / "histogram.png") as temporary:
        figure.savefig(temporary, format="png", dpi=150)
