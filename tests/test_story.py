"""What the demo's page begins with."""

import numpy as np
import pyarrow as pa

from odst.data.images import Pool
from odst.report.sprites import Album
from odst.report.story import SHOWN, Taken, tell

CLASSES = ("cat", "dog")


def taken(name: str, wrong_cats: int, dogs: int = 20) -> Taken:
    """A run that took 20 pictures for a cat, so many of them of something else, and `dogs` dogs that are all right."""
    truth = np.array([-1] * wrong_cats + [0] * (20 - wrong_cats) + [1] * dogs)
    rng = np.random.default_rng(0)
    pool = Pool(rng.integers(0, 256, (len(truth), 8, 8, 3), dtype=np.uint8), truth=truth)
    columns = {
        "pool_id": np.arange(len(truth)),
        "class": ["cat"] * 20 + ["dog"] * dogs,
        "log_odds": rng.normal(size=len(truth)),
        "repeats": np.ones(len(truth), np.int64),
    }
    return Taken(name, pa.table(columns), pool, seed=0)


def test_it_is_told_of_the_class_for_which_the_two_differ_most_and_counts_what_is_wrong() -> None:
    album = Album((8, 8, 3))
    told = tell(taken("plain", 14), taken("ours", 1), CLASSES, album)
    assert told is not None and told["class"] == "cat"
    assert [(row["run"], row["count"], row["wrong"]) for row in told["rows"]] == [("plain", 20, 14), ("ours", 20, 1)]
    assert "took 20 pictures out of the pool for “cat”, and 14 of them" in told["sentence"]
    assert "odst took 20, of which 1 do" in told["sentence"]
    assert len(album.sheets) == 2 and all(len(row["tiles"]) == min(SHOWN, 20) for row in told["rows"])
    assert sum(tile["ok"] is False for tile in told["rows"][0]["tiles"]) == 14


def test_there_is_no_story_where_plain_self_training_is_not_the_worse_one_or_took_too_few() -> None:
    assert tell(taken("plain", 1), taken("ours", 14), CLASSES, Album((8, 8, 3))) is None
    few = taken("plain", 14)
    assert tell(Taken("plain", few.table.slice(8, 4), few.pool, 0), taken("ours", 1), CLASSES, Album((8, 8, 3))) is None
