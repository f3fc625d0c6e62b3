"""The rule on top of the search, the pass that resumes, and what it leaves behind."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from odst.data.images import Pool, content_hash
from odst.duplicates import Guard, Rule, audit, scan
from odst.duplicates.rule import judge, nearest
from odst.duplicates.search import Pairs
from odst.errors import UserError
from odst.vision.perceptual import CONVOLUTIONS, LpipsWeights, lpips, ssim


def pictures(n: int, seed: int, size: int = 32) -> np.ndarray:
    rng = np.random.default_rng(seed)
    coarse = np.kron(rng.integers(0, 256, (n, 4, 4, 3)), np.ones((1, size // 4, size // 4, 1)))
    return np.clip(coarse + rng.normal(0, 6, coarse.shape), 0, 255).astype(np.uint8)


def noisy(x: np.ndarray, spread: float, seed: int = 1) -> np.ndarray:
    return np.clip(np.rint(x + np.random.default_rng(seed).normal(0, spread, x.shape)), 0, 255).astype(np.uint8)


def random_weights() -> LpipsWeights:
    import torch

    generator = torch.Generator().manual_seed(0)
    shapes = [shape for shape, _ in CONVOLUTIONS.values()]
    return LpipsWeights(
        tuple(torch.randn(shape, generator=generator) * np.prod(shape[1:]) ** -0.5 for shape in shapes),
        tuple(torch.zeros(shape[0]) for shape in shapes),
        tuple(torch.rand(shape[0], generator=generator) / shape[0] for shape in shapes),
    )


class Counting:
    """Images that count how often each row is read, and break off at one of them."""

    def __init__(self, x: np.ndarray, breaks_at: int | None = None):
        self.x, self.breaks_at = x, breaks_at
        self.shape, self.dtype, self.reads = x.shape, x.dtype, np.zeros(len(x), int)

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: Any) -> np.ndarray:
        self.reads[rows] += 1
        if self.breaks_at is not None and self.reads[self.breaks_at]:
            raise KeyboardInterrupt
        return self.x[rows]


def listing(out: Path) -> list[dict[str, Any]]:
    return pq.read_table(out / "excluded.parquet").to_pylist()


def test_the_nearest_reference_is_taken_per_set_and_the_first_of_equals():
    pairs = Pairs(np.array([4, 4, 4, 4, 9]), np.array([0, 2, 3, 5, 4]), np.array([7, 5, 5, 1, 2]))
    found = nearest(pairs, ends=np.array([3, 6]))
    assert found.pool_id.tolist() == [4, 4, 9]
    assert found.set.tolist() == [0, 1, 1]
    assert found.reference_id.tolist() == [2, 2, 1]
    assert found.squared.tolist() == [5, 1, 2]


def test_a_candidate_leaves_only_if_it_is_strictly_below_both_perceptual_thresholds():
    weights = random_weights()
    a, b = pictures(1, 0), noisy(pictures(1, 0), 25)
    squared = ((a.astype(int) - b) ** 2).sum()
    far, near = float(lpips(a, b, weights, "unit")[0]), float(1 - ssim(a, b)[0])
    found = nearest(Pairs(np.array([0]), np.array([0]), np.array([squared])), np.array([1]))
    l2 = float(found.l2[0])

    def reason(**thresholds: float) -> str:
        rule = Rule(**{"radius": l2 + 1, "l2": 0.01, "lpips": far + 0.01, "dissim": near + 0.01} | thresholds)
        return str(judge(found, a, 0, [b], rule, weights).reason[0])

    assert reason() == "perceptual"
    assert reason(lpips=far) == ""
    assert reason(dissim=near) == ""
    assert reason(radius=l2 - 0.01) == ""
    assert reason(l2=l2 + 0.01) == "l2"
    rule = Rule(radius=l2 + 1, l2=0.01, lpips=0.0, dissim=near + 0.01)
    without = judge(found, a, 0, [b], rule, None)
    assert without.reason.tolist() == [""]  # L2 alone decides
    assert np.isnan(without.lpips).all()
    assert judge(found, a, 0, [b], replace(rule, ssim_alone=True), None).reason.tolist() == ["perceptual"]


def test_without_weights_candidates_stay_unless_ssim_alone_is_asked_for(tmp_path: Path):
    """Rows 10 to 19 nearly copy test B: L2 alone leaves them in the pool, SSIM alone takes them out. Each is its own pass."""
    x, guard = world()
    by_l2, by_ssim = Guard(guard.references), Guard(guard.references, Rule(ssim_alone=True))
    found = audit(Pool(x), by_l2, tmp_path)
    assert found["excluded"] == {"A": {"l2": 10}, "B": {}} and found["candidates"]["B"] == 10
    assert (found["lpips_used"], found["decided_by"]) == (False, ["L2"])
    assert {file.name for file in tmp_path.glob("pairs-*")} == {"pairs-l2.png", "pairs-just-outside-l2.png"}
    found = audit(Pool(x), by_ssim, tmp_path)
    assert found["excluded"] == {"A": {"l2": 10}, "B": {"perceptual": 10}}
    assert (found["lpips_used"], found["decided_by"]) == (False, ["L2", "SSIM"])
    assert (tmp_path / "pairs-perceptual.png").exists()
    weighed = audit(Pool(x), Guard(guard.references, weights=random_weights()), tmp_path)
    assert weighed["decided_by"] == ["L2", "SSIM", "LPIPS"]
    audit(Pool(x), by_l2, tmp_path)
    assert {row["reason"] for row in listing(tmp_path)} == {"l2"}
    assert not (tmp_path / "pairs-perceptual.png").exists()


def world() -> tuple[np.ndarray, Guard]:
    """Pool rows 0-9 copy test A, 10-19 nearly copy test B, 20-24 copy T, 30 and 31 are listed, the others are unrelated."""
    A, B, T = pictures(20, 1), pictures(30, 2), pictures(10, 3)
    pool = np.concatenate([A[:10], noisy(B[:10], 20), T[:5], pictures(65, 4)])
    guard = Guard(
        {"A": A, "B": B},
        Rule(ssim_alone=True),
        exact={"T": {content_hash(row): i for i, row in enumerate(T)}},
        listed={"published": np.array([30, 31])},
    )
    return pool, guard


def test_an_audit_lists_every_planted_image_with_set_reference_and_reason(tmp_path: Path):
    x, guard = world()
    summary = audit(Pool(x), guard, tmp_path)
    rows = listing(tmp_path)
    expected = [(j, "A", j, "l2") for j in range(10)] + [(10 + j, "B", j, "perceptual") for j in range(10)]
    expected += [(20 + j, "T", j, "exact") for j in range(5)] + [(j, "published", None, "listed") for j in (30, 31)]
    assert [(r["pool_id"], r["reference_set"], r["reference_id"], r["reason"]) for r in rows] == expected
    assert [r["source"] for r in rows] == [f"row:{r['pool_id']}" for r in rows]
    assert all(r["l2"] == 0 and r["ssim"] > 0.999 for r in rows[:10])
    exact = np.sqrt(((x[10].astype(float) - guard.references["B"][0]) ** 2).sum()) / 255
    assert rows[10]["l2"] == pytest.approx(exact, abs=1e-12)
    assert rows[-1]["l2"] is None
    assert summary["excluded_images"] == 27
    assert summary["excluded"] == {
        "A": {"l2": 10},
        "B": {"perceptual": 10},
        "T": {"exact": 5},
        "published": {"listed": 2},
    }
    assert summary["lpips_used"] is False
    assert json.loads((tmp_path / "dedup.json").read_text()) == summary
    assert {file.name for file in tmp_path.glob("pairs-*.png")} >= {
        "pairs-l2.png",
        "pairs-perceptual.png",
        "pairs-exact.png",
    }
    assert (tmp_path / "histogram.png").read_bytes().startswith(b"\x89PNG")


def test_the_histogram_counts_every_pool_image_once_per_set(tmp_path: Path):
    x, guard = world()
    audit(Pool(x), guard, tmp_path)
    rows = list(csv.DictReader((tmp_path / "histogram.csv").read_text().splitlines()))
    for name in ("A", "B"):
        mine = [row for row in rows if row["reference_set"] == name]
        assert sum(int(row["images"]) for row in mine) == len(x)
        assert mine[-1]["l2_below"] == ""
    assert next(int(row["images"]) for row in rows if row["reference_set"] == "A") == 10


def test_the_pool_is_read_once(tmp_path: Path):
    x, guard = world()
    rows = Counting(x)
    pool = Pool(rows, hashes=np.array([content_hash(row) for row in x]), identity="known")
    scan.scan(pool, guard, scan.describe(pool, guard), tmp_path / ".dedup")
    assert (rows.reads == 1).all()


def test_a_broken_pass_leaves_no_list_and_goes_on_to_the_same_bytes(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(scan, "SHARD", 16)
    x, guard = world()
    hashes = np.array([content_hash(row) for row in x])

    def pool(breaks_at: int | None = None) -> Pool:
        return Pool(Counting(x, breaks_at), hashes=hashes, identity="known")

    audit(pool(), guard, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        audit(pool(breaks_at=40), guard, tmp_path / "broken")
    assert not (tmp_path / "broken" / "excluded.parquet").exists()
    assert not (tmp_path / "broken" / "dedup.json").exists()
    rest = pool()
    audit(rest, guard, tmp_path / "broken")
    assert rest.x.reads[:32].max(initial=0) <= 2  # only what the sheets show
    assert rest.x.reads[32:48].min() >= 1
    for name in ("excluded.parquet", "histogram.csv", "dedup.json", "pairs-l2.png", "pairs-perceptual.png"):
        assert (tmp_path / "broken" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    assert not (tmp_path / "broken" / ".dedup").exists()


def test_a_finished_pass_is_not_repeated_and_other_settings_are(tmp_path: Path):
    x, guard = world()
    first = audit(Pool(x), guard, tmp_path)
    again = Counting(x)
    assert audit(Pool(again, identity=first["about"]["pool"]), guard, tmp_path) == first
    assert again.reads.sum() == 0
    strict = Guard(guard.references, Rule(dissim=0.0001, ssim_alone=True))
    assert audit(Pool(x), strict, tmp_path)["excluded"] == {"A": {"l2": 10}, "B": {}}
    assert {row["reason"] for row in listing(tmp_path)} == {"l2"}
    assert (
        audit(Pool(x), Guard(guard.references, Rule(dissim=0.0001), random_weights()), tmp_path)["lpips_used"] is True
    )
    audit(Pool(x), strict, tmp_path)
    (tmp_path / "excluded.parquet").unlink()
    assert audit(Pool(x), strict, tmp_path)["excluded_images"] == len(listing(tmp_path)) == 10


def test_a_pool_that_changed_since_is_refused_until_asked_to_begin_anew(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(scan, "SHARD", 16)
    x, guard = world()
    guard = Guard(guard.references)
    audit(Pool(x), guard, tmp_path / "finished")
    with pytest.raises(KeyboardInterrupt):
        audit(Pool(Counting(x, breaks_at=70), identity="old"), guard, tmp_path / "begun")
    other = np.concatenate([x[1:], x[:1]])
    for folder in ("finished", "begun"):
        with pytest.raises(UserError, match=r"the pool has changed since this pass.*--fresh"):
            audit(Pool(other), guard, tmp_path / folder)
        audit(Pool(other), guard, tmp_path / folder, fresh=True)
        assert [row["pool_id"] for row in listing(tmp_path / folder)][:3] == [0, 1, 2]
        assert listing(tmp_path / folder)[-1]["pool_id"] == 89


def test_sets_that_cannot_be_compared_are_refused_before_anything_is_written(tmp_path: Path):
    x, guard = world()
    out = tmp_path / "out"
    with pytest.raises(UserError, match="feature vectors"):
        audit(Pool(np.zeros((5, 8), np.float32)), guard, out)
    with pytest.raises(UserError, match="B: this reference set is empty"):
        audit(Pool(x), Guard({"A": x, "B": x[:0]}), out)
    with pytest.raises(UserError, match="A: its images are 16×16 and the pool's 32×32"):
        audit(Pool(x), Guard({"A": pictures(2, 0, 16)}), out)
    with pytest.raises(UserError, match="at least one reference set"):
        audit(Pool(x), Guard({}), out)
    with pytest.raises(UserError, match="two sets have one name"):
        audit(Pool(x), Guard({"A": x}, listed={"A": np.array([1])}), out)
    with pytest.raises(UserError, match="AlexNet needs at least 31 pixels"):
        audit(Pool(pictures(3, 0, 16)), Guard({"A": pictures(2, 0, 16)}, weights=random_weights()), out)
    with pytest.raises(UserError, match=r"no two images of 32×32 are farther apart than 55\.4"):
        audit(Pool(x), Guard({"A": x}, Rule(radius=2000)), out)  # in steps of 255 by mistake
    for value in (-1.0, float("nan"), float("inf")):
        with pytest.raises(UserError, match=r"lpips is a threshold of 0 or more, got .*\. The paper's is 0\.025\."):
            Rule(lpips=value)
    with pytest.raises(UserError, match="l2 is 9"):
        Rule(l2=9)
    assert not out.exists()


def test_a_pass_gone_on_with_after_its_sets_were_given_in_another_order_names_the_right_ones(
    tmp_path: Path, monkeypatch
):
    monkeypatch.setattr(scan, "SHARD", 16)
    x, guard = world()
    A, B = guard.references["A"], guard.references["B"]
    with pytest.raises(KeyboardInterrupt):
        audit(Pool(Counting(x, breaks_at=40), identity="known"), Guard({"A": A, "B": B}, guard.rule), tmp_path)
    audit(Pool(x, identity="known"), Guard({"B": B, "A": A}, guard.rule), tmp_path)
    assert [row["reference_set"] for row in listing(tmp_path)] == ["A"] * 10 + ["B"] * 10


def test_a_pass_begun_anew_is_marked_as_begun_before_the_old_list_goes(tmp_path: Path):
    x, guard = world()
    (tmp_path / "excluded.parquet").mkdir(parents=True)  # cannot be removed as a file: what a kill does at that place
    with pytest.raises((IsADirectoryError, PermissionError)):
        audit(Pool(x), guard, tmp_path, fresh=True)
    assert (tmp_path / ".dedup" / "pass.json").exists()


def test_only_sheets_of_an_earlier_pass_are_removed(tmp_path: Path):
    x, guard = world()
    (tmp_path / "pairs-of-shoes.png").write_bytes(b"mine")
    (tmp_path / "pairs-just-outside-lpips.png").write_bytes(b"of a pass with LPIPS")
    audit(Pool(x), guard, tmp_path)
    assert (tmp_path / "pairs-of-shoes.png").read_bytes() == b"mine"
    assert not (tmp_path / "pairs-just-outside-lpips.png").exists()


def test_the_histogram_stays_as_high_when_many_sets_fill_its_legend(tmp_path: Path):
    x, guard = world()
    heights = []
    for n in (1, 12):
        audit(Pool(x), Guard({f"set {k}": guard.references["A"] for k in range(n)}), tmp_path / str(n))
        with Image.open(tmp_path / str(n) / "histogram.png") as picture:
            heights.append(picture.height)
    assert heights[1] - heights[0] >= 11 * 24  # pixels a line of its legend takes
