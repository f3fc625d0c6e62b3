"""The 15 corruptions: published numbers, properties of each, and the error under them."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage
from skimage import color, data

from odst.errors import UserError
from odst.evaluation.corruptions import corruption_errors, mean_corruption_error, published_corruption_errors
from odst.seeds import stream
from odst.vision.corruptions import CORRUPTIONS, LEVELS, blur, corrupt, corrupted_blocks, digital, parameters, weather
from odst.vision.corruptions.pixels import uint8, unit


@pytest.fixture(scope="module")
def pictures() -> np.ndarray:
    """60 crops of real pictures, 32×32."""
    rng = stream(0, "pictures")
    out = []
    for whole in (data.astronaut(), data.chelsea(), data.coffee(), data.rocket()):
        H, W = whole.shape[:2]
        for _ in range(15):
            side = int(rng.integers(150, 300))
            top, left = rng.integers(H - side), rng.integers(W - side)
            crop = Image.fromarray(whole[top : top + side, left : left + side])
            out.append(np.asarray(crop.resize((32, 32), Image.Resampling.BOX)))
    return np.stack(out)


@pytest.fixture(scope="module")
def distances(pictures: np.ndarray) -> dict[str, list[float]]:
    """Root mean squared distance to the clean pictures, in grey levels, per corruption and level."""
    clean = pictures.astype(np.float64)
    return {
        name: [float(np.sqrt(((corrupt(pictures, name, level, 0) - clean) ** 2).mean())) for level in LEVELS]
        for name in CORRUPTIONS
    }


def test_the_parameters_are_those_published_for_32_pixels() -> None:
    assert {name: parameters(name) for name in CORRUPTIONS} == {
        "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.10),
        "shot_noise": (500, 250, 100, 75, 50),
        "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),
        "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        "glass_blur": ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)),
        "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
        "zoom_blur": (1.06, 1.11, 1.16, 1.21, 1.26),
        "snow": (
            (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
            (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
            (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
            (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
        ),
        "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
        "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
        "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),
        "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
        "elastic_transform": (
            (0, 0, 0.08),
            (0.05, 0.2, 0.07),
            (0.08, 0.06, 0.06),
            (0.1, 0.04, 0.05),
            (0.1, 0.03, 0.03),
        ),
        "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),
        "jpeg_compression": (80, 65, 58, 50, 40),
    }


# Three published rows of parameters trade one harm for another from level to level (more smoothing for less shuffling,
# a darker image for more frost, less jitter for more waves); they are held to their definitions below.
@pytest.mark.parametrize("name", [n for n in CORRUPTIONS if n not in ("glass_blur", "frost", "elastic_transform")])
def test_each_level_is_further_from_the_picture_than_the_one_before(
    name: str, distances: dict[str, list[float]]
) -> None:
    steps = np.diff(distances[name])
    assert (steps > (-0.1 if name == "motion_blur" else 0)).all(), distances[name]  # its levels 3 and 4 share a sigma
    assert distances[name][4] > 1.3 * distances[name][0]


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_same_seed_gives_the_same_bytes_and_streaming_changes_nothing(name: str, pictures: np.ndarray) -> None:
    many = np.concatenate([pictures] * 5)  # more than one block
    once = np.concatenate(list(corrupted_blocks(many, name, 3, 7)))
    assert once.dtype == np.uint8
    assert once.shape == many.shape
    assert (corrupt(many, name, 3, 7) == once).all()
    is_random = name not in ("defocus_blur", "zoom_blur", "brightness", "contrast", "pixelate", "jpeg_compression")
    assert (corrupt(pictures, name, 3, 8) != corrupt(pictures, name, 3, 7)).any() == is_random
    assert (once[:20] != once[240:260]).any() == is_random  # the same pictures later on: other noise


@pytest.mark.parametrize("shape", [(9, 12), (28, 28), (64, 48), (100, 100)])
def test_every_size_of_picture_is_corrupted_at_every_level(shape: tuple[int, int]) -> None:
    x = stream(0, "sizes").integers(0, 256, (2, *shape, 3), dtype=np.uint8)
    before = x.copy()
    for name in CORRUPTIONS:
        for level in LEVELS:
            y = corrupt(x, name, level, 0)
            assert y.shape == x.shape
            assert y.dtype == np.uint8
    assert (x == before).all()


def test_noise_has_the_published_spread() -> None:
    grey = np.full((200, 32, 32, 3), 128, np.uint8)
    for level, deviation in zip(LEVELS, parameters("gaussian_noise"), strict=True):
        change = corrupt(grey, "gaussian_noise", level, 0).astype(float) - 128
        assert change.mean() == pytest.approx(-0.5, abs=0.2)  # cut, not rounded
        assert change.std() == pytest.approx(255 * deviation, rel=0.01)
    for level, photons in zip(LEVELS, parameters("shot_noise"), strict=True):
        change = corrupt(grey, "shot_noise", level, 0).astype(float) - 128
        assert change.std() == pytest.approx(255 * np.sqrt(128 / 255 / photons), rel=0.03)
    for level, share in zip(LEVELS, parameters("impulse_noise"), strict=True):
        y = corrupt(grey, "impulse_noise", level, 0)
        assert (y == 0).mean() == pytest.approx(share / 2, rel=0.05)
        assert (y == 255).mean() == pytest.approx(share / 2, rel=0.05)
        assert ((y == 0) | (y == 128) | (y == 255)).all()


def test_jpeg_and_pixelation_are_pillows(pictures: np.ndarray) -> None:
    for level in LEVELS:
        file = BytesIO()
        Image.fromarray(pictures[5]).save(file, "JPEG", quality=parameters("jpeg_compression")[level - 1])
        assert (corrupt(pictures, "jpeg_compression", level, 0)[5] == np.asarray(Image.open(file))).all()
        side = int(32 * parameters("pixelate")[level - 1])
        small = Image.fromarray(pictures[5]).resize((side, side), Image.Resampling.BOX)
        expected = np.asarray(small.resize((32, 32), Image.Resampling.BOX))
        assert (corrupt(pictures, "pixelate", level, 0)[5] == expected).all()


def test_brightness_adds_to_the_value_of_hsv(pictures: np.ndarray) -> None:
    for level, more in zip(LEVELS, parameters("brightness"), strict=True):
        hsv = color.rgb2hsv(pictures / 255)
        hsv[..., 2] = np.clip(hsv[..., 2] + more, 0, 1)
        assert np.abs(corrupt(pictures, "brightness", level, 0) - np.floor(color.hsv2rgb(hsv) * 255)).max() <= 1
    black = np.zeros((1, 32, 32, 3), np.uint8)
    assert (corrupt(black, "brightness", 5, 0) == int(0.3 * 255)).all()


def test_contrast_keeps_the_mean_and_shrinks_the_spread(pictures: np.ndarray) -> None:
    for level, factor in zip(LEVELS, parameters("contrast"), strict=True):
        y = corrupt(pictures, "contrast", level, 0)
        assert y.mean(axis=(1, 2)) == pytest.approx(pictures.mean(axis=(1, 2)), abs=1.01)
        assert y.std(axis=(1, 2)) == pytest.approx(factor * pictures.std(axis=(1, 2)), abs=0.5)


def test_defocus_spreads_a_point_over_the_softened_disk() -> None:
    point = np.zeros((1, 33, 33, 3), np.uint8)
    point[0, 16, 16] = 255
    y = corrupt(point[:, :32, :32], "defocus_blur", 5, 0)[0, ..., 0]  # radius 1.5: the nine pixels around
    assert (y[15:18, 15:18] == int(255 / 9)).all()
    assert y.sum() == 9 * int(255 / 9)
    y = corrupt(point[:, :32, :32], "defocus_blur", 4, 0)[0, ..., 0]  # radius 1: a cross
    assert (y[16, 15:18] == int(255 / 5)).all()
    soft = np.exp(-1 / (2 * 0.4**2))  # radius 0.3: a Gaussian of sigma 0.4 within one pixel
    y = corrupt(point[:, :32, :32], "defocus_blur", 1, 0)[0, ..., 0]
    assert y[16, 16] == int(255 / (1 + 2 * soft) ** 2)
    assert y[16, 17] == int(255 * soft / (1 + 2 * soft) ** 2)


def test_glass_takes_each_colour_from_its_upper_left_neighbourhood() -> None:
    """Walking from the lower right and copying, as published, equals one gather; level 1 has no smoothing to speak of."""
    rows, columns = np.meshgrid(np.arange(32), np.arange(32), indexing="ij")
    address = np.stack([rows, columns, np.zeros_like(rows)], axis=-1).astype(np.uint8)
    y = corrupt(np.repeat(address[None], 100, 0), "glass_blur", 1, 0).astype(int)
    down, right = y[..., 0] - rows, y[..., 1] - columns
    assert (down[:, :2] == 0).all()
    assert (right[:, :, :2] == 0).all()
    inner_down, inner_right = down[:, 2:, 2:], right[:, 2:, 2:]
    assert set(np.unique(inner_down)) == set(np.unique(inner_right)) == {-1, 0}
    assert inner_down.mean() == pytest.approx(-0.5, abs=0.01)
    assert np.corrcoef(inner_down.ravel(), inner_right.ravel())[0, 1] == pytest.approx(0, abs=0.01)
    twice = corrupt(np.repeat(address[None], 100, 0), "glass_blur", 4, 0).astype(int)[..., 0] - rows
    assert twice[:, 4:, 4:].mean() == pytest.approx(-1, abs=0.3)  # two passes go twice as far


def test_motion_smears_a_point_along_half_a_gaussian() -> None:
    point = np.zeros((1, 32, 32, 1), np.float32)
    point[0, 16, 20] = 1
    weights = np.exp(-(np.arange(13) ** 2) / 2)
    weights /= weights.sum()
    y = blur.smear(point, 6, 1, np.array([0.0]))[0, ..., 0]
    assert y[16, 20:14:-1] == pytest.approx(weights[:6], abs=1e-4)
    assert y[np.arange(32) != 16].sum() == 0
    y = blur.smear(point, 6, 1, np.array([90.0]))[0, ..., 0]
    assert y[16:10:-1, 20] == pytest.approx(weights[:6], abs=1e-4)


def test_motion_leaves_a_plain_picture_alone() -> None:
    for level in LEVELS:
        assert (corrupt(np.full((8, 32, 32, 3), 200, np.uint8), "motion_blur", level, 0) == 200).all()


def test_zoom_is_scipys_zoom_of_the_middle(pictures: np.ndarray) -> None:
    x = pictures[3] / 255
    for factor in (1.0, 1.03, 1.25, 1.75):
        crop = int(np.ceil(32 / factor))
        top = (32 - crop) // 2
        large = ndimage.zoom(x[top : top + crop, top : top + crop], (factor, factor, 1), order=1)
        trim = (len(large) - 32) // 2
        expected = large[trim : trim + 32, trim : trim + 32]
        assert blur.zoom(x[None].astype(np.float32), (factor,))[0] == pytest.approx(expected, abs=1e-5)


def test_elastic_waves_are_those_of_map_coordinates(pictures: np.ndarray) -> None:
    u = unit(pictures[:2])
    places = np.stack(np.meshgrid(np.arange(32.0), np.arange(32.0)), axis=-1) + stream(0, "waves").normal(
        0, 3, (2, 32, 32, 2)
    )
    for about_centres, mode in ((True, "mirror"), (False, "reflect")):
        ours = digital._sample(u, places, about_centres=about_centres)
        for j in range(2):
            for channel in range(3):
                theirs = ndimage.map_coordinates(
                    u[j, ..., channel], [places[j, ..., 1], places[j, ..., 0]], order=1, mode=mode
                )
                assert ours[j, ..., channel] == pytest.approx(theirs, abs=1e-4)


def test_elastic_jitter_shrinks_and_waves_grow_with_the_level(pictures: np.ndarray) -> None:
    still = digital.elastic_transform(pictures, (0, 0, 0), stream(0, "still"))
    assert np.abs(still.astype(int) - pictures).max() <= 1
    far, near = (digital.elastic_transform(pictures, (0, 0, jitter), stream(0, "j")) for jitter in (0.08, 0.03))
    assert np.abs(far.astype(int) - pictures).mean() > np.abs(near.astype(int) - pictures).mean()
    rough, smooth = (digital.elastic_transform(pictures, (0.1, s, 0), stream(0, "s")) for s in (0.03, 0.05))
    assert np.abs(rough.astype(int) - pictures).mean() > np.abs(smooth.astype(int) - pictures).mean()


def test_frost_is_a_weighted_sum_of_picture_and_texture() -> None:
    black = np.zeros((50, 32, 32, 3), np.uint8)
    texture = weather.frost_texture(1)
    assert texture.shape == (256, 256, 3)
    for level, (keep, add) in zip(LEVELS, parameters("frost"), strict=True):
        y = corrupt(black, "frost", level, 0)
        assert y.mean() == pytest.approx(255 * add * texture.mean(), rel=0.1)
        grey = corrupt(black + 100, "frost", level, 0).astype(int) - y
        assert np.abs(grey - 100 * keep).max() <= 1
    seam = np.abs(texture[0] - texture[-1]).mean()
    assert seam < 1.5 * np.abs(np.diff(texture, axis=0)).mean()


def test_fog_lies_between_its_bounds_and_drifts_smoothly() -> None:
    clouds = weather.plasma(20, 32, 3, stream(0, "fog"))
    assert (clouds.min(axis=(1, 2)) == 0).all()
    assert (clouds.max(axis=(1, 2)) == 1).all()
    rough = weather.plasma(20, 32, 1.75, stream(0, "fog"))
    steps = [np.abs(np.diff(c, axis=1)).mean() for c in (clouds, rough)]
    assert steps[0] < 0.8 * steps[1]  # a faster decay leaves less of the small scales
    white = np.full((4, 32, 32, 3), 255, np.uint8)
    y = corrupt(white, "fog", 5, 0)
    assert y.max(axis=(1, 2, 3)) == pytest.approx(255, abs=0)  # where the cloud is thickest
    assert y.min(axis=(1, 2, 3)) == pytest.approx(int(255 / 2.5), abs=0)  # where there is none: x max / (max + c)


def test_snow_falls_white_and_symmetric_under_half_a_turn() -> None:
    black = np.zeros((20, 32, 32, 3), np.uint8)
    y = corrupt(black, "snow", 4, 0).astype(int)
    assert (y == y[:, ::-1, ::-1]).all()
    assert (y[..., 0] == y[..., 2]).all()
    assert (y >= int(0.15 * 0.5 * 255)).all()  # the haze on black: (1 - 0.85) (0 + 0.5)


def test_whole_numbers_survive_the_way_through_shares() -> None:
    every = np.arange(256, dtype=np.uint8)
    assert (uint8(unit(every)) == every).all()


# --- the error under corruption


def darker(block: np.ndarray) -> np.ndarray:
    """A classifier that tells dark pictures (0) from bright ones (1)."""
    return (block.mean(axis=(1, 2, 3)) > 127).astype(np.int64)


def test_the_mean_corruption_error_is_the_plain_mean_over_75_sets(pictures: np.ndarray) -> None:
    few = pictures[::2]
    y = darker(few)
    errors = corruption_errors(darker, few, y, seed=1)
    for name, level in (("gaussian_noise", 1), ("snow", 3), ("brightness", 5)):
        expected = (darker(corrupt(few, name, level, 1)) != y).mean()
        assert errors[CORRUPTIONS.index(name), LEVELS.index(level)] == expected
    assert errors.max() > 0.1
    assert mean_corruption_error(darker, few, y, seed=1) == pytest.approx(errors.sum() / 75, abs=1e-15)


def write_published(folder: Path, n: int = 6) -> np.ndarray:
    """CIFAR-C in small: level j of corruption i has its first (i + j) % n pictures of the other brightness."""
    y = np.arange(n) % 2
    expected = np.empty((15, 5))
    for i, name in enumerate(CORRUPTIONS):
        images = np.empty((5, n, 32, 32, 3), np.uint8)
        for j in range(5):
            flip = np.arange(n) < (i + j) % n
            images[j] = np.where(y ^ flip, 200, 50)[:, None, None, None]
            expected[i, j] = flip.mean()
        np.save(folder / f"{name}.npy", images.reshape(-1, 32, 32, 3))
    np.save(folder / "labels.npy", np.tile(y, 5).astype(np.uint8))
    return expected


def test_published_files_are_read_as_they_are(tmp_path: Path) -> None:
    expected = write_published(tmp_path)
    assert published_corruption_errors(darker, tmp_path) == pytest.approx(expected, abs=0)


def test_published_files_that_do_not_fit_are_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"16 of the 16 files.*gaussian_noise\.npy first"):
        published_corruption_errors(darker, tmp_path)
    write_published(tmp_path)
    np.save(tmp_path / "fog.npy", np.zeros((7, 32, 32, 3), np.uint8))
    with pytest.raises(UserError, match=r"fog\.npy: expected 30 uint8 images"):
        published_corruption_errors(darker, tmp_path)
    (tmp_path / "gaussian_noise.npy").write_bytes(b"no array")
    with pytest.raises(UserError, match=r"gaussian_noise\.npy: not a readable .npy array"):
        published_corruption_errors(darker, tmp_path)
    np.save(tmp_path / "labels.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(UserError, match=r"labels\.npy: "):
        published_corruption_errors(darker, tmp_path)


def test_unknown_names_levels_and_features_are_refused() -> None:
    x = np.zeros((1, 32, 32, 3), np.uint8)
    with pytest.raises(UserError, match=r"there is no 'rain'\. Choose one of gaussian_noise"):
        corrupt(x, "rain", 1, 0)
    with pytest.raises(UserError, match="6 is not one of"):
        corrupt(x, "fog", 6, 0)
    with pytest.raises(UserError, match="corruptions change pictures"):
        corrupt(np.zeros((4, 16), np.float32), "fog", 1, 0)


def test_no_pictures_make_no_corrupted_pictures() -> None:
    assert corrupt(np.empty((0, 32, 32, 3), np.uint8), "snow", 3, 0).shape == (0, 32, 32, 3)
