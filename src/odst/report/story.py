"""What a person remembers of a comparison: what plain self-training took for one class, in pictures, beside what odst took."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from odst.data.images import Pool
from odst.report.galleries import Gallery, describe_tiles, sources_of
from odst.report.sprites import Album
from odst.seeds import stream

SHOWN = 24  # pictures of each run
ENOUGH = 10  # selected images without which a share says little


@dataclass(frozen=True)
class Taken:
    """What one run selected last, with the truth of it."""

    name: str  # of the run
    table: pa.Table
    pool: Pool
    seed: int

    def of(self, c: int, name: str) -> tuple[pa.Table, np.ndarray]:
        """The images selected for a class, and which of them show something else."""
        table = self.table.filter(pc.equal(self.table["class"], name))
        assert self.pool.truth is not None
        return table, np.asarray(self.pool.truth[table["pool_id"].to_numpy()]) != c


def tell(plain: Taken, aware: Taken, classes: tuple[str, ...], album: Album) -> dict[str, Any] | None:
    """A sentence, and a row of pictures for each of the two; of the class for which they differ most. None where no class has
    enough images, or where plain self-training is not the worse one: then there is no such story."""
    gaps = np.zeros(len(classes))
    for c, name in enumerate(classes):
        wrong = [taken.of(c, name)[1] for taken in (plain, aware)]
        if min(map(len, wrong)) >= ENOUGH:
            gaps[c] = wrong[0].mean() - wrong[1].mean()
    if gaps.max() <= 0:
        return None
    c = int(gaps.argmax())
    rows = [_row(taken, c, classes, album) for taken in (plain, aware)]
    first, second = rows
    sentence = (
        f"For its last student, plain self-training took {first['count']:,} pictures out of the pool for “{classes[c]}”, and "
        f"{first['wrong']:,} of them show something else. odst took {second['count']:,}, of which {second['wrong']:,} do."
    )
    return {"sentence": sentence, "class": classes[c], "rows": rows}


def _row(taken: Taken, c: int, classes: tuple[str, ...], album: Album) -> dict[str, Any]:
    table, wrong = taken.of(c, classes[c])
    some = np.sort(stream(taken.seed, "story", taken.name, c).permutation(table.num_rows)[:SHOWN])
    shown = table.take(pa.array(some))
    gallery = Gallery()
    gallery.add("random", *(shown[key].to_numpy() for key in ("pool_id", "log_odds", "repeats")))
    ids = list(gallery.tiles)
    assert taken.pool.shown is not None
    return {
        "run": taken.name,
        "count": table.num_rows,
        "wrong": int(wrong.sum()),
        "sheet": album.add(taken.pool.shown, ids),
        "tiles": describe_tiles(gallery, c, taken.pool, classes, sources_of(taken.pool, ids)),
    }
