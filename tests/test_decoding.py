import io
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, features

from odst.data.decoding import MAX_PIXELS, Rejected, decode, fit_array
from pictures import bomb, encoded, picture


def saved(image: Image.Image, format: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


def rejection(data: bytes, size: int = 32) -> str:
    with pytest.raises(Rejected) as caught:
        decode(data, size)
    return caught.value.reason


def test_a_picture_of_the_wanted_size_keeps_its_exact_pixels() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    for format, options in {"PNG": {}, "BMP": {}, "TIFF": {}, "WEBP": {"lossless": True}}.items():
        row, width, height = decode(saved(Image.fromarray(pixels), format, **options), 32)
        assert (row == pixels).all()
        assert (width, height) == (32, 32)


@pytest.mark.parametrize("mode", ["L", "1", "CMYK", "P", "RGB"])
def test_every_mode_becomes_rgb(mode: str) -> None:
    colour = (255, 255, 255) if mode in ("L", "1") else (204, 102, 51)  # one of the web palette
    flat = Image.new("RGB", (32, 32), colour).convert(mode)
    row, _, _ = decode(saved(flat, "TIFF"), 32)
    assert np.abs(row.astype(int) - colour).max() <= 1


def test_a_cmyk_jpeg_has_the_colours_of_its_rgb_twin() -> None:
    image = Image.new("RGB", (64, 64), (200, 100, 50))
    row, _, _ = decode(saved(image.convert("CMYK"), "JPEG", quality=95), 32)
    assert np.abs(row.astype(int) - (200, 100, 50)).max() <= 6


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_sixteen_bits_are_scaled_to_eight(format: str) -> None:
    ramp = np.linspace(0, 65535, 32 * 32).astype(np.uint16).reshape(32, 32)
    row, _, _ = decode(saved(Image.fromarray(ramp), format), 32)
    assert (row[:, :, 0] == np.rint(ramp / 257)).all()
    assert (row[:, :, 0] == row[:, :, 2]).all()


def test_floats_in_the_unit_interval_are_scaled_and_others_rejected() -> None:
    ramp = np.linspace(0, 1, 32 * 32, dtype=np.float32).reshape(32, 32)
    row, _, _ = decode(saved(Image.fromarray(ramp), "TIFF"), 32)
    assert (row[:, :, 0] == np.rint(ramp * 255)).all()
    assert rejection(saved(Image.fromarray(ramp * 1000), "TIFF")) == "unknown range"


def test_transparency_shows_white() -> None:
    glass = Image.new("RGBA", (32, 32), (255, 0, 0, 0))
    half = Image.new("RGBA", (32, 32), (255, 0, 0, 128))
    assert (decode(saved(glass, "PNG"), 32)[0] == 255).all()
    assert np.abs(decode(saved(half, "WEBP", lossless=True), 32)[0].astype(int) - (255, 127, 127)).max() <= 1
    palette = Image.new("P", (32, 32), 0)
    palette.putpalette([255, 0, 0, 0, 255, 0])
    assert (decode(saved(palette, "GIF", transparency=0), 32)[0] == 255).all()


def test_an_animation_is_its_first_frame() -> None:
    frames = [Image.new("RGB", (32, 32), colour) for colour in ("red", "blue")]
    assert (decode(saved(frames[0], "GIF", save_all=True, append_images=frames[1:]), 32)[0] == (255, 0, 0)).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_honoured(orientation: int) -> None:
    """A picture stored turned, with a note how to hold it, reads as the picture held so."""
    upright = np.zeros((48, 64, 3), np.uint8)
    upright[:24, :32] = (255, 0, 0)  # the upper left quarter
    turn = {2: 0, 3: 3, 4: 1, 5: 5, 6: 2, 7: 6, 8: 4}  # Transpose members that undo what the orientation applies
    stored = Image.fromarray(upright)
    if orientation != 1:
        stored = stored.transpose(Image.Transpose(turn[orientation]))
    exif = Image.Exif()
    exif[0x0112] = orientation
    row, width, height = decode(saved(stored, "JPEG", quality=100, exif=exif), 32, "stretch")
    assert (width, height) == (64, 48)
    corners = row[[2, 2, 29, 29], [2, 29, 2, 29], 0]
    assert (corners > 128).tolist() == [True, False, False, False]


def test_crop_takes_the_middle_pad_the_whole_and_stretch_squeezes() -> None:
    wide = np.zeros((32, 96, 3), np.uint8)
    wide[:, 32:64] = 200
    data = saved(Image.fromarray(wide), "PNG")
    assert (decode(data, 32, "crop")[0] == 200).all()
    padded = decode(data, 32, "pad")[0]
    assert (padded[:10] == 127).all()
    assert (padded[16, :9] == 0).all()
    stretched = decode(data, 32, "stretch")[0]
    assert (stretched[:, 14:18] == 200).all()
    assert (stretched[:, :8] == 0).all()


def test_shrinking_averages_instead_of_dropping_pixels() -> None:
    board = np.indices((256, 256)).sum(0) % 2 * 255
    row, _, _ = decode(saved(Image.fromarray(board.astype(np.uint8)), "PNG"), 32)
    assert np.abs(row.astype(int) - 127).max() <= 3


def test_a_large_jpeg_decoded_small_looks_like_one_decoded_whole() -> None:
    large = Image.fromarray(picture(1, 512, 512))
    data = saved(large, "JPEG", quality=90)
    whole = np.asarray(Image.open(io.BytesIO(data)).resize((32, 32), Image.Resampling.BICUBIC)).astype(int)
    assert np.abs(decode(data, 32)[0] - whole).max() <= 2


def test_damage_is_rejected_with_its_reason() -> None:
    data = saved(Image.fromarray(picture(0, 256, 256)), "JPEG")
    assert rejection(data[: len(data) // 2]) == "truncated"
    assert rejection(data[:100]) in ("truncated", "broken")
    assert rejection(encoded(0)[:-40]) in ("truncated", "broken")
    assert rejection(b"just text") == "not an image"
    assert rejection(b"") == "empty"
    narrow = saved(Image.new("L", (7, 100)), "PNG")
    assert rejection(narrow) == "too small"
    assert decode(narrow, 32, "pad")[0].shape == (32, 32, 3)  # the whole of it is not enlarged


def test_a_decompression_bomb_is_rejected_before_it_is_decoded() -> None:
    assert rejection(bomb(40_000, 40_000)) == "too many pixels"
    assert rejection(bomb(MAX_PIXELS // 1000 + 1, 1000)) == "too many pixels"


def test_arrays_are_fitted_as_pictures_are() -> None:
    grey = np.arange(64 * 64, dtype=np.uint8).reshape(64, 64)
    twin = np.repeat(grey[:, :, None], 3, axis=2)
    assert (fit_array(grey[:, :, None], 32, "crop") == fit_array(twin, 32, "crop")).all()
    assert fit_array(twin, 64, "crop") is twin


def photograph(**options: object) -> tuple[np.ndarray, bytes]:
    x = np.linspace(0, 255, 40 * 40 * 3).reshape(40, 40, 3).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(x).save(file, **options)
    return x, file.getvalue()


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow was built without AVIF")
def test_an_avif_picture_is_read() -> None:
    x, data = photograph(format="AVIF", quality=95)
    assert np.abs(decode(data, 40)[0].astype(int) - x).mean() < 4


def test_a_phones_heic_picture_is_read_where_pillow_heif_is_installed() -> None:
    pytest.importorskip("pillow_heif", reason="pillow-heif is not installed").register_heif_opener()
    x, data = photograph(format="HEIF", quality=95)
    assert np.abs(decode(data, 40)[0].astype(int) - x).mean() < 4


def test_a_heic_picture_that_cannot_be_read_says_what_would_read_it() -> None:
    script = (
        "import sys; sys.modules['pillow_heif'] = None\n"  # as where it is not installed
        "from odst.data.decoding import Rejected, check_head\n"
        "try:\n    check_head(b'\\0\\0\\0\\x18ftypheic\\0\\0\\0\\0', 99)\n"
        "except Rejected as error:\n    print(error.reason, '|', error.detail)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("HEIC or AVIF | ") and "pip install 'odst[heif]'" in done.stdout
