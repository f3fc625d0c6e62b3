"""odst compare."""

from pathlib import Path
from typing import Annotated

import typer

from odst.cli import app

ENDINGS = {".txt": "text", ".md": "markdown", ".tex": "latex"}


@app.command()
def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run directories over one set of classes.")],
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of the terminal.")] = None,
    format: Annotated[
        str | None,
        typer.Option(
            help="text, markdown, latex or html [default: by the ending of --out: .txt, .md, .tex, else html]."
        ),
    ] = None,
    images: Annotated[
        bool, typer.Option("--images/--no-images", help="Embed pictures of the pool in the page.")
    ] = True,
    relative_paths: Annotated[
        bool, typer.Option("--relative-paths", help="Name no place outside the runs' folders.")
    ] = False,
) -> None:
    """Put runs side by side: the paper's table, curves over rounds, and the images that each run alone selected.

    Example: odst compare runs/demo/odst runs/demo/st --out comparison.html
    """
    from odst.cli.screen import bars
    from odst.errors import UserError
    from odst.files import write_text
    from odst.report.comparison import cautions, open_runs, write_comparison
    from odst.report.tables import FORMATS, grids
    from odst.run.directory import RunDir

    kind = format or (ENDINGS.get(out.suffix.lower(), "html") if out else "text")
    if kind not in (*FORMATS, "html"):
        raise UserError(f"--format: {kind!r} is none of text, markdown, latex and html.")
    folders = [RunDir(run) for run in runs]
    if kind == "html":
        if out is None:
            raise UserError("--format html: a page needs a place. Name it with --out comparison.html.")
        with bars(quiet=True) as console:
            page = write_comparison(folders, out, images=images, relative_paths=relative_paths)
        console.print(f"Open {page.resolve()}", soft_wrap=True, highlight=False)
        return
    compared = open_runs(folders)
    for line in cautions(compared):
        typer.echo(line, err=True)
    text = FORMATS[kind](grids({one.name: one.metrics for one in compared}))
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_text(out, text)
