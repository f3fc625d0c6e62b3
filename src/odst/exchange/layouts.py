"""A selection laid out as other tools read it. Each layout is a function that writes into a folder of its own; `write` gives
it a temporary one, which takes its name when all of it is there.

folder       CLASS/ID.jpg                     anything that reads a folder a class, odst included
csv parquet  the rows alone                   a list; `given-selection` of another run
hf           train/ID.jpg, train/metadata.csv Hugging Face: load_dataset("imagefolder", data_dir=...)
webdataset   00000.tar, ...                   ID.jpg, ID.cls (the class's number), ID.json
labelstudio  images/ID.jpg, tasks.json, labeling_config.xml
fiftyone     data/ID.jpg, labels.json         FiftyOneImageClassificationDataset

ID is the pool id, in twelve digits; where answers may come back (exchange/imports.py) with the first letters of the content hash. What is meant to be passed on (hf, webdataset, labelstudio, fiftyone) names no place of
the user's machine: pool id and content hash lead back.
"""

import csv
import io
import json
import os
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pyarrow.parquet as pq

from odst.data.cells import cells
from odst.data.images import Pool
from odst.data.items import label_text
from odst.errors import UserError
from odst.exchange.names import folder_names
from odst.exchange.pictures import Picture, pictures_of
from odst.exchange.rows import Rows
from odst.files import name_of_whole, whole, whole_folder, write_json, write_text
from odst.progress import stage

TAR_IMAGES, TAR_BYTES = 10_000, 1 << 30  # of one shard
NONE = "none of these"  # the choice beside the classes in Label Studio
CHOICE = "class"  # what Label Studio's interface calls the choice
PLAIN = ("csv", "parquet")


@dataclass(frozen=True)
class Written:
    """What an export came to."""

    path: Path
    images: int
    originals: int  # the others are the pool's own pixels; all of them where no picture is written
    classes: dict[str, int]


def write(rows: Rows, pool: Pool | None, to: str, out: Path, *, links: bool = False) -> Written:
    """The selection in one layout at `out`, which must not exist yet."""
    if to not in FORMATS:
        raise UserError(f"--to {to}: there is no such format. Take one of {', '.join(FORMATS)}.")
    if links and to != "folder":
        raise UserError(f"--links is for --to folder; {to} holds the pictures themselves. Leave it out.")
    if out.exists() or out.is_symlink():
        raise UserError(
            f"{out}: it is there already, and nothing is overwritten. Choose another --out, or move it away."
        )
    if to in PLAIN:
        (write_csv if to == "csv" else write_parquet)(rows, out)
        return Written(out, len(rows), len(rows), rows.counts())
    if pool is None:
        raise UserError(f"{rows.run}: this run has no pool to take pictures from. Take --to csv or --to parquet.")
    count: Counter[bool] = Counter()

    def counted() -> Iterator[Picture]:
        with stage("pictures", len(rows), "images") as advance:
            for picture in pictures_of(rows.table, pool):
                count[picture.original] += 1
                yield picture
                advance(1)

    with whole_folder(out) as folder:
        if to == "folder":
            write_folders(rows, counted(), folder, links=links)
        else:
            LAYOUTS[to](rows, counted(), folder)
    return Written(out, len(rows), count[True], rows.counts())


# the rows alone ------------------------------------------------------------------------------------------------------------


def write_csv(rows: Rows, file: Path) -> None:
    with whole(file) as temporary, open(temporary, "w", newline="", encoding="utf-8") as out:
        lines = csv.writer(out, lineterminator="\n")
        lines.writerow(rows.table.column_names)
        lines.writerows(map(cells, zip(*(column.to_pylist() for column in rows.table.columns), strict=True)))


def write_parquet(rows: Rows, file: Path) -> None:
    with whole(file) as temporary:
        pq.write_table(rows.table, temporary)


# with pictures -------------------------------------------------------------------------------------------------------------


def write_folders(rows: Rows, pictures: Iterator[Picture], folder: Path, *, links: bool) -> None:
    """CLASS/ID.jpg, copies or, for originals that are files by themselves, symbolic links."""
    names = folder_names(rows.classes)
    for c in sorted(set(rows.numbers.tolist())):
        (folder / names[c]).mkdir()
    for picture in pictures:
        file = folder / names[rows.numbers[picture.row]] / f"{rows.name(picture.row)}.{picture.ending}"
        if links and picture.path is not None:
            file.symlink_to(os.fsdecode(picture.path))
        else:
            file.write_bytes(picture.data)


def write_hf(rows: Rows, pictures: Iterator[Picture], folder: Path) -> None:
    (folder / "train").mkdir()
    lines: dict[int, list[Any]] = {}
    for picture in pictures:
        name, about = f"{rows.name(picture.row)}.{picture.ending}", rows.about(picture.row)
        (folder / "train" / name).write_bytes(picture.data)
        lines[picture.row] = [name, rows.label(picture.row), *about.values(), _from(picture)]
    with open(folder / "train" / "metadata.csv", "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["file_name", "label", *rows.about(0), "picture"])
        table.writerows(cells(lines[row]) for row in sorted(lines))


def write_webdataset(rows: Rows, pictures: Iterator[Picture], folder: Path) -> None:
    for shard, first in enumerate(pictures):
        with tarfile.open(folder / f"{shard:05d}.tar", "w", format=tarfile.USTAR_FORMAT) as tar:
            picture: Picture | None = first
            images = size = 0
            while picture is not None:
                _add(tar, rows, picture)
                images, size = images + 1, size + len(picture.data)
                picture = next(pictures, None) if images < TAR_IMAGES and size < TAR_BYTES else None


def _add(tar: tarfile.TarFile, rows: Rows, picture: Picture) -> None:
    about = {"label": rows.label(picture.row), **rows.about(picture.row), "picture": _from(picture)}
    for ending, data in (
        (picture.ending, picture.data),
        ("cls", str(rows.numbers[picture.row]).encode()),
        ("json", json.dumps(about, ensure_ascii=False).encode()),
    ):
        member = tarfile.TarInfo(f"{rows.name(picture.row)}.{ending}")  # no owner, no time: the same bytes anywhere
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))


def write_fiftyone(rows: Rows, pictures: Iterator[Picture], folder: Path) -> None:
    (folder / "data").mkdir()
    labels: dict[str, Any] = {}
    for picture in pictures:
        name = rows.marked_name(picture.row)
        (folder / "data" / f"{name}.{picture.ending}").write_bytes(picture.data)
        about = rows.about(picture.row) | rows.origin
        labels[name] = {
            "label": int(rows.numbers[picture.row]),
            "confidence": about.pop("probability"),
            "attributes": {**about, "picture": _from(picture)},
        }
    write_json(folder / "labels.json", {"classes": list(rows.classes), "labels": dict(sorted(labels.items()))})


def write_labelstudio(rows: Rows, pictures: Iterator[Picture], folder: Path) -> None:
    """Tasks with the class as a prediction and its probability as the score. Pictures are served from local files: the
    document root is the folder that this one lies in."""
    (folder / "images").mkdir()
    root = name_of_whole(folder)
    tasks: dict[int, Any] = {}
    for picture in pictures:
        name, about = f"{rows.marked_name(picture.row)}.{picture.ending}", rows.about(picture.row)
        (folder / "images" / name).write_bytes(picture.data)
        label, score = rows.label(picture.row), about["probability"]
        result = {"id": rows.name(picture.row), "from_name": CHOICE, "to_name": "image", "type": "choices"}
        tasks[picture.row] = {
            "data": {
                "image": f"/data/local-files/?d={root}/images/{name}",
                "selected_as": label,
                **about,
                **rows.origin,
                "picture": _from(picture),
            },
            "predictions": [
                {
                    "model_version": f"odst round {rows.round - 1}",
                    "score": score,
                    "result": [{**result, "value": {"choices": [label]}}],
                }
            ],
        }
    write_json(folder / "tasks.json", [tasks[row] for row in sorted(tasks)])
    choices = "".join(f"    <Choice value={quoteattr(name)}/>\n" for name in (*rows.classes, none_of(rows.classes)))
    write_text(
        folder / "labeling_config.xml",
        '<View>\n  <Image name="image" value="$image"/>\n'
        f'  <Choices name="{CHOICE}" toName="image" choice="single" showInLine="true">\n{choices}  </Choices>\n</View>\n',
    )


def none_of(classes: tuple[str, ...]) -> str:
    """The name of the choice for an image of no class; no class has it."""
    name = NONE
    while label_text(name) in {label_text(one) for one in classes}:
        name += "."
    return name


def _from(picture: Picture) -> str:
    return "original" if picture.original else "pixels of the pool"


LAYOUTS: dict[str, Callable[..., None]] = {
    "folder": write_folders,
    "hf": write_hf,
    "webdataset": write_webdataset,
    "labelstudio": write_labelstudio,
    "fiftyone": write_fiftyone,
}
FORMATS = ("folder", *PLAIN, "hf", "webdataset", "labelstudio", "fiftyone")
HOW = {
    "parquet": 'In another run: [method] name = "given-selection", [data] selection = this file.',
    "hf": 'Read it with datasets.load_dataset("imagefolder", data_dir=...).',
    "webdataset": "In each sample: the picture, .cls (the number of its class), .json (its name and how sure the teacher was).",
    "labelstudio": "Serve it: LABEL_STUDIO_LOCAL_FILES_SERVING_ENABLED=true and LABEL_STUDIO_LOCAL_FILES_DOCUMENT_ROOT={parent}; "
    "set the project up with labeling_config.xml and import tasks.json.",
    "fiftyone": "Read it as fiftyone.types.FiftyOneImageClassificationDataset.",
}


def described(written: Written, rows: Rows, to: str) -> Iterator[str]:
    """What to tell the user, line by line."""
    names = [f"{name} {n:,}" for name, n in written.classes.items()]
    more = f", … and {len(names) - 12} more classes" if len(names) > 12 else ""
    yield f"{written.path}: {written.images:,} images that round {rows.round} learnt from: {', '.join(names[:12])}{more}"
    if lost := written.images - written.originals:
        whose = "All pictures are" if lost == written.images else f"{lost:,} pictures are"
        yield f"{whose} the pixels that the pool holds: no original could be read at its address, or it has changed."
    if to in HOW:
        yield HOW[to].format(parent=written.path.resolve().parent)
