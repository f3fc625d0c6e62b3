import io
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from odst.errors import UserError
from odst.vision.perceptual import CONVOLUTIONS, lpips, read_lpips_weights, ssim


def pictures(n: int, size: tuple[int, int] = (32, 32), seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    coarse = rng.integers(0, 256, (n, 4, 4, 3), dtype=np.uint8)
    return np.stack([np.asarray(Image.fromarray(one).resize(size[::-1], Image.Resampling.BICUBIC)) for one in coarse])


def noisy(x: np.ndarray, spread: float, seed: int = 1) -> np.ndarray:
    noise = np.random.default_rng(seed).normal(0, spread, x.shape)
    return np.clip(np.rint(x + noise), 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def their_ssim() -> Callable[..., torch.Tensor]:
    """torchmetrics imports torchvision where it is installed, and dies of one that does not fit torch: hide it."""
    imports = pytest.importorskip("lightning_utilities.core.imports")
    version = imports._version
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "torchvision", None)
        patch.setattr(imports, "_version", lambda name: version("hidden" if name == "torchvision" else name))
        return pytest.importorskip("torchmetrics.functional.image").structural_similarity_index_measure


@pytest.mark.parametrize("size", [(32, 32), (17, 40), (64, 48)])
def test_ssim_equals_the_one_of_torchmetrics(size, their_ssim):
    a = np.concatenate([pictures(6, size), np.full((2, *size, 3), 7, np.uint8)])
    b = np.concatenate([noisy(a[:3], 20), pictures(3, size, seed=5), np.full((2, *size, 3), 9, np.uint8)])
    planes = [torch.from_numpy(x).permute(0, 3, 1, 2).float() / 255 for x in (a, b)]
    expected = their_ssim(*planes, data_range=1.0, reduction="none")
    assert np.allclose(ssim(a, b), expected.numpy(), atol=2e-5)


def test_ssim_of_an_image_with_itself_is_one_even_where_it_is_smaller_than_the_window():
    for size in [(32, 32), (4, 4), (1, 3)]:
        x = pictures(3, size)
        assert np.allclose(ssim(x, x), 1, atol=1e-5)


def test_lpips_gives_the_published_values_at_both_scales(real_data: Path):
    weights = read_lpips_weights(real_data / "weights" / "lpips_alexnet.npz")
    table = pq.read_table(real_data / "cifar10_test.parquet").slice(0, 20)
    x = np.stack(
        [np.asarray(Image.open(io.BytesIO(row["bytes"])).convert("RGB")) for row in table["image"].to_pylist()]
    )
    signed = [0.18214, 0.11571, 0.15489, 0.25879, 0.14092, 0.26832, 0.15823, 0.30085, 0.34698, 0.49997]
    unit = [0.11626, 0.13664, 0.16962, 0.16761, 0.11453, 0.22408, 0.12591, 0.27686, 0.24306, 0.23020]
    assert np.allclose(lpips(x[:10], x[10:], weights, "signed"), signed, atol=2e-5)
    assert np.allclose(lpips(x[:10], x[10:], weights, "unit"), unit, atol=2e-5)


def random_weights(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    named = {}
    for n, (shape, _) in CONVOLUTIONS.items():
        named[f"conv{n}_weight"] = rng.normal(0, np.prod(shape[1:]) ** -0.5, shape).astype(np.float32)
        named[f"conv{n}_bias"] = rng.normal(0, 0.1, shape[:1]).astype(np.float32)
        named[f"lin{n}"] = rng.uniform(0, 1, shape[:1]).astype(np.float32)
    return named


def test_a_torchvision_checkpoint_with_separate_heads_gives_the_same_distance_as_the_npz(tmp_path: Path):
    named = random_weights()
    np.savez(tmp_path / "weights.npz", **named)
    layers = {
        f"features.{layer}.{k}": named[f"conv{n}_{k}"]
        for n, (_, layer) in CONVOLUTIONS.items()
        for k in ("weight", "bias")
    }
    torch.save({k: torch.from_numpy(v) for k, v in layers.items()}, tmp_path / "alexnet.pth")
    heads = {f"lin{n}.model.1.weight": torch.from_numpy(named[f"lin{n}"]).view(1, -1, 1, 1) for n in range(5)}
    torch.save(heads, tmp_path / "heads.pth")
    one = read_lpips_weights(tmp_path / "weights.npz")
    two = read_lpips_weights(tmp_path / "alexnet.pth", tmp_path / "heads.pth")
    a = pictures(4)
    b = noisy(a, 10)
    assert np.array_equal(lpips(a, b, one, "unit"), lpips(a, b, two, "unit"))
    assert np.allclose(lpips(a, a, one, "signed"), 0)


def test_the_heads_of_torchmetrics_are_found_where_it_is_installed(tmp_path: Path, real_data: Path):
    if find_spec("torchmetrics") is None:
        pytest.skip("torchmetrics is not installed")
    with np.load(real_data / "weights" / "lpips_alexnet.npz") as file:
        named = {k: torch.from_numpy(file[k]) for k in file.files}
    layers = {
        f"features.{layer}.{k}": named[f"conv{n}_{k}"]
        for n, (_, layer) in CONVOLUTIONS.items()
        for k in ("weight", "bias")
    }
    torch.save(layers, tmp_path / "alexnet.pth")
    read = read_lpips_weights(tmp_path / "alexnet.pth")
    assert all(torch.allclose(read.head[n], named[f"lin{n}"].flatten()) for n in range(5))


def test_weights_that_are_none_are_refused_in_one_line(tmp_path: Path):
    (tmp_path / "text.npz").write_text("hello")
    (tmp_path / "text.pth").write_text("hello")
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    np.savez(tmp_path / "short.npz", **{**random_weights(), "lin2": np.zeros(5, np.float32)})
    for name, words in [
        ("missing.npz", "no such file"),
        ("text.npz", "not an .npz"),
        ("text.pth", r"not a checkpoint of plain tensors\. Give"),  # without torch's advice to load it all the same
        ("other.npz", "no conv0_weight"),
        ("short.npz", "lin2 has shape"),
    ]:
        with pytest.raises(UserError, match=words):
            read_lpips_weights(tmp_path / name, tmp_path / "text.pth")


def test_lpips_refuses_images_too_small_for_alexnet(tmp_path: Path):
    np.savez(tmp_path / "weights.npz", **random_weights())
    weights = read_lpips_weights(tmp_path / "weights.npz")
    assert lpips(pictures(1, (31, 31)), pictures(1, (31, 31), seed=2), weights, "unit")[0] > 0
    with pytest.raises(UserError, match="at least 31 pixels"):
        lpips(pictures(1, (28, 28)), pictures(1, (28, 28)), weights, "unit")
