"""odst report."""

from pathlib import Path
from typing import Annotated

import typer

from odst.cli import app


@app.command()
def report(
    run: Annotated[Path, typer.Argument(help="A run directory, finished or not.")],
    out: Annotated[Path | None, typer.Option(help="The page [default: RUN/report.html].")] = None,
    images: Annotated[bool, typer.Option("--images/--no-images", help="Embed pictures of the pool.")] = True,
    relative_paths: Annotated[
        bool, typer.Option("--relative-paths", help="Name no place outside the run's folder.")
    ] = False,
) -> None:
    """Write one page about a run: what came out, what was selected, what another alpha would select. It opens offline.

    Example: odst report runs/first --no-images --relative-paths
    """
    from odst.cli.screen import bars
    from odst.report.page import write_report
    from odst.run.directory import RunDir

    with bars(quiet=True) as console:
        page = write_report(RunDir(run), out or RunDir(run).page, images=images, relative_paths=relative_paths)
    console.print(f"Open {page.resolve()}", soft_wrap=True, highlight=False)
