"""odst review."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

from typer import Argument, Option, echo

from odst.cli import app


@app.command()
def review(
    run: Annotated[Path, Argument(metavar="RUN", help="A run directory.")],
    out: Annotated[Path | None, Option(help="The page [default: RUN/review.html].")] = None,
    draws: Annotated[int, Option(help="Pictures a class for the certificate; fixed with the page.")] = 150,
    round: Annotated[int | None, Option(help="Another round than the final one.")] = None,
    serve: Annotated[bool, Option("--serve", help="Offer the page here and write the marks into the run.")] = False,
    port: Annotated[int, Option(help="For --serve [default: a free one].", show_default=False)] = 0,
) -> None:
    """Make one offline page to mark what was selected.

    Audit: uniform draws, for the certificate of `odst audit`. Triage: what is most worth correcting, for `odst run --marks`.

    Example: odst review runs/first --draws 150
    """
    from odst.cli.screen import bars
    from odst.report.review import render_review, write_review
    from odst.run.directory import RunDir

    folder = RunDir(run)
    folder.info()
    if serve:
        from odst.report.serving import ReviewServer
        from odst.run.audit import audited_round, check_own

        t = audited_round(folder, round)
        server = ReviewServer(
            folder.marks / f"round-{t}.json",
            lambda saved: render_review(folder, t=t, draws=draws, saved=saved),
            lambda marks: check_own(folder, marks, "the page's marks"),
            port,
        )
        server.render(server.on_file())  # a fault is said here, not in the browser
        with server, suppress(KeyboardInterrupt):  # the way it is meant to end
            echo(f"Open {server.url}   (Ctrl-C ends)")
            server.serve_forever()
        echo(f"Marks: {server.file}" if server.file.exists() else "Nothing was confirmed.")
        return
    with bars(quiet=True) as console:
        page = write_review(folder, out or run / "review.html", t=round, draws=draws)
    console.print(f"Open {page.resolve()}", soft_wrap=True, highlight=False)
