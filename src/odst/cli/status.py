"""odst status."""

from pathlib import Path
from typing import Annotated

from typer import Argument

from odst.cli import app
from odst.cli.results import AsJson, show
from odst.errors import UserError


@app.command()
def status(
    folder: Annotated[Path, Argument(metavar="DIR", help="A run, a pool, or a folder with some.")],
    as_json: AsJson = False,
) -> None:
    """Show which shared stages are unfinished, and by whom.

    Which parts of packing, embedding, labelling and the leak guard are done, by which machines, and how long is to go.

    Example: odst status runs/first
    """
    from odst.engine.status import stages

    if not folder.is_dir():
        raise UserError(f"{folder}: there is no such folder. Name a run or a pool.")
    found = list(stages(folder))
    show(as_json, found, map(str, found) if found else [f"{folder}: no stage is begun and unfinished."])
