"""`odst review PROJECT --val-out`: the page on which a person looks through a val_out that `odst init` made."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from odst.data.pictures import NO_PICTURES
from odst.errors import UserError
from odst.files import write_text
from odst.project.cleaning import Cleaning
from odst.report.review import paged, render
from odst.report.sprites import Album
from odst.run.marks import AUDIT, TRIAGE, VAL_OUT, Mark

SIDE = 96
CLASS_LIKE, SET_ASIDE = 300, 120  # pictures shown of either list
WORDS = {
    "wrong": "one of my classes", "wrong_short": "of my classes", "right": "where it belongs", "overview": "So far", "group": "list",
}  # fmt: skip


def write_val_out_review(one: Cleaning, page: Path, *, draws: int) -> Path:
    write_text(page, render_val_out_review(one, draws=draws))
    return page


def render_val_out_review(one: Cleaning, *, draws: int, saved: Sequence[Mark] | None = None) -> str:
    """The page as text; with `saved`, what a server has on file, it sends its marks there."""
    if draws < 1:
        raise UserError(f"--draws: at least 1 picture, got {draws}. 150 is usual.")
    if one.pool.shown is None:
        raise UserError(f"{one.folder}: {NO_PICTURES}")
    album = Album(one.pool.shown.shape[1:], SIDE)
    sample = one.drawn(draws)
    fresh = set(one.unseen.tolist()) - set(sample.tolist())
    kept = [j for j in one.ids(one.kept).tolist() if j in fresh][:CLASS_LIKE]
    rows = [row for seen in (False, True) for row in one.aside[::-1] if bool(row.get("seen")) == seen]
    aside = one.ids(rows).tolist()[:SET_ASIDE]  # the least class-like first, those seen last
    n = len(sample)
    modes = [
        {
            "name": AUDIT, "mode": VAL_OUT, "counts": True, "title": "Random sample",
            "about": "Drawn at random from what nobody has looked at in val_out. Mark what shows one of your classes.",
            "rules": "How clean val_out is follows when all are seen. What was looked at before counts as clean.",
            "nothing": one.contamination(0, 0) if not n else "",
            "groups": [{"name": "val_out", "draws": n, "says": [one.contamination(e, n) for e in range(n + 1)]}],
            "pages": _pages(one, sample.tolist(), "Do these show none of your classes?", "val_out", album),
        },
        {
            "name": TRIAGE, "mode": VAL_OUT, "counts": False, "title": "Most class-like",
            "about": "First what val_out has that looks most like a class: mark what is of one. Then what was set aside: `u` brings a "
            "picture of none of your classes back.",
            "rules": "Where class-like pictures of no class are missing from val_out, thresholds are too low just where it matters.",
            "groups": [_group("val_out", len(kept)), _group("set aside", len(aside))],
            "pages": _pages(one, kept, "In val_out, most class-like: none of your classes?", "val_out", album)
            + _pages(one, aside, "Set aside: which of these are none of your classes (u)?", "set aside", album),
        },
    ]  # fmt: skip
    story = {
        "run_hash": one.hash, "round": 0, "draws": draws, "classes": one.classes, "modes": modes, "words": WORDS,
        "none_is_right": True, "file": "marks-val_out",
    }  # fmt: skip
    subtitle = f"{len(one.kept):,} images in val_out, {len(one.aside):,} set aside"
    return render(story, album, f"val_out of {one.folder.resolve().name}", subtitle, saved)


def _group(name: str, n: int) -> dict[str, Any]:
    return {"name": name, "draws": n, "says": [""] * (n + 1)}


def _pages(one: Cleaning, ids: Sequence[int], title: str, group: str, album: Album) -> list[dict[str, Any]]:
    assert one.pool.shown is not None
    hashes = one.pool.content_hash(np.array(ids, np.int64)) if ids else []
    tiles = [{"id": j, "hash": hash_} for j, hash_ in zip(ids, hashes, strict=True)]
    return paged(tiles, title, group, "", album, one.pool.shown)
