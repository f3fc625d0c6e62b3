"""A new user's folders -> a config that runs: what `odst init` does."""

import json
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import numpy as np

from odst.data.checks import check_data
from odst.data.decoding import Fit
from odst.data.encoding import CachedEmbedder, Encoding
from odst.data.images import check_images, is_image
from odst.data.loading import load_data, load_pool, open_encoding
from odst.data.packing import build_pool
from odst.data.pool import packed_fits, read_manifest
from odst.data.sets import DataSection
from odst.data.sources import absolute_spec, following, packed_pool, split_spec
from odst.errors import UserError
from odst.files import write_text
from odst.project import photographs, settings, val_out
from odst.recipe import METHODS
from odst.training.precision import pick_device

ROLES = {
    "labelled": ("labelled", "labeled", "train", "training"),
    "pool": ("pool", "unlabelled", "unlabeled", "unsorted"),
    "val_in": ("val_in", "val", "valid", "validation"),
    "val_out": ("val_out", "out", "outliers"),
    "test": ("test", "testing"),
}
ENDINGS = ("", ".parquet", ".csv", ".tsv", ".tar", ".npz", ".npy")


@dataclass
class Project:
    """What was found or given, each as the specs of the config."""

    sets: dict[str, list[str]]
    out_tests: dict[str, list[str]]
    size: int
    fit: Fit
    backbone: str | None  # None: the network sees pixels, or vectors that were given


def begin_project(
    folder: Path,
    given: dict[str, list[str]],
    out: Path,
    *,
    size: int | None,
    seed: int,
    backbone: str | None = None,
    follow_links: bool = False,
) -> list[str]:
    """Write out/odst.toml and what it needs; return what to tell the user. `backbone` is a spec, or none for pixels; without
    one, photographs get the default where its weights are installed."""
    config = out / "odst.toml"
    if config.exists():
        raise UserError(f"{config}: there is a config already. Delete it, or choose another --out.")
    sets, out_tests = look(folder)
    for role, specs in given.items():
        if not all(spec.strip() for spec in specs):
            raise UserError(f"--{_dash(role)}: an empty text names no images. Give a path, or leave the option out.")
        sets[role] = [absolute_spec(spec, Path.cwd()) for spec in specs]
    if follow_links:
        sets, out_tests = (
            {name: [following(spec) for spec in specs] for name, specs in some.items()} for some in (sets, out_tests)
        )
    for role, way in (("labelled", "a folder per class"), ("pool", "unlabelled images")):
        if role not in sets:
            raise UserError(f"{folder}: no {role} images found. Put {way} into {folder / role}, or give --{role} SRC.")
    for role, specs in sets.items():
        for spec in specs:
            if out.resolve().is_relative_to(split_spec(spec)[0].resolve()):
                raise UserError(
                    f"{out}: this lies inside the {role} images {spec}. Choose a folder outside with --out."
                )
            if any("\ud800" <= letter <= "\udfff" for letter in spec):  # bytes that are no text
                raise UserError(
                    f"{spec!r}: the name is not UTF-8, so no config can hold it. Rename the folder or file."
                )
    _check_labelled_vectors(sets)
    photographs.typical_size(sets["labelled"])  # for its refusals
    photograph = photographs.typical_size(sets["pool"])
    vectors = photograph is None and photographs.holds_vectors(sets["pool"])
    chosen, advice = photographs.choose_backbone(photograph, backbone, vectors)
    project = Project(sets, out_tests, *_size_and_fit(sets["pool"], size, photograph), chosen)
    lines = [f"{role}: {', '.join(specs)}" for role, specs in sets.items()]
    lines += [f"out_test.{name}: {', '.join(specs)}" for name, specs in out_tests.items()]
    if photograph is not None:
        lines.append(photographs.describe(photograph, project.size, project.fit, chosen))
    lines += advice
    section = DataSection(
        labelled=tuple(sets["labelled"]),
        val_in=tuple(sets["val_in"]) if "val_in" in sets else 0.2,
        val_out=tuple(sets["val_out"]) if "val_out" in sets else None,
        test=tuple(sets["test"]) if "test" in sets else None,
        out_test={name: tuple(specs) for name, specs in out_tests.items()},
        size=project.size,
        fit=project.fit,
    )
    encoding = None if chosen is None else Encoding(CachedEmbedder(chosen))
    data = load_data(section, seed=seed, workspace=None, encoding=encoding)  # a fault is said before the pool is packed
    check_data(METHODS["supervised"][0], data)
    packed = _packed(project, out)
    lines += photographs.describe_rejected(read_manifest(packed).get("rejected", {}), packed)
    if encoding is not None:
        encoding = open_encoding(section.model_copy(update={"pool": str(packed)}), packed, encoding.embedder)
        if encoding.side is not None:  # the pool's vectors are of stored pixels: the other sets must be so too
            data = load_data(section, seed=seed, workspace=None, encoding=encoding)
    pool = load_pool(section.model_copy(update={"pool": str(packed)}), packed, data.classes, encoding)
    check_images("pool", pool.x, like=data.labelled.x)
    data = replace(data, pool=pool)
    made = "val_out" not in sets
    n_out = 0 if data.val_out is None else len(data.val_out)
    if made:
        sample = val_out.draw(data, seed=seed, device=pick_device("auto"))
        val_out.write(sample, data, out)
        n_out = len(sample.ids) - sample.aside
        rows = quote(os.path.relpath((out / "val_out.csv").resolve(), packed.parent.resolve()))
        sets["val_out"] = [f"{packed}?rows={rows}"]
        lines += _how(sample, out, pool.shown is not None)
    sets["pool"] = [str(packed)]
    sizes = settings.Sizes(
        n=len(data.labelled),
        K=data.K,
        m=len(pool) - len(pool.excluded) - (n_out if made else 0),
        n_in=len(data.val_in),
        n_out=n_out,
        vectors=not is_image(data.labelled.x),
    )
    write_text(config, _toml(project, out, sizes, data.labelled.x.shape[1:], made))
    count = np.bincount(data.labelled.y, minlength=data.K)
    lines += [
        f"{data.K} classes with {' to '.join(map(str, np.unique([count.min(), count.max()])))} labelled images each, val_in {len(data.val_in)}, "
        f"pool {len(pool):,}",
        f"written: {config}",
        f"next: odst forecast {(typed := shlex.quote(str(config)))}   (what to expect, how long), then odst run {typed}",
    ]
    return lines


def look(folder: Path) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The sets that lie in a folder under one of their names, and the out_test sets."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder}: this is a file. Give the folder that holds your images, or a new one.")
    sets = {}
    for role, names in ROLES.items():
        found = [folder / f"{name}{ending}" for name in names for ending in ENDINGS]
        found = [path for path in found if path.exists() and not val_out.is_own_list(path)]
        if len(found) > 1:
            raise UserError(
                f"{folder}: {found[0].name} and {found[1].name} could both be {role}. Name one with --{_dash(role)}."
            )
        if found:
            sets[role] = [str(found[0].absolute())]
    outs = folder / "out_test"
    inside = sorted(path for path in outs.iterdir() if not path.name.startswith(".")) if outs.is_dir() else []
    return sets, {path.stem: [str(path.absolute())] for path in inside}


def _check_labelled_vectors(sets: dict[str, list[str]]) -> None:
    """A list of names and labels has no vectors, and what is said of its missing pictures would lead astray."""
    lists = [spec for spec in sets["labelled"] if split_spec(spec)[0].suffix.lower() in (".csv", ".tsv")]
    if lists and photographs.holds_vectors(sets["pool"]):
        raise UserError(
            f"{lists[0]}: a list of pictures, and the pool holds vectors. Give the labelled rows with their vectors, as parquet with a "
            "label column: docs/tutorials/vectors.md has the lines that take them out of the pool's files."
        )


def _dash(role: str) -> str:
    return role.replace("_", "-")


def _size_and_fit(pool: list[str], size: int | None, photograph: tuple[int, int] | None) -> tuple[int, Fit]:
    """Those of the packed pool, or what is asked for, or crop and 64 for photographs, 32 for smaller pictures."""
    if len(pool) == 1 and (path := packed_pool(pool[0])) is not None:
        manifest = read_manifest(path)
        row, fits = manifest["row"], packed_fits(path, manifest)
        if size is not None and len(row) == 3 and row[0] != size:
            raise UserError(f"{pool[0]}: this pool is packed at {row[0]}×{row[1]}. Leave --size out, or pack it again.")
        return row[0] if len(row) == 3 else 32, min(fits) if len(fits) == 1 else "crop"
    return size or (64 if photographs.is_large(photograph) else 32), "crop"


def _packed(project: Project, out: Path) -> Path:
    pool = project.sets["pool"]
    if len(pool) == 1 and (path := packed_pool(pool[0])) is not None:
        return path
    build_pool(pool, out / "odst-pool", size=project.size, fit=project.fit, encoder=project.backbone)
    return out / "odst-pool"


def _how(sample: val_out.Sample, out: Path, shown: bool) -> list[str]:
    kept = len(sample.ids) - sample.aside
    return [
        f"val_out was made from the pool, as none was given: a random sample of {len(sample.ids):,}, without the "
        f"{sample.aside:,} that a quickly trained network finds most like a class. Kept: {kept:,}, which leave the pool.",
        (
            f"Please look at {out / 'val_out.png'} (nothing of your classes should be there) and val_out_aside.png, and correct it by "
            f"eye: odst review {shlex.quote(str(out))} --val-out; or move"
            if shown
            else "Move"
        )
        + f" lines between {out / 'val_out.csv'} and val_out_aside.csv where you disagree.",
        "Class-like images that belong to no class were set aside with the others: val_od_auroc looks better than it is, and the "
        "thresholds are too low just where it matters, until a person brings them back.",
    ]


def _toml(project: Project, out: Path, sizes: settings.Sizes, shape: tuple[int, ...], made: bool) -> str:
    return TEMPLATE.format(
        labelled=_value(project.sets["labelled"], out),
        pool=_value(project.sets["pool"], out),
        val_in=_value(project.sets["val_in"], out) if "val_in" in project.sets else "0.2",
        val_in_note="  # calibrates and sets thresholds"
        if "val_in" in project.sets
        else "  # a fifth of each class is taken from labelled",
        val_out_note=MADE if made else "",
        val_out=_value(project.sets["val_out"], out),
        excluded='["val_out.csv"]' if made else "[]",
        test=f"test = {_value(project.sets['test'], out)}" if "test" in project.sets else '# test = "test"',
        size=project.size,
        fit=project.fit,
        out_test="".join(
            f"{json.dumps(k, ensure_ascii=False)} = {_value(v, out)}\n" for k, v in project.out_tests.items()
        ),
        model=val_out.quick_network(shape),
        backbone=BACKBONE.format(backbone=json.dumps(project.backbone)) if project.backbone else "",
        size_note="of the pictures that people see"
        if project.backbone
        else "images are brought to this height and width",
        batch=settings.BATCH,
        method=settings.method(sizes),
        training=settings.training(sizes),
    )


def _value(specs: list[str], out: Path) -> str:
    """As TOML, relative to the config where it lies below it."""

    def short(spec: str) -> str:
        base, spec = f"{out.absolute()}{os.sep}", absolute_spec(spec, Path.cwd())
        return Path(spec.removeprefix(base)).as_posix() if spec.startswith(base) else spec

    texts = [json.dumps(short(spec), ensure_ascii=False) for spec in specs]
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


MADE = """\
# Made by `odst init`, as there was none: a random sample of the pool without the images that a quickly trained network
# found most like a class. Look at val_out.png; `odst review . --val-out` makes a page to correct it by eye.
# Class-like images of no class were set aside too: trust the error on val_in, and take val_od_auroc for rosy by some points.
"""

BACKBONE = """\
backbone = {backbone}  # the network sees this one's vectors of your pictures; docs/embeddings.md has the others
"""
TEMPLATE = """\
# Written by `odst init`. Paths are relative to this file. Any of them may be a folder, a .csv/.tsv/.parquet list of paths,
# .tar shards, Hugging Face .parquet (file.parquet?split=train), .npy/.npz, or a packed pool; or a list of these.

[data]
labelled = {labelled}  # images of your classes
pool = {pool}  # unlabelled images, most of them of anything else
val_in = {val_in}{val_in_note}
{val_out_note}val_out = {val_out}
excluded = {excluded}  # lists of pool ids that leave the pool, beside what `odst dedup` finds
{test}  # for scoring only: nothing is ever tuned on it
size = {size}  # {size_note}
fit = "{fit}"  # "crop", "pad" or "stretch": how a picture that is not square becomes so

[data.out_test]  # named sets of other things, for scoring how well they are told apart
{out_test}
[method]
name = "odst"  # `odst methods` lists the others; st and st-ot are the controls
{method}
[model]
{backbone}name = "{model}"  # tiny, small, resnet18, resnet50, ... or your own as package.module:function; mlp and head take vectors

[training]
batch = {batch}  # labelled and selected images of a step, beside as many of the rest
{training}
[run]
seed = 0  # deals splits, order, augmentation and ties
device = "auto"  # a GPU where there is one
labels_alone = true  # also train on the labelled images alone: what is to be used where odst is not better
"""
