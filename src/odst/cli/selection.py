"""odst selection."""

from pathlib import Path
from typing import Annotated

from typer import Option

from odst.cli import Quiet, RunFolder, TrustCode, app
from odst.cli.results import AsJson, show


@app.command()
def selection(
    run: RunFolder,
    to: Annotated[
        str, Option("--to", metavar="FORMAT", help="folder, csv, parquet, hf, webdataset, labelstudio or fiftyone.")
    ],
    out: Annotated[Path | None, Option(help="Its place [default: RUN/selection-ROUND-FORMAT].")] = None,
    round: Annotated[int | None, Option(help="The student whose selection it is [default: the final one].")] = None,
    certified: Annotated[bool, Option("--certified", help="Only what `odst audit` has certified.")] = False,
    links: Annotated[
        bool, Option("--links/--copies", help="For folder: links to the originals instead of copies.")
    ] = False,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Take the selected images away, for other tools.

    Pictures are the originals where they can still be read, else the pixels that the pool holds.

    Example: odst selection runs/first --to folder --out selected
    """
    from dataclasses import asdict

    from odst.cli.screen import bars
    from odst.exchange.layouts import FORMATS, PLAIN, described, write
    from odst.exchange.rows import rows_of
    from odst.run.directory import RunDir
    from odst.run.preparation import pool_of

    folder = RunDir(run, trust_code)
    rows = rows_of(folder, round, certified=certified)
    ending = f".{to}" if to in PLAIN else f"-{to}"
    place = out or run / f"selection-{rows.round}{'-certified' if certified else ''}{ending}"
    with bars(quiet):
        pool = pool_of(folder) if to in FORMATS and to not in PLAIN else None
        written = write(rows, pool, to, place, links=links)
    show(as_json, {"round": rows.round, "format": to, **asdict(written)}, described(written, rows, to))
