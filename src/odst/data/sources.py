"""Anything that holds pictures -> a stream of items. What a path is, is decided by what is there, not by an option.

photos/                  a folder tree; the class is the folder directly below; photos?links=follow also follows links out of it
list.csv list.tsv        paths, relative to the list, with an optional label column; also as parquet
shard-000.tar            WebDataset: one sample per key, label from .cls or .json
train.parquet?split=x    Hugging Face images; after ? come columns to filter by
x.npy x.npz              images or features; x.npy?labels=y.npy, x.npy?paths=list.csv
set.parquet?features=e   vectors in a column of lists; clip-retrieval's folders too
pool/                    a packed pool; pool?rows=list.csv takes the rows of its column pool_id
s3://bucket/photos       any of these on an object store (remote.py)
and the original files of CIFAR, SVHN and Tiny Images (formats/originals.py), or a set of the catalogue by its name
"""

import glob
import os
from collections.abc import Iterable
from functools import partial
from itertools import islice
from pathlib import Path
from urllib.parse import parse_qsl

import numpy as np

from odst.data.exclusions import check_numbering, read_ids
from odst.data.formats.arrays import ArraySource, open_npy, open_npz
from odst.data.formats.embeddings import LISTS, is_clip_retrieval, open_clip_retrieval, open_listed, open_vector_table
from odst.data.formats.folders import Folder, leads_out, links_out, say_left_out
from odst.data.formats.originals import open_format
from odst.data.formats.tables import PathList, open_parquet
from odst.data.formats.tars import Tar
from odst.data.images import Images
from odst.data.items import Source
from odst.data.pool import is_packed, open_labels, open_pool, read_manifest
from odst.data.remote import elsewhere, fetch, here, is_remote
from odst.errors import UserError, one_line

SHARDS = (".tar", ".parquet")
FOLLOW = "links=follow"


def open_sources(specs: str | Path | Iterable[str | Path]) -> list[Source]:
    """Every source that these name, in order. A pattern (`train-*.tar`) and a folder of nothing but shards are many."""
    if isinstance(specs, str | Path):
        specs = [specs]
    found: list[Source] = []
    for spec in specs:
        path, query = split_spec(spec)
        follow = path.is_dir() and _follows(path, query)
        mark = _mark(spec, query)
        if follow:
            mark = mark.replace(f"&{FOLLOW}", "").replace(f"{FOLLOW}&", "")
        if is_clip_retrieval(path):
            if not follow and (links := sum(map(links_out, (path, path / "img_emb", path / "metadata")))):
                raise UserError(
                    f"{path}: {links} links lead out of it. Give --follow-links, or {path}?{FOLLOW}, if you trust them."
                )
            found += open_clip_retrieval(path, _columns_only(spec, query))
        elif path.is_dir() and (shards := _shards(path, follow)):
            found += [open_source(f"{shard}{mark}") for shard in shards]
        elif not path.exists() and (matches := sorted(glob.glob(str(path), recursive=True))):
            found += [open_source(f"{match}{mark}") for match in matches]
        else:
            found.append(open_source(spec))
    widths = {source.width for source in found}
    if len(widths) > 1:
        texts = [f"{source.name} ({source.width or 'images'})" for source in found]
        raise UserError(f"{', '.join(texts)}: feature widths differ. One set holds one kind of rows: split it.")
    return found


def open_source(spec: str | Path) -> Source:
    """One source. A fault of the whole of it is a UserError."""
    path, query = split_spec(spec)
    if not path.exists():
        from odst.data.named.download import named_source  # the catalogue's downloaders are slow to import

        if (named := named_source(str(spec))) is not None:
            return named
        raise UserError(
            f"{spec}: there is no such file or folder. Check the path, or type `odst data list` for sets by name."
        )
    if path.is_dir():
        return _folder(spec, path, query)
    if not path.is_file():  # to open a pipe would be to wait for ever
        raise UserError(f"{spec}: this is a pipe, a socket or a device. Give a file or a folder.")
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        return open_vector_table(path, query) or open_parquet(path, query)
    if suffix in (".csv", ".tsv"):
        return PathList(path, query)
    if not query and (source := open_format(path)) is not None:
        return source
    if suffix == ".npy":
        labels, listed = query.pop("labels", None), query.pop("paths", None)
        if listed or Path(labels or "").suffix.lower() in LISTS:
            return open_listed(path, path.parent / str(listed or labels), _columns_only(spec, query))
        _no_query(spec, query)
        if labels is None and (source := open_format(path)) is not None:  # CIFAR-10.1, whose labels lie beside it
            return source
        return open_npy(path, path.parent / labels if labels else None)
    _no_query(spec, query)
    if suffix == ".tar":
        return Tar(path)
    if suffix == ".npz":
        return open_npz(path)
    raise UserError(
        f"{spec}: not a source of images. Give a folder, a .csv, .tsv, .parquet, .tar, .npy or .npz file, or a packed pool."
    )


def _folder(spec: str | Path, path: Path, query: dict[str, str]) -> Source:
    """A packed pool, one of the original layouts, or a tree of pictures: whatever it is called."""
    if is_packed(path):
        _follows(path, query)
        rows = query.pop("rows", None)
        _no_query(spec, query)
        return _packed(path, path.parent / rows if rows else None)
    follow = _follows(path, query)
    _no_query(spec, query)
    known = _few(path) and (follow or not links_out(path))
    return (open_format(path) if known else None) or Folder(path, follow)


def _follows(path: Path, query: dict[str, str]) -> bool:
    """Whether links out of a folder are to be followed; the query is without that word afterwards."""
    said = query.pop("links", None)
    if said not in (None, "follow"):
        raise UserError(f"{path}?links={said}: links are followed with links=follow, or not. Mend or leave it out.")
    return said is not None


def following(spec: str) -> str:
    """The spec of a folder, or of several, with the word that follows links out of it; any other as it is."""
    path, query = split_spec(spec)
    places = [path] if path.exists() else [Path(match) for match in glob.glob(str(path), recursive=True)]
    if "links" in query or not places or not all(one.is_dir() and not is_packed(one) for one in places):
        return spec
    return f"{spec}{'&' if query else '?'}{FOLLOW}"


def _columns_only(spec: str | Path, query: dict[str, str]) -> dict[str, str]:
    """Rows that stand beside others cannot be picked by a column; only what the columns are can be said."""
    _no_query(spec, {key: value for key, value in query.items() if key not in ("path", "label")})
    return query


def _no_query(spec: str | Path, query: dict[str, str]) -> None:
    if query:
        raise UserError(
            f"{spec}: only tables, pools and .npy files can be asked for {next(iter(query))!r}. Leave out what follows the ?."
        )


def _shards(folder: Path, follow: bool) -> list[Path]:
    inside = [path for path in sorted(folder.iterdir()) if not path.name.startswith(".")]
    if not inside or not all(path.suffix.lower() in SHARDS and path.is_file() for path in inside):
        return []
    root = os.path.realpath(os.fsencode(folder))
    own = [path for path in inside if follow or not leads_out(os.fsencode(path), root)]
    if own:  # else the folder says how many
        say_left_out(str(folder), len(inside) - len(own))
    return own


def _packed(path: Path, chosen: Path | None) -> ArraySource:
    """All rows of a packed pool that are not excluded, or those a list of pool ids names."""
    pool = open_pool(path)
    if chosen is not None:
        check_numbering(chosen, path, read_manifest(path))
        rows = read_ids(chosen, len(pool), pool.identity)
    else:
        rows = np.setdiff1d(np.arange(len(pool)), pool.excluded)
    reopen = partial(_pool_rows, elsewhere(path))
    return ArraySource(path, pool.x, rows=rows, sources=pool.sources, labels=open_labels(path), reopen=reopen)


def _pool_rows(place: Path | str) -> Images:
    return open_pool(here(place)).x


def packed_pool(spec: str | Path) -> Path | None:
    """Where the packed pool that a spec names lies; None for any other source."""
    path, query = split_spec(spec)
    return path if not query and is_packed(path) else None


def _few(path: Path) -> bool:
    """Whether a folder is short enough to look through: the original layouts have a few dozen files."""
    with os.scandir(path) as entries:
        return len(list(islice(entries, 1000))) < 1000


# the spec: path?query, or a name ---------------------------------------------------------------------------------------------


def split_spec(spec: str | Path) -> tuple[Path, dict[str, str]]:
    """The path and what follows the question mark; a name that really holds one wins."""
    if not str(spec).strip():
        raise UserError("an empty text names no images. Give a path, or the name of a set.")
    if is_remote(spec):
        address, _, after = str(spec).partition("?")
        query = dict(parse_qsl(after))
        return fetch(address, *(query[key] for key in ("labels", "paths", "rows") if key in query)), query
    path = Path(os.path.expanduser(spec))  # noqa: PTH111  (which leaves ~somebody who is not here as it is)
    text = str(path)
    before, _, after = text.rpartition("?")
    query = {} if os.path.exists(path) or "?" not in text else dict(parse_qsl(after))  # noqa: PTH110  (any text)
    path = Path(before) if query else path  # a pattern may hold a ? of its own
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        pass
    except (OSError, ValueError) as error:  # a name of 5,000 letters, or with a null in it
        raise UserError(f"{str(path)[:80]!r}: nothing can have this name ({one_line(error)[:60]}). Check it.") from None
    return path, query


def absolute_spec(spec: str, base: Path) -> str:
    """The spec with a whole path if something lies there, seen from `base`; else as it is: the name of a set."""
    if Path(spec).is_absolute() or is_remote(spec) or not spec.strip():
        return spec
    path, query = split_spec(base / os.path.expanduser(spec))  # noqa: PTH111
    there = path.exists() or glob.glob(str(path), recursive=True)
    return f"{path}{_mark(spec, query)}" if there else spec


def spec_name(spec: str) -> str:
    """A short name for what a spec names, fit for a file."""
    return split_spec(spec)[0].stem.replace(":", "-").replace("*", "").replace("?", "") or "set"


def _mark(spec: str | Path, query: dict[str, str]) -> str:
    return f"?{str(spec).rpartition('?')[2]}" if query else ""
