"""odst review."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option, echo

from odst.cli import TrustCode, app

if TYPE_CHECKING:
    from odst.run.directory import RunDir


@app.command()
def review(
    run: Annotated[Path, Argument(metavar="RUN", help="A run directory; a project's folder for --val-out.")],
    out: Annotated[Path | None, Option(help="The page [default: RUN/review.html].")] = None,
    draws: Annotated[int, Option(help="Pictures a class for the certificate; fixed with the page.")] = 150,
    round: Annotated[int | None, Option(help="Another round than the final one.")] = None,
    serve: Annotated[bool, Option("--serve", help="Offer the page here and write the marks into the run.")] = False,
    import_: Annotated[
        Path | None,
        Option("--import", metavar="FILE", help="Label Studio's or FiftyOne's export, as marks into the run."),
    ] = None,
    port: Annotated[int, Option(help="For --serve [default: a free one].", show_default=False)] = 0,
    val_out: Annotated[bool, Option("--val-out", help="Look through the val_out that `odst init` made.")] = False,
    marks: Annotated[list[Path] | None, Option(help="With --val-out: correct its lists by these.")] = None,
    trust_code: TrustCode = False,
) -> None:
    """Make one offline page to mark what was selected.

    Audit: uniform draws, for the certificate of `odst audit`. Triage: what is most worth correcting, for `odst run --marks`.

    Example: odst review runs/first --draws 150
    """
    from odst.errors import UserError

    if marks and not val_out:
        raise UserError("--marks: it goes with --val-out. Marks of a run are for `odst audit` and `odst run`.")
    if val_out:
        _val_out(run, out, draws, marks or [])
        return
    from odst.cli.screen import bars
    from odst.report.review import write_review
    from odst.run.directory import RunDir

    folder = RunDir(run, trust_code)
    folder.info()
    if import_ is not None:
        from odst.exchange.imports import described, import_marks
        from odst.run.marks import keep_marks

        found = import_marks(folder, import_, round)
        for line in described(found, keep_marks(folder, import_.stem, found.marks)):
            echo(line)
        return
    if serve:
        _serve(folder, round, draws, port)
        return
    with bars(quiet=True) as console:
        page = write_review(folder, out or run / "review.html", t=round, draws=draws)
    console.print(f"Open {page.resolve()}", soft_wrap=True, highlight=False)


def _val_out(folder: Path, out: Path | None, draws: int, marks: list[Path]) -> None:
    from odst.project.cleaning import clean, open_cleaning
    from odst.report.val_out_review import write_val_out_review

    one = open_cleaning(folder)
    if marks:
        for line in clean(one, marks):
            echo(line)
        return
    page = write_val_out_review(one, out or folder / "val_out.html", draws=draws)
    echo(f"Open {page.resolve()}\nThen: odst review {folder} --val-out --marks FILE")


def _serve(folder: "RunDir", round: int | None, draws: int, port: int) -> None:
    from odst.errors import UserError
    from odst.locks import lock
    from odst.report.review import render_review
    from odst.report.serving import ReviewServer
    from odst.run.audit import audited_round, check_own
    from odst.run.marks import read_marks

    t = audited_round(folder, round)
    file = folder.marks / f"round-{t}.json"
    fixed = {mark.draws for mark in read_marks(file) if mark.draws} if file.exists() else set()
    if fixed - {draws}:  # the number is fixed before anybody looks: fewer, later, could be chosen to look good
        raise UserError(
            f"--draws: {file} has marks of {min(fixed)} draws a class, got {draws}. Go on with --draws {min(fixed)}; "
            "another number needs another run or round."
        )
    folder.marks.mkdir(exist_ok=True)
    with (
        lock(folder.marks, f"odst review {folder.path} --serve"),
        ReviewServer(
            file,
            lambda saved: render_review(folder, t=t, draws=draws, saved=saved),
            lambda marks: check_own(folder, marks, "the page's marks"),
            port,
        ) as server,
        suppress(KeyboardInterrupt),  # the way it is meant to end
    ):
        server.render(server.on_file())  # a fault is said here, not in the browser
        echo(f"Open {server.url}   (Ctrl-C ends)")
        server.serve_forever()
    echo(f"Marks: {file}" if file.exists() else "Nothing was confirmed.")
