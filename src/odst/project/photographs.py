"""A look at the pictures of a new project: how large they are, and whether a pretrained backbone should see them."""

import io
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from odst.data.decoding import WAYS, Fit, Rejected, readable
from odst.data.formats.folders import Folder
from odst.data.formats.tables import PathList
from odst.data.formats.tars import Tar
from odst.data.items import Item, Source
from odst.data.pool import original_sizes
from odst.data.sources import open_sources, packed_pool
from odst.errors import UserError
from odst.run.config import ModelSection
from odst.vision.backbones import DEFAULT, open_backbone

LOOKED_AT, FEW = 200, 10  # pictures, so many at a place
DEEP = 20  # pictures of 16 bits that are looked into
DARK = 1 << 14  # of 65,536: pictures that stay below are left with a quarter of the greys, or less
LARGE = 64  # pixels of the shorter side from which on a picture is worth more than a small network makes of it
GAIN = (  # the table of docs/embeddings.md
    "With 20 labelled photographs of each of four classes odst made 41.8 % errors so, and 12.5 % to 15.2 % on a backbone's vectors "
    "(docs/embeddings.md)."
)
PART = {"crop": "middle only", "pad": "with bars", "stretch": "squeezed"}


def typical_size(specs: list[str]) -> tuple[int, int] | None:
    """Median width and height of pictures from all over a set; None for vectors, and where none of them can be read.

    Pictures of 16 bits that use so few of them that they would come out black are refused."""
    if len(specs) == 1 and (path := packed_pool(specs[0])) is not None:
        common, _ = original_sizes(path, 1)[0]
        width, _, height = common.partition("×")
        return (int(width), int(height)) if height.isdigit() and int(height) > 1 else None
    sources = open_sources(specs)
    if sources[0].width is not None:
        return None
    sizes: list[tuple[int, int]] = []
    brightest: list[int] = []
    for item in _spread(sources):
        try:
            data = item.read()
            if isinstance(data, np.ndarray):
                sizes.append((data.shape[1], data.shape[0]))
            else:
                with Image.open(io.BytesIO(data), formats=sorted(readable())) as picture:
                    sizes.append(picture.size)
                    if (picture.mode == "I" or picture.mode.startswith("I;16")) and len(brightest) < DEEP:
                        brightest.append(int(np.asarray(picture).max()))
        except (Rejected, OSError, UnidentifiedImageError, Image.DecompressionBombError):
            continue  # packing will name it, with the reason
    if brightest and max(brightest) < DARK:
        raise UserError(
            f"{', '.join(specs)}: pictures of 16 bits whose brightest value is {max(brightest):,}. odst takes 65,535 for white, so they "
            "would come out black: write them with 8 bits first, all by one factor (docs/sources.md has the lines)."
        )
    if not sizes:
        return None
    width, height = np.median(np.array(sizes), axis=0).astype(int).tolist()
    return width, height


def _spread(sources: Sequence[Source]) -> Iterator[Item]:
    """A few items at each of some places at even distances: folders are read in order, and what stands first in one need not be
    like the rest."""
    counts = [source.count() for source in sources]
    places = np.unique(np.linspace(0, max(0, sum(counts) - FEW), LOOKED_AT // FEW).astype(int))
    before = 0
    for source, count in zip(sources, counts, strict=True):
        starts = (places[(places >= before) & (places < before + count)] - before).tolist()
        before += count
        if isinstance(source, Folder | PathList | Tar):  # which can only be walked, but walking reads no picture
            walk = (item for part in source.parts(0, 1024) for item in part)
            wanted = {place + i for place in starts for i in range(FEW)}
            yield from (item for place, item in enumerate(walk) if place in wanted)
        else:
            yield from (item for start in starts for item in islice(next(iter(source.parts(start, FEW)), ()), FEW))


def holds_vectors(specs: list[str]) -> bool:
    return open_sources(specs)[0].width is not None


def is_large(size: tuple[int, int] | None) -> bool:
    return size is not None and min(size) >= LARGE


def describe(size: tuple[int, int], packed: int, fit: Fit, backbone: str | None) -> str:
    kept = f"packed at {packed}×{packed}" if backbone is None else f"packed at {packed}×{packed} for pages to show"
    return f"median picture {size[0]}×{size[1]}, {PART[fit]} (fit = {fit!r}), {kept}"


def describe_rejected(rejected: dict[str, int], pool: Path) -> list[str]:
    """What of the pool could not be used, and what would read it."""
    if not rejected:
        return []
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in sorted(rejected.items(), key=lambda kv: -kv[1]))
    said = f"not in the pool: {sum(rejected.values()):,} ({reasons}); {pool / 'rejected.parquet'} lists them"
    return [". ".join([said, *(way.rstrip(".") for reason, way in WAYS.items() if reason in rejected)])]


def choose_backbone(size: tuple[int, int] | None, asked: str | None, vectors: bool) -> tuple[str | None, list[str]]:
    """The backbone to take, None for pixels, and what to tell of it."""
    if asked is not None and not asked.strip():
        raise UserError("--backbone: an empty text names none. Give a spec, none for pixels, or leave the option out.")
    if asked == "none" or (asked is None and not is_large(size)):
        return None, []
    if vectors and asked is not None:
        raise UserError(f"--backbone: {asked} embeds pictures, and the pool holds vectors already. Leave it out.")
    try:
        identity = open_backbone(asked or DEFAULT).identity
    except UserError as error:
        if asked is not None:
            raise
        return None, [f"No backbone: the network learns from pixels. {GAIN} {error}"]
    spec = ModelSection(backbone=asked or DEFAULT).located(Path.cwd()).backbone  # a file is found from anywhere
    return spec, [f"the network sees vectors of {identity}"]
