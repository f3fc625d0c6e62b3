"""odst compare."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from odst.cli import Images, RelativePaths, TrustCode, app
from odst.cli.results import AsJson, show

ENDINGS = {".txt": "text", ".md": "markdown", ".tex": "latex"}


@app.command()
def compare(
    runs: Annotated[list[Path], Argument(metavar="RUN", help="Run directories over one set of classes.")],
    out: Annotated[Path | None, Option(help="Write to this file instead of the terminal.")] = None,
    format: Annotated[str | None, Option(help="text, markdown, latex or html [default: by --out's ending].")] = None,
    images: Images = True,
    relative_paths: RelativePaths = False,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Put runs side by side.

    The paper's table; as a page also curves over rounds and the images that each run alone selected. The ending .txt, .md or
    .tex of --out makes it text, Markdown or LaTeX, any other a page; without --out it is text on the terminal.

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
    folders = [RunDir(run, trust_code) for run in runs]
    if kind == "html":
        if out is None:
            raise UserError("--format html: a page needs a place. Name it with --out comparison.html.")
        with bars(quiet=True):
            page = write_comparison(folders, out, images=images, relative_paths=relative_paths)
        show(as_json, {"written": page.resolve()}, [f"Open {page.resolve()}"])
        return
    compared = open_runs(folders)
    for line in cautions(compared):
        echo(line, err=True)
    text = FORMATS[kind](grids({one.name: one.metrics for one in compared}))
    if out is not None:
        write_text(out, text)
    found = {"runs": {one.name: one.metrics for one in compared}, "cautions": cautions(compared), "written": out}
    show(as_json, found, [text.rstrip("\n")] if out is None else [])
