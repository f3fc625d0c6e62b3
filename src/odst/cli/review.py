"""odst review."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from odst.cli import TrustCode, app
from odst.cli.results import AsJson, show

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
    as_json: AsJson = False,
) -> None:
    """Make one offline page to mark what was selected.

    Audit: uniform draws, for the certificate of `odst audit`. Triage: what is most worth correcting, for `odst run --marks`.

    Example: odst review runs/first --draws 150
    """
    from odst.errors import UserError

    if marks and not val_out:
        raise UserError("--marks: it goes with --val-out. Marks of a run are for `odst audit` and `odst run`.")
    if val_out:
        _val_out(run, out, draws, marks or [], as_json)
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
        file = keep_marks(folder, import_.stem, found.marks)
        about = {"marks": file, "count": len(found.marks), "from": found.kind, "silent": found.silent}
        show(as_json, about, described(found, file))
        return
    if serve:
        _serve(folder, round, draws, port, as_json)
        return
    with bars(quiet=True):
        page = write_review(folder, out or run / "review.html", t=round, draws=draws)
    show(as_json, {"page": page.resolve()}, [f"Open {page.resolve()}"])


def _val_out(folder: Path, out: Path | None, draws: int, marks: list[Path], as_json: bool) -> None:
    from odst.project.cleaning import clean, open_cleaning
    from odst.report.val_out_review import write_val_out_review

    one = open_cleaning(folder)
    if marks:
        lines = clean(one, marks)
        show(as_json, {"says": lines}, lines)
        return
    page = write_val_out_review(one, out or folder / "val_out.html", draws=draws)
    then = f"Then: odst review {folder} --val-out --marks FILE"
    show(as_json, {"page": page.resolve()}, [f"Open {page.resolve()}", then])


def _serve(folder: "RunDir", round: int | None, draws: int, port: int, as_json: bool) -> None:
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
        show(as_json, {"url": server.url, "marks": file}, [f"Open {server.url}   (Ctrl-C ends)"])
        sys.stdout.flush()  # a program reads the address while the page is offered
        server.serve_forever()
    if not as_json:
        show(False, None, [f"Marks: {file}" if file.exists() else "Nothing was confirmed."])
