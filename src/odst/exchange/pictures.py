"""The selected images as picture files: the originals where they can still be read, else the pixels that the pool holds."""

import io
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from PIL import Image

from odst.data.addresses import file_of, read_originals
from odst.data.decoding import Fit, Rejected, decode, readable
from odst.data.images import Pool
from odst.data.pictures import ByAddress
from odst.errors import UserError

ALIKE = 8.0  # levels of 255: how far the stored pixels of one picture may be from those decoded now, on average
FITS: tuple[Fit, ...] = ("crop", "pad", "stretch")
ENDINGS = {"JPEG": "jpg", "MPO": "jpg", "TIFF": "tif", "HEIF": "heic"}  # others are their format's name


@dataclass(frozen=True)
class Picture:
    """One selected image as a file to be written."""

    row: int  # of the selection
    data: bytes
    ending: str  # of its name, without the dot
    original: bool  # as it came; else the pool's pixels as PNG
    path: bytes | None  # of the original, where that is a file by itself


def pictures_of(table: pa.Table, pool: Pool) -> Iterator[Picture]:
    """Every row of a selection once, in the order of the addresses."""
    uris = ["" if uri is None else str(uri) for uri in table["source"].to_pylist()]
    ids = table["pool_id"].to_numpy()
    packed = None if isinstance(pool.shown, ByAddress) else pool.shown
    for row, found in read_originals(uris):
        stored = None if packed is None else packed[ids[row : row + 1]][0]
        if found is not None and _same(found, stored):
            data = found if isinstance(found, bytes) else png(_rgb(found))
            if (ending := _ending(data)) is not None:
                yield Picture(row, data, ending, True, file_of(uris[row]) if isinstance(found, bytes) else None)
                continue
        if stored is None:
            raise UserError(
                f"{uris[row] or 'pool id ' + str(ids[row])}: this picture cannot be read, and the pool holds vectors only. "
                "Put it back, or take --to csv or --to parquet, which need no pictures."
            )
        yield Picture(row, png(stored), "png", False, None)


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
    return file.getvalue()


def _rgb(row: np.ndarray) -> np.ndarray:
    row = row[..., None] if row.ndim == 2 else row
    return np.repeat(row, 3, axis=2) if row.shape[2] == 1 else row


def _same(found: bytes | np.ndarray, stored: np.ndarray | None) -> bool:
    """Whether what stands at the address is still the picture that was packed. A pool of vectors has no pixels to go by."""
    if isinstance(found, np.ndarray) and found.ndim not in (2, 3):
        return False  # a vector
    if stored is None:
        return True
    side, data = stored.shape[0], found if isinstance(found, bytes) else png(_rgb(found))
    for fit in FITS:
        try:
            now = decode(data, side, fit)[0]
        except Rejected:
            return False
        if np.abs(now.astype(np.int16) - stored).mean() <= ALIKE:
            return True
    return False


def _ending(data: bytes) -> str | None:
    try:
        with Image.open(io.BytesIO(data), formats=sorted(readable())) as image:
            kind = str(image.format)
    except Exception:  # a decoder's complaint comes in any type
        return None
    return ENDINGS.get(kind, kind.lower())
