"""Crop, flip and Cutout on batches: what moves where, what is filled, and where the randomness comes from."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from odst.errors import UserError
from odst.vision.augmentation import EXAMPLES, augmenter

FILL = (125, 123, 114)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch(n: int = 64, height: int = 32, width: int = 32, seed: int = 0) -> torch.Tensor:
    """Random images as the loop makes them: rows (n, H, W, 3), seen as (n, 3, H, W). No level equals the fill's."""
    x = torch.randint(0, 256, (n, height, width, 3), dtype=torch.uint8, generator=seeded(seed))
    return torch.where(x == torch.tensor(FILL, dtype=torch.uint8), 0, x).permute(0, 3, 1, 2)


def fill_like(x: torch.Tensor) -> torch.Tensor:
    return torch.tensor(FILL, dtype=torch.uint8).view(3, 1, 1).expand(x.shape[-3:])


@settings(deadline=None, max_examples=25)
@given(st.integers(5, 20), st.integers(5, 20), st.integers(1, 7), st.integers(0, 2**32))
def test_a_crop_is_a_window_of_the_image_padded_with_the_mean(height: int, width: int, padding: int, seed: int) -> None:
    x = batch(12, height, width)
    out = augmenter([f"crop:{padding}"], FILL)(x, seeded(seed))
    padded = fill_like(torch.empty(3, height + 2 * padding, width + 2 * padding)).repeat(12, 1, 1, 1)
    padded[:, :, padding:-padding, padding:-padding] = x
    for i in range(12):
        windows = padded[i].unfold(1, height, 1).unfold(2, width, 1)  # (3, 2p + 1, 2p + 1, H, W)
        assert (windows == out[i].view(3, 1, 1, height, width)).all(0).all(-1).all(-1).any()


def test_crops_reach_every_shift_equally_often() -> None:
    n = 8100
    x = torch.zeros(n, 3, 16, 16, dtype=torch.uint8)
    x[:, :, 8, 8] = 255
    out = augmenter(["crop:4"], (0, 0, 0))(x, seeded())
    row, column = out[:, 0].flatten(1).argmax(1).div(16, rounding_mode="floor"), out[:, 0].flatten(1).argmax(1) % 16
    count = torch.bincount((row - 4) * 9 + (column - 4), minlength=81)
    assert len(count) == 81
    assert count.min() > 50
    assert count.max() < 150


def test_a_flip_mirrors_half_of_the_images_left_to_right() -> None:
    x = batch(2000, 4, 6)
    out = augmenter(["flip"], FILL)(x, seeded())
    same, mirrored = (out == x).flatten(1).all(1), (out == x.flip(3)).flatten(1).all(1)
    assert (same ^ mirrored).all()
    assert mirrored.double().mean() == pytest.approx(0.5, abs=0.06)


@settings(deadline=None, max_examples=25)
@given(st.integers(6, 24), st.integers(6, 24), st.integers(2, 16), st.integers(0, 2**32))
def test_cutout_fills_one_square_cut_off_at_the_border(height: int, width: int, side: int, seed: int) -> None:
    x = batch(20, height, width)
    out = augmenter([f"cutout:{side}"], FILL)(x, seeded(seed))
    for before, after in zip(x, out, strict=True):
        cut = (after == fill_like(before)).all(0)
        assert torch.equal(torch.where(cut, fill_like(before), before), after)
        rows, columns = cut.any(1).nonzero().view(-1), cut.any(0).nonzero().view(-1)
        assert cut.sum() == len(rows) * len(columns)  # a full rectangle
        for lines, size in ((rows, height), (columns, width)):
            assert len(lines) == lines[-1] - lines[0] + 1
            assert len(lines) == side or lines[0] == 0 or lines[-1] == size - 1
            assert min(size, side // 2) <= len(lines) <= side


def test_cutout_is_centred_anywhere() -> None:
    x = torch.zeros(4000, 3, 8, 8, dtype=torch.uint8)
    out = augmenter(["cutout:1"], (255, 255, 255))(x, seeded())
    count = torch.bincount(out[:, 0].flatten(1).argmax(1), minlength=64)
    assert (out[:, 0].flatten(1) > 0).sum(1).eq(1).all()
    assert count.min() > 25
    assert count.max() < 110


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_seed_decides_everything_and_images_differ(name: str) -> None:
    augment = augmenter([name], FILL)
    x = batch(1, 32, 32).expand(200, -1, -1, -1)
    first, again, other = augment(x, seeded(1)), augment(x, seeded(1)), augment(x, seeded(2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert len(first.flatten(1).unique(dim=0)) >= 2  # the same image 200 times, each with its own draw


@pytest.mark.skipif(not torch.accelerator.is_available(), reason="there is no GPU here")
def test_a_gpu_gives_the_same_images_as_the_processor() -> None:
    augment, x = augmenter(["crop:4", "flip", "autoaugment:imagenet", "cutout:16"], FILL), batch(512)
    there = augment(x.to(torch.accelerator.current_accelerator()), seeded())
    assert torch.equal(there.cpu(), augment(x, seeded()))


def test_the_input_is_left_alone() -> None:
    x = batch(100)
    before = x.clone()
    augmenter(["crop:4", "flip", "autoaugment:cifar10", "cutout:16"], FILL)(x, seeded())
    assert torch.equal(x, before)


@pytest.mark.parametrize("names", [["flip"], ["crop:4", "flip"], ["autoaugment:imagenet", "cutout:8"]])
def test_the_memory_format_is_kept_and_changes_nothing(names: list[str]) -> None:
    augment, x = augmenter(names, FILL), batch()
    rows_last, planes = augment(x, seeded()), augment(x.contiguous(), seeded())
    assert torch.equal(rows_last, planes)
    assert rows_last.dtype == planes.dtype == torch.uint8
    assert rows_last.is_contiguous(memory_format=torch.channels_last)
    assert planes.is_contiguous()


def test_floats_are_augmented_in_their_256_levels() -> None:
    augment, x = augmenter(["crop:4", "autoaugment:cifar10", "cutout:16"], FILL), batch()
    torch.testing.assert_close(augment(x.float() / 255, seeded()), augment(x, seeded()).float() / 255)


def test_no_names_is_the_identity() -> None:
    x, generator = batch(), seeded()
    assert augmenter([], FILL)(x, generator) is x
    assert torch.equal(generator.get_state(), seeded().get_state())


@pytest.mark.parametrize("n", [0, 1])
def test_empty_and_single_batches_work(n: int) -> None:
    augment = augmenter(["crop:4", "flip", "autoaugment:svhn", "cutout:16"], FILL)
    assert augment(batch(4)[:n], seeded()).shape == (n, 3, 32, 32)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("autoaugment:cifar", "autoaugment:cifar10"),
        ("autoaugment", "autoaugment:"),
        ("cutuot:16", "cutout:16"),
        ("crop", "crop:4"),
        ("crop:-4", "crop:4"),
        ("flip:2", "flip"),
        ("", "crop:4, flip"),
    ],
)
def test_an_unknown_name_is_refused_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UserError, match=f"augmentation: there is no {name!r}. Nearest: .*{nearest}"):
        augmenter(["flip", name], FILL)
