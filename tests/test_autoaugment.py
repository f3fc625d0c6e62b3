"""AutoAugment: every operation against Pillow image by image, the published policies pinned."""

import hashlib
import io
import json
import math
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from sklearn.datasets import load_sample_images

from odst.vision.augmentation import augmenter
from odst.vision.autoaugment import POLICIES, AutoAugment, magnitude
from odst.vision.operations import NAMES, NOTHING, operate

FILL = (125, 123, 114)
PINNED = {"cifar10": "2d0cae059d60309b", "svhn": "6b5bda3fc9e5fe52", "imagenet": "22de9419db974076"}


def with_pillow(name: str, image: Image.Image, value: float) -> Image.Image:
    matrices = {
        "ShearX": (1, value, 0, 0, 1, 0),
        "ShearY": (1, 0, 0, value, 1, 0),
        "TranslateX": (1, 0, value, 0, 1, 0),
        "TranslateY": (1, 0, 0, 0, 1, value),
    }
    if name in matrices:
        return image.transform(image.size, Image.Transform.AFFINE, matrices[name], fillcolor=FILL)
    if name == "Rotate":
        return image.rotate(value, fillcolor=FILL)
    if name in ("Invert", "AutoContrast", "Equalize"):
        return getattr(ImageOps, name.lower())(image)
    if name == "Solarize":
        return ImageOps.solarize(image, value)  # type: ignore[arg-type]
    if name == "Posterize":
        return ImageOps.posterize(image, int(value))
    return getattr(ImageEnhance, name)(image).enhance(value)


def from_pillow(name: str, images: np.ndarray, values: list[float]) -> np.ndarray:
    pairs = zip(images, values, strict=True)
    return np.stack([np.asarray(with_pillow(name, Image.fromarray(image), value)) for image, value in pairs])


def from_odst(name: str, images: np.ndarray, values: list[float]) -> np.ndarray:
    code = torch.full((len(images),), NAMES.index(name))
    fill = torch.tensor(FILL, dtype=torch.uint8)
    return operate(torch.from_numpy(images), code, torch.tensor(values, dtype=torch.float64), fill).numpy()


def photographs(height: int, width: int, n: int) -> np.ndarray:
    """Windows of two photographs, with a few awkward ones: black, white, one level a channel, two levels."""
    rng = np.random.default_rng(0)
    windows = []
    for image in load_sample_images().images:
        for _ in range(n // 2):
            top, left = rng.integers(image.shape[0] - height), rng.integers(image.shape[1] - width)
            windows.append(image[top : top + height, left : left + width])
    two = np.where(rng.random((height, width, 3)) < 0.01, 200, 90)
    flat = np.broadcast_to([10, 200, 30], (height, width, 3))
    awkward = [np.zeros((height, width, 3)), np.full((height, width, 3), 255), flat, two]
    return np.stack([*windows, *awkward]).astype(np.uint8)


def magnitudes(name: str, n: int, height: int, width: int) -> list[float]:
    """Every level with both signs, over and over."""
    every = [magnitude(name, level, sign, height, width) for level in range(10) for sign in (-1, 1)]
    return [every[i % len(every)] for i in range(n)]


@pytest.mark.parametrize("size", [(32, 32), (28, 28), (33, 47)])
@pytest.mark.parametrize("name", NAMES)
def test_an_operation_equals_pillows_on_every_image(name: str, size: tuple[int, int]) -> None:
    images = photographs(*size, n=96)
    values = magnitudes(name, len(images), *size)
    np.testing.assert_array_equal(from_odst(name, images, values), from_pillow(name, images, values))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("file", ["cifar10_test", "svhn_test"])
def test_an_operation_equals_pillows_on_real_images(name: str, file: str, real_data: Path) -> None:
    rows = pq.read_table(real_data / f"{file}.parquet", columns=["image"]).slice(0, 300).to_pylist()
    images = np.stack([np.asarray(Image.open(io.BytesIO(row["image"]["bytes"])).convert("RGB")) for row in rows])
    values = magnitudes(name, len(images), 32, 32)
    np.testing.assert_array_equal(from_odst(name, images, values), from_pillow(name, images, values))


@pytest.mark.parametrize("name", ["Brightness", "Color", "Contrast", "Sharpness"])
def test_an_enhancement_equals_pillows_at_any_factor(name: str) -> None:
    images = photographs(32, 32, n=60)
    values = list(np.random.default_rng(1).uniform(-0.5, 3, len(images)))
    np.testing.assert_array_equal(from_odst(name, images, values), from_pillow(name, images, values))


@pytest.mark.parametrize("name", ["ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate"])
def test_a_map_equals_pillows_at_any_magnitude(name: str) -> None:
    images = photographs(32, 40, n=60)
    reach = {"Shear": 1, "Trans": 50, "Rotat": 360}[name[:5]]
    values = list(np.random.default_rng(2).uniform(-reach, reach, len(images)))
    if name.startswith("Translate"):  # Pillow moves by fractions in float64: a pixel's centre is never on an edge
        values = [round(value * 8) / 8 + 1 / 16 for value in values]
    np.testing.assert_array_equal(from_odst(name, images, values), from_pillow(name, images, values))


def test_rows_with_different_operations_do_not_touch_each_other() -> None:
    images = photographs(32, 32, n=200)
    generator = torch.Generator().manual_seed(3)
    code = torch.randint(NOTHING + 1, (len(images),), generator=generator)
    names = [*NAMES, "nothing"]
    values = [magnitude(names[c], 7, 1, 32, 32) for c in code.tolist()]
    fill = torch.tensor(FILL, dtype=torch.uint8)
    together = operate(torch.from_numpy(images), code, torch.tensor(values, dtype=torch.float64), fill).numpy()
    for image, c, value, out in zip(images, code.tolist(), values, together, strict=True):
        alone = image if c == NOTHING else np.asarray(with_pillow(NAMES[c], Image.fromarray(image), value))
        np.testing.assert_array_equal(out, alone)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_whole_policy_equals_pillows_operations_in_sequence(policy: str) -> None:
    images = photographs(32, 32, n=300)
    code, values = AutoAugment(policy).draw(len(images), 32, 32, torch.Generator().manual_seed(4))
    expected = []
    for image, codes, levels in zip(images, code.tolist(), values.tolist(), strict=True):
        picture = Image.fromarray(image)
        for c, value in zip(codes, levels, strict=True):
            picture = picture if c == NOTHING else with_pillow(NAMES[c], picture, value)
        expected.append(np.asarray(picture))
    augment = augmenter([f"autoaugment:{policy}"], FILL)
    out = augment(torch.from_numpy(images).permute(0, 3, 1, 2), torch.Generator().manual_seed(4))
    np.testing.assert_array_equal(out.permute(0, 2, 3, 1).numpy(), np.stack(expected))


def test_the_published_policies_are_pinned() -> None:
    def fingerprint(policy: str) -> str:
        return hashlib.sha256(json.dumps(POLICIES[policy]).encode()).hexdigest()[:16]

    assert {name: len(policy) for name, policy in POLICIES.items()} == {"cifar10": 25, "svhn": 25, "imagenet": 25}
    # appendix of Cubuk et al. (2019), tables 7, 8 and 9: first and last sub-policy in words, all of them by their hash
    assert POLICIES["cifar10"][0] == (("Invert", 0.1, None), ("Contrast", 0.2, 6))
    assert POLICIES["cifar10"][24] == (("TranslateY", 0.7, 9), ("AutoContrast", 0.9, None))
    assert POLICIES["svhn"][0] == (("ShearX", 0.9, 4), ("Invert", 0.2, None))
    assert POLICIES["svhn"][24] == (("ShearX", 0.7, 2), ("Invert", 0.1, None))
    assert POLICIES["imagenet"][0] == (("Posterize", 0.4, 8), ("Rotate", 0.6, 9))
    assert POLICIES["imagenet"][24] == (("Equalize", 0.8, None), ("Equalize", 0.6, None))
    assert {name: fingerprint(name) for name in POLICIES} == PINNED


def test_policies_are_those_of_kornia() -> None:
    """An independent copy of the published tables, under other names."""
    kornia = pytest.importorskip("kornia.augmentation.auto.autoaugment.autoaugment")
    ours = {"color": "Color", "auto_contrast": "AutoContrast"}
    for name, policy in POLICIES.items():
        theirs = getattr(kornia, f"{name}_policy")
        renamed = [[(ours.get(op, op.title().replace("_", "")), p, level) for op, p, level in sub] for sub in theirs]
        assert [[*map(tuple, sub)] for sub in policy] == renamed


def test_magnitudes_are_the_published_ranges_in_ten_even_steps() -> None:
    def ends(name: str) -> list[float]:
        return [magnitude(name, level, sign, 331, 331) for level in (0, 9) for sign in (-1, 1)]

    assert ends("ShearX") == ends("ShearY") == pytest.approx([0, 0, -0.3, 0.3])
    assert ends("TranslateX") == ends("TranslateY") == [0, 0, -150, 150]
    assert ends("Rotate") == pytest.approx([0, 0, -30, 30])
    for name in ("Brightness", "Color", "Contrast", "Sharpness"):
        assert ends(name) == pytest.approx([1, 1, 0.1, 1.9])
    assert ends("Solarize") == pytest.approx([256, 256, 0, 0])
    assert ends("Posterize") == [8, 8, 4, 4]
    steps = [magnitude("Rotate", level, 1, 32, 32) for level in range(10)]
    assert np.diff(steps) == pytest.approx([30 / 9] * 9)
    assert magnitude("TranslateX", 9, 1, 32, 32) == 14  # 14.5 pixels of 32, in whole pixels


def test_level_0_leaves_the_image_as_it_is() -> None:
    images = photographs(32, 32, n=8)
    for name in set(NAMES) - {"Invert", "AutoContrast", "Equalize"}:
        values = [magnitude(name, 0, 1, 32, 32)] * len(images)
        np.testing.assert_array_equal(from_odst(name, images, values), images, err_msg=name)


def test_sub_policies_signs_and_operations_are_drawn_as_published() -> None:
    n = 200_000
    code, values = AutoAugment("cifar10").draw(n, 32, 32, torch.Generator().manual_seed(5))
    expected = np.zeros(NOTHING)
    for sub in POLICIES["cifar10"]:
        for name, probability, _ in sub:
            expected[NAMES.index(name)] += probability / 25
    share = torch.bincount(code.view(-1), minlength=NOTHING + 1)[:NOTHING].numpy() / n
    np.testing.assert_allclose(share, expected, atol=5 * math.sqrt(0.25 / n))
    down = values[code == NAMES.index("TranslateY")]
    assert (down > 0).double().mean() == pytest.approx(0.5, abs=0.01)
