"""`odst review`: one page that opens offline, on which a person marks pictures of a round's selection.

Two modes that are never mixed. The audit shows uniform draws class by class, shuffled, with nothing that a score could be read
from; its marks count towards a certificate. Triage shows what is most worth correcting, and none of the audit's pictures.
"""

import logging
from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from odst.data.images import Images, Pool
from odst.data.pictures import NO_PICTURES
from odst.errors import UserError
from odst.evaluation.audit import DELTA, TARGET, lower_bound, sequence
from odst.files import write_text
from odst.progress import stage
from odst.report.findings import gather
from odst.report.galleries import scan_round
from odst.report.sprites import COLUMNS, Album
from odst.report.templates import environment
from odst.report.words import probability
from odst.run.audit import Ranked, audited_round, drawn_ranks, draws_of, fix_draws, ranked, share_of
from odst.run.directory import RunDir
from odst.run.marks import AUDIT, FORMAT, TRIAGE, Mark, run_hash
from odst.run.marks import COLUMNS as MARK_COLUMNS
from odst.run.preparation import pool_of, sets_of
from odst.run.selection_file import of_class
from odst.seeds import stream

log = logging.getLogger("odst")

PAGE = 30  # pictures that one Enter confirms
SIDE = 96  # pixels of a picture's longer side on the page; larger ones are shrunk
ROW = 30  # pictures of one kind and class in triage
BOUNDS = 60  # wrong ones for which the page knows the bound; a class with more is beyond hope
COMPARED = 2000  # labelled and selected images of a class among which the most unlike are sought
KEYS = "1234567890abcdefghijklmnopqrstvwy"  # x, u and z are taken
WORDS = {"wrong": "wrong", "wrong_short": "wrong", "right": "right", "overview": "Class by class", "group": "class"}


def write_review(run: RunDir, page: Path, *, t: int | None, draws: int | None) -> Path:
    """The number of draws is fixed by the first page of a round; None means that number."""
    t = audited_round(run, t)
    draws = draws_of(run, t, draws)
    with stage("review"):
        text = render_review(run, t=t, draws=draws)
        fix_draws(run, t, draws)
        write_text(page, text)
    return page


def render_review(run: RunDir, *, t: int, draws: int, saved: Sequence[Mark] | None = None) -> str:
    """The page as text; with `saved`, what a server has on file, it sends its marks there."""
    pool, info = pool_of(run), run.info()
    if pool is None or pool.shown is None:
        raise UserError(f"{run.path}: {NO_PICTURES}")
    album, sets = Album(pool.shown.shape[1:], SIDE), ranked(run, t)
    places = drawn_ranks(run, t, sets, draws)
    modes = [
        _audit(sets, places, album, pool.shown, share_of(DELTA, sets)),
        _triage(run, t, pool, sets, places, album),
    ]
    story = {
        "run_hash": run_hash(run, t),
        "round": t,
        "draws": draws,
        "classes": info["classes"],
        "modes": modes,
        "target_text": f"{100 * TARGET:g} %",
        "delta": DELTA,
        "share": share_of(DELTA, sets),
        "split": sum(len(one) > 0 for one in sets),
        "words": WORDS,
        "file": f"marks-{run.path.resolve().name}-round-{t}",
    }
    subtitle = f"round {t} · {sum(map(len, sets)):,} images selected for {len(sets)} classes · method {info['method']}, seed {info['seed']}"
    return render(story, album, f"Review of {run.path.resolve().name}", subtitle, saved)


def render(story: dict[str, Any], album: Album, title: str, subtitle: str, saved: Sequence[Mark] | None) -> str:
    """A story of modes and pages -> HTML."""
    data = story | {
        "keys": class_keys(story["classes"]),
        "format": FORMAT,
        "columns_of_marks": MARK_COLUMNS,
        "tile": album.size,
        "columns": COLUMNS,
        "serve": saved is not None,
        "saved": [{"part": AUDIT if mark.draws else TRIAGE, **mark.to_json()} for mark in saved] if saved else None,
    }
    context = {"title": title, "subtitle": subtitle, "album": album, "data": data, "script": "review.js"}
    return environment().get_template("review.html").render(context)


def class_keys(classes: Sequence[str]) -> list[str | None]:
    """A key for each class: its own name where that is one letter or digit, else the next free one; late ones have none."""
    own = [name.lower() if len(name) == 1 and name.lower() in KEYS else None for name in classes]
    own = [key if own.index(key) == c else None for c, key in enumerate(own)]
    free = iter(key for key in KEYS if key not in own)
    return [key or next(free, None) for key in own]


# audit -----------------------------------------------------------------------------------------------------------------------


def _audit(
    sets: Sequence[Ranked], places: Sequence[np.ndarray], album: Album, shown: Images, share: float
) -> dict[str, Any]:
    groups, pages = [], []
    for one, ranks in zip(sets, places, strict=True):
        if not len(one):
            continue
        n = len(ranks)
        groups.append(
            {
                "name": one.name,
                "draws": n,
                "selected": len(one),
                "sets": [{"size": a, "draws": b, "allowed": c} for a, b, c in sequence(ranks, len(one), TARGET, share)],
                "bounds": [lower_bound(len(one), n, wrong, share) for wrong in range(min(n, BOUNDS) + 1)],
            }
        )
        tiles = [{"id": int(one.ids[r]), "hash": one.hashes[r], "rank": int(r)} for r in ranks]
        pages += paged(tiles, f"Is each of these {one.name}?", one.name, one.name, album, shown)
    return {
        "name": AUDIT,
        "mode": AUDIT,
        "counts": True,
        "title": "Audit",
        "about": "Drawn at random from what was selected. Mark what is not of the class; confirm page by page.",
        "rules": "The certificate counts when all draws of a class are seen, and is given only then: stopping when it looks good would "
        "make it worth nothing.",
        "groups": groups,
        "pages": pages,
    }


def paged(
    tiles: list[dict[str, Any]], title: str, group: str, name: str, album: Album, shown: Images, size: int = PAGE
) -> list[dict[str, Any]]:
    """Pages of at most `size` pictures, each with a sheet of its own."""
    pages = []
    for start in range(0, len(tiles), size):
        own = tiles[start : start + size]
        sheet = album.add(shown, [tile["id"] for tile in own])
        pages.append({"title": title, "group": group, "class": name, "sheet": sheet, "tiles": own})
    return pages


# triage ----------------------------------------------------------------------------------------------------------------------


def _triage(
    run: RunDir, t: int, pool: Pool, sets: Sequence[Ranked], places: Sequence[np.ndarray], album: Album
) -> dict[str, Any]:
    found, table, data = gather(run, pool), run.selection(t), _inputs(run)
    student = found.rounds[t]
    scanned = scan_round(found, student, ROW + max(map(len, places), default=0))
    drawn = {int(one.ids[r]) for one, ranks in zip(sets, places, strict=True) for r in ranks}
    groups, pages = [], []
    assert table is not None and pool.shown is not None
    for c, name in enumerate(found.classes):
        chosen = of_class(table, name)
        odds = dict(zip(chosen.ids.tolist(), chosen.odds.tolist(), strict=True))
        copies = dict(zip(chosen.ids.tolist(), chosen.copies.tolist(), strict=True))
        lists: dict[str, list[int]] = {}
        if scanned is not None:
            sides = [
                [(int(j), float(o)) for j, o in zip(*side[c], strict=True)]
                for side in (scanned[1].just_above, scanned[1].just_below)
            ]
            odds |= dict(sides[0] + sides[1])
            turns = chain.from_iterable(zip_longest(*sides))  # one above, one below
            lists["Near the threshold"] = [pair[0] for pair in turns if pair is not None]
        else:
            lists["Near the threshold"] = sorted(odds, key=odds.__getitem__)
        lists["Most repeated"] = sorted((j for j in copies if copies[j] > 1), key=lambda j: -copies[j])
        if data is not None:
            lists["Most unlike the labelled images"] = _unlike(data, c, chosen.ids, found.info["seed"])
        seen, count = set(drawn), 0
        for why, ids in lists.items():
            ids = [j for j in ids if j not in seen][:ROW]
            seen |= set(ids)
            if ids:
                unique = np.array(ids, np.int64)
                tiles = [
                    {"id": j, "hash": hash_, "note": _note(j, odds[j], copies.get(j, 0), source)}
                    for j, hash_, source in zip(ids, pool.content_hash(unique), pool.source(unique), strict=True)
                ]
                pages += paged(tiles, f"{why}: is each of these {name}?", name, name, album, pool.shown)
                count += len(ids)
        if count:
            groups.append({"name": name, "draws": count, "says": [""] * (count + 1)})
    return {
        "name": TRIAGE,
        "mode": TRIAGE,
        "counts": False,
        "title": "Triage",
        "about": "What is most worth correcting. Careful: what you leave unmarked on a confirmed page is right, and will be learnt as "
        "that class.",
        "rules": "Nearest to the threshold on both sides, most repeated, most unlike the labelled images. Feed the marks back with "
        "`odst run RUN --marks FILE`. They never count towards the certificate.",
        "groups": groups,
        "pages": pages,
    }


def _note(j: int, odds: float, copies: int, source: str) -> str:
    used = "not selected" if copies == 0 else "selected" if copies == 1 else f"{copies} copies"
    return f"pool id {j}\nconfidence {probability(odds)}\n{used}\n{source}"


def _inputs(run: RunDir) -> Any:
    """The run's sets, to compare what was selected with the labelled images; None where they are not all at hand."""
    try:
        return sets_of(run)
    except (UserError, OSError) as error:
        log.warning("triage goes without the images most unlike the labelled ones: %s", error)
        return None


def _unlike(data: Any, c: int, ids: np.ndarray, seed: int) -> list[int]:
    """Of what was selected for class c the images farthest from any labelled image of it, as the network gets them."""
    own = np.flatnonzero(data.labelled.y == c)
    rng = stream(seed, "review", "unlike", c)
    own, some = np.sort(rng.permutation(own)[:COMPARED]), np.sort(rng.permutation(ids)[:COMPARED])
    if not len(some) or not len(own):
        return []
    a, b = (np.asarray(x, np.float32).reshape(len(x), -1) for x in (data.pool.x[some], data.labelled.x[own]))
    squares = (a**2).sum(1)[:, None] + (b**2).sum(1) - 2 * a @ b.T  # (selected, labelled)
    return some[np.argsort(-squares.min(axis=1), kind="stable")].tolist()
