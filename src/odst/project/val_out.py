"""A val_out from one's own pool: a random sample, with the images that look most like a class set aside.

val_out must hold images of none of the classes, but a pool holds some of each. A small network is trained for a minute on
the labelled images against the rest of the pool. Half of val_in is more confident than its median, so about twice the share
of the sample above that confidence are taken for images of the classes: that many of the most confident are set aside.
They stay in the pool; those that are kept leave it. It is a guess, and a person should look at its pages.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path

import numpy as np

from odst.data.cells import cells
from odst.data.exclusions import IDENTITY
from odst.data.images import Data, Pool, is_image
from odst.data.pictures import read_picture
from odst.errors import UserError
from odst.files import whole, write_text
from odst.method.calibration import fit_temperature, top_log_odds
from odst.method.labelling import infer
from odst.method.targets import Examples
from odst.rounds import seeded
from odst.run.quick_base import quick_network
from odst.seeds import key, stream
from odst.training.schedule import Phase, Schedule
from odst.training.steps import train
from odst.vision.networks import make_network
from odst.vision.sheets import CELL, contact_sheet

MOST, LEAST = 2500, 100  # images in the sample: a tenth of the pool between these bounds, half of a small pool
STEPS = 300
COLUMNS = ("pool_id", "looks_like", "log_odds", "source", IDENTITY, "seen")  # seen: 1 where a person has looked


@dataclass(frozen=True)
class Sample:
    """Pool ids, the most class-like first; the first `aside` of them are set aside, the others are val_out."""

    ids: np.ndarray
    looks_like: np.ndarray  # class numbers
    log_odds: np.ndarray
    aside: int


def draw(data: Data, *, seed: int, device: str) -> Sample:
    """`data` has labelled, val_in and pool."""
    assert data.pool is not None
    inside = np.setdiff1d(np.arange(len(data.pool)), data.pool.excluded)
    n = min(max(LEAST, min(MOST, len(inside) // 10)), len(inside) // 2)
    if n == 0:
        raise UserError("pool: too few images to take a val_out from. Give a val_out of your own with --val-out.")
    ids = np.sort(stream(seed, "val_out").choice(inside, n, replace=False))
    rest = replace(data.pool, excluded=np.union1d(data.pool.excluded, ids))
    x = data.labelled.x
    model = seeded(lambda: make_network(quick_network(x.shape[1:]), data.K, x), key(seed, "val_out", "init"))
    augment, lr = (("crop:4",), 0.1) if is_image(x) else ((), 0.01)
    schedule = Schedule(batch=64, phases=(Phase(steps=STEPS, lr=lr, shape="cosine", augment=augment),))
    examples = Examples(data.labelled, rest, p=None, I=None, damping=1.0, K=data.K)
    model = train(
        model,
        examples,
        schedule,
        data.val_in,
        rest_weight=1.0,
        seed=seed,
        t=0,
        device=device,
        name="learn what is like a class",
    )
    logits_in, logits = infer(model, data.val_in.x, device=device), infer(model, data.pool.x[ids], device=device)
    temperature = fit_temperature(logits_in, data.val_in.y)
    median = np.median(top_log_odds(logits_in, temperature)[1])
    c, odds = top_log_odds(logits, temperature)
    order = np.argsort(-odds, kind="stable")
    aside = int(np.ceil(n * np.clip(2 * (odds > median).mean(), 0.01, 0.5)))
    return Sample(ids[order], c[order], odds[order], aside)


def write(sample: Sample, data: Data, folder: Path) -> None:
    """val_out.csv and val_out_aside.csv, and a page of each where they meet; move a line to change your mind."""
    halves = {
        "val_out": slice(sample.aside, None),
        "val_out_aside": slice(0, sample.aside),
    }
    for name, half in halves.items():
        _write_list(folder / f"{name}.csv", sample, data, half)
    if data.pool is not None and data.pool.shown is not None:
        edge, n = sample.aside, len(sample.ids)
        kept, aside = slice(edge, edge + 60), slice(max(0, edge - 60), edge)
        _write_page(
            folder / "val_out.png", sample, data, kept, f"val_out: the most class-like of {n - edge} images kept"
        )
        _write_page(
            folder / "val_out_aside.png", sample, data, aside, f"set aside: the least class-like of {edge} images"
        )


def is_own_list(file: Path) -> bool:
    """Whether `odst init` made this list: of a call that was killed it must not be taken for a set that the user gives."""
    if file.suffix != ".csv" or not file.is_file():
        return False
    with file.open("rb") as opened:
        return opened.readline(1000).strip() == ",".join(COLUMNS).encode()


def _write_list(file: Path, sample: Sample, data: Data, part: slice) -> None:
    assert data.pool is not None
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(COLUMNS)
    sources: Sequence[str] = data.pool.source(sample.ids[part])
    names = [data.classes[c] for c in sample.looks_like[part]]
    odds = [f"{x:.3f}" for x in sample.log_odds[part]]
    lines = zip(sample.ids[part].tolist(), names, odds, sources, repeat(data.pool.id), repeat(""), strict=False)
    rows.writerows(map(cells, lines))
    if file.exists() and file.read_bytes() != out.getvalue().encode():
        raise UserError(
            f"{file}: there is another list already, perhaps with your changes. Move it away, or choose another --out."
        )
    write_text(file, out.getvalue())


def _write_page(file: Path, sample: Sample, data: Data, part: slice, title: str) -> None:
    assert data.pool is not None
    captions = [f"{data.classes[c]}\nid {j}" for c, j in zip(sample.looks_like[part], sample.ids[part], strict=True)]
    with whole(file) as temporary:
        contact_sheet(originals(data.pool, sample.ids[part]), captions, title=title).save(temporary, "PNG")


def originals(pool: Pool, ids: np.ndarray) -> list[np.ndarray]:
    """The pictures at the size of a sheet, from their files where these can be read; else as the pool has them."""
    assert pool.shown is not None
    found = [read_picture(uri, CELL, "pad") for uri in pool.source(ids)]
    return [row if one is None else one for row, one in zip(pool.shown[ids], found, strict=True)]
