"""odst report."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from odst.cli import Address, Images, RelativePaths, TrustCode, Where, Workers, app
from odst.cli.results import AsJson, show


@app.command()
def report(
    run: Annotated[Path, Argument(metavar="RUN", help="A run directory, finished or not.")],
    out: Annotated[Path | None, Option(help="The page [default: RUN/report.html].")] = None,
    images: Images = True,
    relative_paths: RelativePaths = False,
    trust_code: TrustCode = False,
    workers: Workers = None,
    engine: Where = None,
    address: Address = None,
    as_json: AsJson = False,
) -> None:
    """Write one page about a run, which opens offline.

    It shows what came out, what was selected, and what another alpha would select.

    Example: odst report runs/first --no-images --relative-paths
    """
    from odst.cli.screen import bars
    from odst.engine.choice import chosen
    from odst.report.page import write_report
    from odst.run.directory import RunDir

    with bars(quiet=True), chosen(engine, address, workers):
        page = write_report(
            RunDir(run, trust_code), out or run / "report.html", images=images, relative_paths=relative_paths
        )
    show(as_json, {"page": page.resolve()}, [f"Open {page.resolve()}"])
