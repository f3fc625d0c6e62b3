"""The bytes of one picture -> RGB at one size. What cannot be decoded is rejected with a reason, never fatal.

Settled here, once: EXIF orientation is applied; an animated picture is its first frame; transparency shows white, as on a
page; 16-bit values are divided by 257; palette, grey and CMYK become RGB. Resizing is Pillow's antialiased bicubic, and a
picture that has the wanted size already keeps its exact pixels.
"""

import io
import warnings
from contextlib import suppress
from functools import cache
from typing import Literal

import numpy as np
from PIL import Image, ImageOps

Fit = Literal["crop", "pad", "stretch"]

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF", "TIFF", "AVIF", "HEIF")
ENDINGS = ("jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff", "avif", "heic", "heif")  # of names of pictures
# The brands that a phone's pictures begin with, at byte 8, and the format that reads them
BRANDS = dict.fromkeys((b"avif", b"avis"), "AVIF")
BRANDS |= dict.fromkeys((b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"), "HEIF")
PHONE, BRING = "HEIC or AVIF", "pip install 'odst[heif]'"
HEAD = 132  # the bytes that say what a file is: DICOM's four letters are the last of them
WAYS = {  # out of a reason, for those who find it with many of their pictures
    PHONE: f"To read {PHONE}: {BRING}, and begin again.",
    "DICOM": "odst does not read DICOM: write PNGs first (docs/sources.md has the lines).",
}
PAD = (127, 127, 127)  # the bars of fit="pad": mid-grey says least to a network that subtracts the mean
MAX_PIXELS = 89_478_485  # Pillow's own limit: 256 MiB of RGB
MAX_BYTES = 1 << 28  # of one encoded picture
GAP = 3  # a JPEG is decoded at no less than 3 times the wanted size, then resized: indistinguishable and much faster
ORIENTATION = 0x0112


class Rejected(Exception):
    """One item that cannot be used. `reason` is one of few words to count by, `detail` says the rest."""

    def __init__(self, reason: str, detail: str = ""):
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail


def decode(data: bytes, size: int, fit: Fit = "crop", wanted: int | None = None) -> tuple[np.ndarray, int, int]:
    """(size, size, 3) uint8, and the width and height the picture had. Raises Rejected.

    `wanted` is the size that it must not fall short of more than fourfold, if that is another.
    """
    check_head(data[:HEAD], len(data))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of odd metadata; a bomb is caught below by its size
            with Image.open(io.BytesIO(data), formats=sorted(readable())) as opened:
                image: Image.Image = opened
                width, height = image.size
                _check_size(width, height, wanted or size, fit)
                if opened.format == "JPEG":
                    opened.draft(None, (GAP * size, GAP * size))
                image.load()
                orientation = (
                    image.getexif().get(ORIENTATION, 1) if "exif" in image.info or opened.format == "TIFF" else 1
                )
                if orientation != 1:
                    image = ImageOps.exif_transpose(image)
                    width, height = (height, width) if orientation in (5, 6, 7, 8) else (width, height)
                return np.asarray(resize(rgb(image), size, fit)), width, height
    except Rejected:
        raise
    except Image.DecompressionBombError as error:
        raise Rejected("too many pixels", str(error)) from None
    except Image.UnidentifiedImageError:
        raise Rejected("broken", "its header cannot be read") from None
    except MemoryError:
        raise Rejected("too many pixels", "out of memory") from None
    except Exception as error:  # a decoder's complaint about damaged bytes comes in any type
        reason = "truncated" if "truncated" in str(error).lower() else "broken"
        raise Rejected(reason, f"{type(error).__name__}: {error}") from None


def check_head(head: bytes, size: int) -> None:
    """Reject by the first HEAD bytes what cannot be a picture."""
    if size == 0:
        raise Rejected("empty", "zero bytes")
    if size > MAX_BYTES:
        raise Rejected("too many bytes", f"{size:,} bytes are more than {MAX_BYTES:,}")
    begins = (b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"BM", b"GIF8", b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
    if head[4:8] == b"ftyp" and head[8:12] in BRANDS:
        if BRANDS[head[8:12]] not in readable():
            raise Rejected(PHONE, f"pillow-heif is not installed, which reads it: {BRING}")
    elif not (head.startswith(begins) or (head[:4] == b"RIFF" and head[8:12] == b"WEBP")):
        if head[128:] == b"DICM":
            raise Rejected("DICOM", WAYS["DICOM"])
        raise Rejected("not an image", f"begins with {head[:16]!r}")


@cache
def readable() -> frozenset[str]:
    """The formats that can be read here: HEIC needs pillow-heif, AVIF that or a Pillow that was built with it."""
    with suppress(ImportError):
        import pillow_heif  # an extra of the user's

        pillow_heif.register_heif_opener()
        getattr(pillow_heif, "register_avif_opener", lambda: None)()
    Image.init()
    return frozenset(set(FORMATS) & set(Image.OPEN))


def _check_size(width: int, height: int, size: int, fit: Fit) -> None:
    if width * height > MAX_PIXELS:
        raise Rejected("too many pixels", f"{width}×{height} is more than {MAX_PIXELS:,} pixels")
    if 4 * (max if fit == "pad" else min)(width, height) < size:
        raise Rejected("too small", f"{width}×{height} would be enlarged more than fourfold to reach {size}")


def rgb(image: Image.Image) -> Image.Image:
    """Any mode -> RGB, 8 bits a channel."""
    if image.mode == "RGB" and "transparency" not in image.info:
        return image
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return Image.fromarray(_eight_bits(np.asarray(image))).convert("RGB")
    if image.mode in ("RGBA", "RGBa", "LA", "La", "PA") or "transparency" in image.info:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image.convert("RGB")


def _eight_bits(values: np.ndarray) -> np.ndarray:
    """16-bit integers, or floats in [0, 1], to 0..255."""
    top = 1.0 if values.dtype.kind == "f" else 65535.0
    if not (values.min() >= 0 and values.max() <= top):  # also true of NaN
        raise Rejected(
            "unknown range", f"{values.dtype} pixels from {values.min()} to {values.max()}, not 0 to {top:g}"
        )
    return np.rint(values * (255.0 / top)).astype(np.uint8)


def resize(image: Image.Image, size: int, fit: Fit) -> Image.Image:
    """RGB of any shape -> size×size: the middle square (crop), the whole with bars (pad), or squeezed (stretch)."""
    width, height = image.size
    if (width, height) == (size, size):
        return image
    if fit == "stretch":
        return image.resize((size, size), Image.Resampling.BICUBIC)
    if fit == "crop":
        side = min(width, height)
        left, top = (width - side) / 2, (height - side) / 2
        return image.resize((size, size), Image.Resampling.BICUBIC, box=(left, top, left + side, top + side))
    scale = size / max(width, height)
    inner = (max(1, round(width * scale)), max(1, round(height * scale)))
    canvas = Image.new("RGB", (size, size), PAD)
    canvas.paste(image.resize(inner, Image.Resampling.BICUBIC), ((size - inner[0]) // 2, (size - inner[1]) // 2))
    return canvas


def fit_array(row: np.ndarray, size: int, fit: Fit, wanted: int | None = None) -> np.ndarray:
    """A decoded (H, W), (H, W, 1) or (H, W, 3) uint8 array -> (size, size, 3). Raises Rejected, as `decode` does."""
    if row.ndim == 3 and row.shape[2] == 1:
        row = row[:, :, 0]
    if row.shape == (size, size, 3):
        return row
    _check_size(row.shape[1], row.shape[0], wanted or size, fit)
    return np.asarray(resize(Image.fromarray(np.ascontiguousarray(row)).convert("RGB"), size, fit))
