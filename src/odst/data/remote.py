"""Sources and pools on object stores: an address such as s3://bucket/pool becomes files in this machine's cache.

    CACHE/s3/bucket%2Fpool/pool/…        what lies at s3://bucket/pool
    CACHE/s3/bucket%2Fpool/.entry.json   size and tag of every object when it was fetched; locked by those who use it

CACHE is ODST_CACHE, or a folder of the user's cache, of at most ODST_CACHE_GB. What nobody uses goes when room is needed,
the longest unused first. The rest of odst sees paths; what is written is put whole, a pool's manifest last.
"""

import json
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from odst.data.copies import ENTRY, LOCK, alone, cache, hold, make_room
from odst.engine.interface import engine, share
from odst.errors import UserError, one_line
from odst.files import whole, write_json
from odst.locks import is_lock
from odst.progress import stage

STORES = {"s3": "odst[s3]", "gs": "gcsfs", "gcs": "gcsfs", "az": "adlfs", "abfs": "adlfs"}  # scheme -> what reads it
SAVED = 10.0  # seconds of fetching that a kill may cost, beside the file it is at
LAST = "manifest.json"  # with it a pool is whole
OWN = (".checked.json", ".write-test")  # of one machine

Tags = dict[str, list[Any]]  # name below the entry -> size, tag


def is_remote(spec: object) -> bool:
    return re.match(r"(?!file:)[a-z][a-z0-9+]+://", str(spec)) is not None


def address_of(path: str | os.PathLike[str]) -> str | None:
    """The address, percent-encoded, of what this file of the cache was fetched from; None for a file that is no such."""
    path, root = Path(path).absolute(), cache()
    if not str(path).startswith(f"{root}{os.sep}"):
        return None
    scheme, entry, *names = path.relative_to(root).parts
    above = unquote(entry).rpartition("/")[0]
    return f"{scheme}://{quote('/'.join([*([above] if above else []), *names]))}"


def tags_of(path: Path) -> Tags | None:
    """Size and tag in its store of this file of the cache, or of all below this folder; None for what was not fetched."""
    path, root = path.absolute(), cache()
    if address_of(path) is None:
        return None
    place = root.joinpath(*path.relative_to(root).parts[:2])
    below = path.relative_to(place).as_posix()
    return {name: tag for name, tag in _read(place).items() if name == below or name.startswith(f"{below}/")}


def elsewhere(path: Path) -> Path | str:
    """What another machine is told of a path: it has a cache of its own."""
    address = address_of(path)
    return path.absolute() if address is None else unquote(address)


def here(place: Path | str) -> Path:
    return fetch(place) if isinstance(place, str) and is_remote(place) else Path(place)


def fetch(address: str, *beside: str) -> Path:
    """The path of what lies at this address, a file, a folder or a pattern; files that stand beside it come along."""
    store, key, place = _open(address)
    with _told(address, "read"):
        found = _list(store, key)
        for name in beside:
            found |= _list(store, f"{_above(key)}{name}")
    if not found:
        raise UserError(f"{address}: there is nothing there. Check the bucket and the name.")
    _check_names(address, found)
    hold(place, address, lambda: _is_there(place, found), lambda: _bring(store, key, address, place, found))
    return place / key.rpartition("/")[2]


def _check_names(address: str, names: Iterable[str]) -> None:
    """An object may have any name; a file must stay in its folder, and cannot be a folder as well."""
    known = set(names)
    for name in known:
        parts = name.split("/")
        if {"", ".", ".."} & set(parts) or name in (ENTRY, LOCK) or "\0" in name:
            raise UserError(f"{address}: an object there is called {name!r}, which no file may be. Name others.")
        for i in range(1, len(parts)):
            if (above := "/".join(parts[:i])) in known:
                raise UserError(
                    f"{address}: {above} and {name} cannot both be files here. Name one of them: {address.rstrip('/')}/…"
                )


def _is_there(place: Path, found: Tags) -> bool:
    return _read(place) == found and all((place / name).is_file() for name in found)


def _bring(store: Any, key: str, address: str, place: Path, found: Tags) -> None:
    had = _read(place)
    new = {
        name: tag for name, tag in found.items() if had.get(name) != tag or not (place / name).is_file()
    }  # what was fetched is whole: it has its name only then
    for name in had.keys() - found.keys():
        (place / name).unlink(missing_ok=True)
    here = {name: tag for name, tag in found.items() if name not in new}
    size = sum(tag[0] for tag in new.values())
    make_room(size, address)
    saved = time.monotonic()
    with _told(address, "read"), stage(f"fetch {address}", size, "bytes") as advance:
        for name, tag in new.items():
            with whole(place / name) as temporary:
                store.get_file(f"{_above(key)}{name}", str(temporary))
            here[name] = tag
            advance(tag[0])
            if time.monotonic() - saved > SAVED:  # of a fetch that is cut, what is here stays
                write_json(place / ENTRY, here)
                saved = time.monotonic()
    write_json(place / ENTRY, found)


@contextmanager
def changing(target: str | os.PathLike[str]) -> Iterator[Path]:
    """A folder to write results into. That of an address is in the cache, with what lies there already, and when the block
    ends well it is put there whole. A block that was cut goes on where it stopped, on the same machine."""
    if not is_remote(target):
        yield Path(target)
        return
    address = str(target).rstrip("/")
    if share() is not None or not engine().alone:
        raise UserError(
            f"{address}: with --engine ray or --shard several machines write into one folder, and this is none. Name a folder "
            "that all of them see, and copy it to the bucket when it is whole."
        )
    store, key, place = _open(address)
    with _told(address, "write"):
        probe = f"{key}/{OWN[1]}"
        store.pipe_file(probe, b"odst")
        store.rm_file(probe)
        found = _list(store, key)
    _check_names(address, found)
    with alone(place, address):
        if found and not _is_there(place, found):
            _bring(store, key, address, place, found)
        folder = place / key.rpartition("/")[2]
        yield folder
        _put(store, key, address, place, folder, found)


def _put(store: Any, key: str, address: str, place: Path, folder: Path, before: Tags) -> None:
    files = [
        file for file in sorted(folder.rglob("*")) if file.is_file() and not is_lock(file) and file.name not in OWN
    ]
    files.sort(key=lambda file: file == folder / LAST)
    had = _read(place)
    with _told(address, "write"), stage(f"put {address}", len(files), "files") as advance:
        for file in files:
            name = file.relative_to(place).as_posix()
            same = name in before and had.get(name) == before[name] and file.stat().st_mtime <= _time(place)
            if not same:
                store.put_file(str(file), f"{_above(key)}{name}")
            advance(1)
        write_json(place / ENTRY, _list(store, key))


def _time(place: Path) -> float:
    return (place / ENTRY).stat().st_mtime if (place / ENTRY).is_file() else 0.0


def _above(key: str) -> str:
    """What the names of an entry begin with in the store."""
    above = key.rpartition("/")[0]
    return f"{above}/" if above else ""


def _open(address: str) -> tuple[Any, str, Path]:
    """The store, the key in it, and the entry of the cache."""
    scheme, _, key = address.partition("://")
    key = key.rstrip("/")
    if not key:
        raise UserError(f"{address}: which bucket? For example {scheme}://bucket/pool.")
    if scheme not in STORES:
        raise UserError(f"{address}: only object stores are read, such as s3://bucket/pool. Fetch it and give a path.")
    if {"", ".", ".."} & set(key.split("/")):
        raise UserError(f"{address}: a name between two / is missing, or is . or .. Write the whole address.")
    try:
        import fsspec

        store = fsspec.filesystem(scheme, use_listings_cache=False)
    except ImportError:
        line = f"{address}: what reads {scheme}:// is not installed. Type `pip install '{STORES[scheme]}'`."
        raise UserError(line) from None
    except Exception as error:  # each store has its own way to find no account
        raise UserError(f"{address}: {one_line(error)}. Give a path, or s3://bucket/pool.") from None
    return store, key, cache() / scheme / quote(key, safe="")


def _list(store: Any, key: str) -> Tags:
    """Size and tag of everything at this key, by its name below the entry."""
    if "*" in key:
        found = [one for one in store.glob(key, detail=True).values() if one["type"] == "file"]
    else:
        try:
            one = store.info(key)
        except FileNotFoundError:
            store.ls(key.partition("/")[0])  # whether it is the bucket that is missing
            return {}
        found = [one] if one["type"] == "file" else list(store.find(key, detail=True).values())
    start = len(_above(key))
    found = [one for one in found if not one["name"].endswith(("/", OWN[1]))]
    return {one["name"].lstrip("/")[start:]: [one["size"], _tag(one)] for one in found}


def _tag(one: dict[str, Any]) -> str:
    return str(one.get("ETag") or one.get("etag") or one.get("LastModified") or one.get("mtime") or "")


def _read(place: Path) -> Tags:
    try:
        return dict(json.loads((place / ENTRY).read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


@contextmanager
def _told(address: str, verb: str) -> Iterator[None]:
    """What a store refuses, as one line."""
    try:
        yield
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"{address}: there is no such bucket or object ({one_line(error)}). Check the name.") from None
    except PermissionError as error:
        raise UserError(
            f"{address}: you may not {verb} there ({one_line(error)}). Ask for the right, or name another place."
        ) from None
    except Exception as error:
        if "Credential" in type(error).__name__:
            raise UserError(
                f"{address}: there are no credentials. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE."
            ) from None
        raise UserError(
            f"{address}: the store cannot be {'read' if verb == 'read' else 'written'} ({type(error).__name__}: "
            f"{one_line(error)}). What is done stays done: give the command again."
        ) from None
