"""odst init: look at a folder of images and write a config that runs."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from odst.cli import FollowLinks, app
from odst.cli.results import AsJson, show

Sources = list[str] | None


@app.command()
def init(
    folder: Annotated[Path, Argument(metavar="DIR", help="A folder with labelled/, pool/ and the like; or a new one.")],
    labelled: Annotated[
        Sources, Option(metavar="SRC", help="Labelled images: a folder per class, or a table with a label column.")
    ] = None,
    pool: Annotated[
        Sources, Option(metavar="SRC", help="Unlabelled images of any kind: a folder, a table, a packed pool.")
    ] = None,
    val_in: Annotated[Sources, Option(metavar="SRC", help="Labelled images to calibrate on.")] = None,
    val_out: Annotated[Sources, Option(metavar="SRC", help="Images of none of the classes.")] = None,
    test: Annotated[Sources, Option(metavar="SRC", help="Labelled images for scoring only.")] = None,
    size: Annotated[
        int | None, Option(min=8, max=1024, help="Height and width in the pool [default: 64 for photographs].")
    ] = None,
    backbone: Annotated[
        str | None,
        Option(
            metavar="SPEC|none",
            help="Turns pictures into vectors: timm:NAME, hf:REPO, onnx:FILE, … [default: efficientnet-lite1 for photographs, if "
            "installed]; none: pixels.",
        ),
    ] = None,
    out: Annotated[Path | None, Option(help="Where config, packed pool and lists go [default: DIR].")] = None,
    seed: Annotated[int, Option(help="Deals the val_out sample.")] = 0,
    follow_links: FollowLinks = False,
    as_json: AsJson = False,
) -> None:
    """Look at a folder and write a commented config that runs.

    Images stay where they are; the pool is packed once. Known names in DIR: labelled (or train), pool (or unlabelled), val_in,
    val_out, test, and out_test/NAME. Each may be a folder, a table or an archive; the options name sources that lie elsewhere.
    Vectors that you have are "FILE.parquet?features=COLUMN". Without a val_out one is made from the pool.

    Example: odst init project --labelled photos/sorted --pool photos/unsorted
    """
    from odst.cli.screen import bars
    from odst.locks import lock
    from odst.project.init import begin_project

    given = {"labelled": labelled, "pool": pool, "val_in": val_in, "val_out": val_out, "test": test}
    with bars(), lock(out or folder, "odst init"):
        sets = {role: specs for role, specs in given.items() if specs}
        lines = begin_project(
            folder, sets, out or folder, size=size, seed=seed, backbone=backbone, follow_links=follow_links
        )
    show(as_json, {"config": (out or folder) / "odst.toml", "says": lines}, lines)
