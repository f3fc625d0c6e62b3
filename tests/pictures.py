"""Pictures for tests, each different and each the same every time."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image


def picture(i: int, width: int = 40, height: int = 32) -> np.ndarray:
    """Smooth, so that JPEG and resizing keep it recognisable."""
    rng = np.random.default_rng(i)
    small = Image.fromarray(rng.integers(0, 256, (4, 4, 3), dtype=np.uint8))
    return np.asarray(small.resize((width, height), Image.Resampling.BICUBIC))


def encoded(i: int, format: str = "PNG", **options: object) -> bytes:
    file = io.BytesIO()
    Image.fromarray(picture(i)).save(file, format, **options)
    return file.getvalue()


def folder_of(path: Path, n: int, classes: tuple[str, ...] = (), start: int = 0) -> Path:
    """n PNGs 00000.png ..., spread over subfolders if there are classes."""
    for i in range(n):
        file = path / (classes[i % len(classes)] if classes else "") / f"{i:05d}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encoded(start + i))
    return path


def bomb(width: int, height: int) -> bytes:
    """A PNG of few bytes that unpacks to width×height pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    pixels = zlib.compress(bytes(100_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")
