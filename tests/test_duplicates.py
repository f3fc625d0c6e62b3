import io
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from benchmarks.planted import planted
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from odst.data.worlds import load_world
from odst.duplicates import search
from odst.duplicates.search import Search, near_pairs, squared_limit
from odst.errors import UserError

RADIUS = 2000 / 255


def decode(path: Path, n: int) -> np.ndarray:
    rows = pq.read_table(path, columns=["image"]).slice(0, n)["image"].to_pylist()
    return np.stack([np.asarray(Image.open(io.BytesIO(row["bytes"])).convert("RGB")) for row in rows])


def by_hand(pool: np.ndarray, reference: np.ndarray, radius: float) -> set[tuple[int, int, int]]:
    a, b = pool.reshape(len(pool), -1).astype(np.int32), reference.reshape(len(reference), -1).astype(np.int32)
    squared = np.array([((row - b) ** 2).sum(1) for row in a])
    near = np.argwhere(squared < squared_limit(radius)).tolist()
    return {(i, j, int(squared[i, j])) for i, j in near}


def found(pool: np.ndarray, reference: np.ndarray, radius: float) -> list[tuple[int, int, int]]:
    blocks = near_pairs(pool, reference, radius)
    return [
        row for b in blocks for row in zip(b.pool_id.tolist(), b.reference_id.tolist(), b.squared.tolist(), strict=True)
    ]


def smooth(n: int, size: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Images with most of their variation in a few directions, some of them flat, as real ones are."""
    contrast = rng.choice([0, 3, 40, 127], (n, 1, 1, 1))
    coarse = np.kron(rng.normal(0, 1, (n, 2, 2, 3)), np.ones((1, -(-size[0] // 2), -(-size[1] // 2), 1)))
    x = (
        rng.integers(0, 256, (n, 1, 1, 3))
        + contrast * coarse[:, : size[0], : size[1]]
        + rng.normal(0, 3, (n, *size, 3))
    )
    return np.clip(np.rint(x), 0, 255).astype(np.uint8)


@settings(deadline=None, max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(1, 40),
    size=st.sampled_from([(1, 1), (5, 7), (8, 8), (16, 12)]),
    radius=st.floats(0.01, 12),
)
def test_near_pairs_are_those_of_a_double_loop(seed, n, size, radius):
    rng = np.random.default_rng(seed)
    reference = smooth(n, size, rng)
    pool = np.concatenate(
        [smooth(30, size, rng), reference, np.clip(reference + rng.integers(-2, 3, reference.shape), 0, 255)]
    )
    pool = pool.astype(np.uint8)
    assert sorted(found(pool, reference, radius)) == sorted(by_hand(pool, reference, radius))


def test_pairs_come_in_order_and_cutting_into_blocks_and_tiles_changes_nothing(monkeypatch):
    rng = np.random.default_rng(3)
    reference, pool = smooth(50, (8, 8), rng), smooth(200, (8, 8), rng)
    whole = found(pool, reference, 4.0)
    assert len(whole) > 50
    assert whole == sorted(whole)
    monkeypatch.setattr(search, "BLOCK", 7)
    monkeypatch.setattr(search, "TILE", 13)
    monkeypatch.setattr(search, "STAGES", (2, 5, 9))
    assert found(pool, reference, 4.0) == whole


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    kinds=st.lists(st.sampled_from(["none", "one", "all"]), min_size=1, max_size=5),
    last=st.integers(1, 8),
)
def test_blocks_of_which_none_one_or_all_images_are_near_give_the_pairs_of_a_double_loop(seed, kinds, last):
    """`last` rows make the last block: one image alone, or as many as the others have."""
    rng = np.random.default_rng(seed)
    reference = smooth(20, (8, 8), rng) // 2  # dark: what is bright is far from all of them
    blocks = []
    for kind in kinds:
        block = 255 - reference[rng.integers(0, 20, 8)] // 4
        near = {"none": [], "one": [int(rng.integers(0, 8))], "all": list(range(8))}[kind]
        block[near] = reference[rng.integers(0, 20, len(near))] + rng.integers(0, 2, (len(near), 8, 8, 3))
        blocks.append(block)
    blocks[-1] = blocks[-1][:last]
    pool = np.concatenate(blocks).astype(np.uint8)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "BLOCK", 8)
        patch.setattr(search, "STAGES", (2, 5, 9))
        assert found(pool, reference, 1.0) == sorted(by_hand(pool, reference, 1.0))


def test_digits_a_block_of_which_shows_no_reference_are_searched_at_the_default_radius():
    digits = load_world("digits", 0).pool.x
    near = found(digits[:1025], digits[-200:], RADIUS)
    assert near == sorted(by_hand(digits[:1025], digits[-200:], RADIUS))
    assert found(255 - digits[:1025], digits[-200:], RADIUS) == []


def test_a_pair_exactly_at_the_radius_is_outside_and_one_step_closer_is_inside():
    reference = np.full((1, 32, 32, 3), 250, np.uint8)  # bright: the squares are far larger than the distance
    at = reference.copy()
    at.reshape(-1)[:1000] -= 40  # 1000 · 40² = 1,600,000
    at.reshape(-1)[1000:1384] -= 79  # + 384 · 79² = 2,396,544
    at.reshape(-1)[1384 : 1384 + 864] -= 2  # + 864 · 2² = 3,456
    inside = at.copy()
    inside.reshape(-1)[0] += 1
    assert found(at, reference, RADIUS) == []
    assert found(inside, reference, RADIUS) == [(0, 0, 2000**2 - 40**2 + 39**2)]


def test_the_limit_is_the_fraction_that_was_meant():
    assert squared_limit(2000 / 255) == 2000**2
    assert squared_limit(3.0) == 765**2
    assert squared_limit(1 / 255) == 1
    assert squared_limit(1e-9) == 1  # an exact copy is within any radius


def test_no_pair_is_lost_where_float32_cancels():
    """Nearly white images: squared norms of 5·10^7 in float32 cannot tell distances of a few steps apart."""
    rng = np.random.default_rng(0)
    reference = 255 - rng.integers(0, 2, (40, 32, 32, 3)).astype(np.uint8)
    pool = 255 - rng.integers(0, 2, (60, 32, 32, 3)).astype(np.uint8)
    squared = sorted(s for *_, s in by_hand(pool, reference, 1.0))
    radius = np.sqrt(squared[len(squared) // 2]) / 255  # half of the pairs inside
    assert set(found(pool, reference, radius)) == by_hand(pool, reference, radius)


def test_the_bound_of_each_stage_keeps_every_pair_within_the_radius_and_drops_most_others():
    rng = np.random.default_rng(1)
    reference, pool = smooth(100, (16, 16), rng), smooth(100, (16, 16), rng)
    ready = Search(reference, 3.0)
    x, squares = search._centred(search._rows(pool))
    near = {(i, j) for i, j, _ in by_hand(pool, reference, 3.0)}
    for stage, bounds in zip(ready.stages, ready.bounds, strict=True):
        kept = set(map(tuple, (stage.pool_side(x, squares) @ bounds.T >= 0).nonzero().tolist()))
        assert near <= kept
        assert len(kept) < 0.1 * 100 * 100


def test_features_empty_references_and_other_sizes_are_refused_in_one_line():
    images = np.zeros((2, 8, 8, 3), np.uint8)
    with pytest.raises(UserError, match="feature vectors"):
        list(near_pairs(np.zeros((3, 5), np.float32), images, 1.0))
    with pytest.raises(UserError, match="the set is empty"):
        list(near_pairs(images, images[:0], 1.0))
    with pytest.raises(UserError, match="pool images are 9×8 and the references 8×8"):
        list(near_pairs(np.zeros((2, 8, 9, 3), np.uint8), images, 1.0))
    with pytest.raises(UserError, match="radius"):
        list(near_pairs(images, images, 0.0))
    torch.set_float32_matmul_precision("high")
    try:
        with pytest.raises(UserError, match="highest"):
            list(near_pairs(images, images, 1.0))
    finally:
        torch.set_float32_matmul_precision("highest")


def test_an_empty_pool_and_an_unrelated_one_have_no_pairs():
    images = np.zeros((2, 8, 8, 3), np.uint8)
    assert found(images[:0], images, 1.0) == []
    assert found(images + 200, images, 1.0) == []


@pytest.mark.slow
def test_real_images_with_planted_duplicates_give_the_pairs_of_faiss_and_a_float64_recheck(real_data: Path):
    faiss = pytest.importorskip("faiss")
    reference = decode(real_data / "cifar10_test.parquet", 5000)
    copies, ids, _ = planted(reference, 500, np.random.default_rng(0))
    pool = np.concatenate([decode(real_data / "cifar100_train.parquet", 20_000), copies])
    ours = found(pool, reference, RADIUS)

    a, b = (x.reshape(len(x), -1).astype(np.float32) / 255 for x in (pool, reference))
    index = faiss.IndexFlatL2(b.shape[1])
    index.add(b)
    starts, _, theirs = index.range_search(a, (RADIUS * 1.001) ** 2)  # a little wider than float32 errs
    i, j = np.repeat(np.arange(len(a)), np.diff(starts.astype(np.int64))), theirs
    squared = np.concatenate(
        [
            ((pool[i[s : s + 4096]].astype(np.float64) - reference[j[s : s + 4096]]) ** 2).sum((1, 2, 3))
            for s in range(0, len(i), 4096)
        ]
    )
    keep = squared < 2000**2
    assert ours == sorted(zip(i[keep].tolist(), j[keep].tolist(), squared[keep].astype(int).tolist(), strict=True))
    assert len({(20_000 + k, int(r)) for k, r in enumerate(ids)} & {(i, j) for i, j, _ in ours}) > 450
