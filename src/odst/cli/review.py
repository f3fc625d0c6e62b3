"""odst review."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from odst.cli import TrustCode, app
from odst.cli.results import AsJson, show

if TYPE_CHECKING:
    from collections.abc import Callable

    from odst.run.directory import RunDir
    from odst.run.marks import Mark


@app.command()
def review(
    run: Annotated[Path, Argument(metavar="RUN", help="A run directory; a project's folder for --val-out.")],
    out: Annotated[Path | None, Option(help="The page [default: RUN/review.html].")] = None,
    draws: Annotated[
        int | None, Option(help="Pictures a class for the certificate; fixed with the first page [default: 150].")
    ] = None,
    round: Annotated[int | None, Option(help="Another round than the final one.")] = None,
    serve: Annotated[bool, Option("--serve", help="Offer the page here and write the marks by itself.")] = False,
    import_: Annotated[
        Path | None,
        Option("--import", metavar="FILE", help="Label Studio's or FiftyOne's export, as marks into the run."),
    ] = None,
    port: Annotated[int | None, Option(help="For --serve [default: a free one].")] = None,
    val_out: Annotated[bool, Option("--val-out", help="Look through the val_out that `odst init` made.")] = False,
    marks: Annotated[
        list[Path] | None, Option(metavar="FILE", help="With --val-out: correct its lists by these.")
    ] = None,
    trust_code: TrustCode = False,
    as_json: AsJson = False,
) -> None:
    """Make one offline page to mark what was selected.

    Audit: uniform draws, for the certificate of `odst audit`. Triage: what is most worth correcting, for `odst run --marks`.

    Example: odst review runs/first --draws 150
    """
    given: dict[str, object] = {
        "--out": out,
        "--draws": draws,
        "--round": round,
        "--port": port,
        "--serve": serve or None,
    }
    given |= {"--import": import_, "--marks": marks or None}
    _check_options({name for name, value in given.items() if value is not None}, val_out)
    if val_out:
        _val_out(run, out, 150 if draws is None else draws, marks or [], serve, port, as_json)
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


def _check_options(given: set[str], val_out: bool) -> None:
    """An option that would be passed over is refused: what goes with what."""
    from odst.errors import UserError

    if "--marks" in given and not val_out:
        raise UserError("--marks: it goes with --val-out. Marks of a run are for `odst audit` and `odst run`.")
    if val_out and "--marks" in given:
        what, fits = "--val-out --marks", {"--marks"}
    elif "--serve" in given and "--import" not in given:
        what, fits = "--serve", {"--serve", "--draws", "--port"} | (set() if val_out else {"--round"})
    elif val_out:
        what, fits = "--val-out", {"--out", "--draws"}
    elif "--import" in given:
        what, fits = "--import", {"--import", "--round"}
    else:
        what, fits = "a page without --serve", {"--out", "--draws", "--round"}
    if stray := sorted(given - fits):
        raise UserError(f"{', '.join(stray)}: not with {what}. Leave {'it' if len(stray) == 1 else 'them'} out.")


def _val_out(
    folder: Path, out: Path | None, draws: int, marks: list[Path], serve: bool, port: int | None, as_json: bool
) -> None:
    from odst.project.cleaning import check_own, clean, open_cleaning
    from odst.report.val_out_review import render_val_out_review, write_val_out_review

    one = open_cleaning(folder)
    if marks:
        lines = clean(one, marks)
        show(as_json, {"says": lines}, lines)
        return
    then = f"Then: odst review {folder} --val-out --marks"
    if serve:
        file = folder / "marks-val_out.json"
        _offer(
            file,
            folder,
            lambda saved: render_val_out_review(one, draws=draws, saved=saved),
            lambda own: check_own(one, own, "the page's marks"),
            port,
            as_json,
            then,
        )
        return
    page = write_val_out_review(one, out or folder / "val_out.html", draws=draws)
    show(as_json, {"page": page.resolve()}, [f"Open {page.resolve()}", f"{then} FILE"])


def _serve(folder: "RunDir", round: int | None, draws: int | None, port: int | None, as_json: bool) -> None:
    from odst.report.review import render_review
    from odst.run.audit import audited_round, check_own, draws_of, fix_draws

    t = audited_round(folder, round)
    number = draws_of(folder, t, draws)
    file = folder.marks / f"round-{t}.json"

    def render(saved: "list[Mark]") -> str:
        page = render_review(folder, t=t, draws=number, saved=saved)
        fix_draws(folder, t, number)  # before anybody can look, and only for a page that can be made
        return page

    folder.marks.mkdir(exist_ok=True)
    _offer(
        file,
        folder.marks,
        render,
        lambda own: check_own(folder, own, "the page's marks"),
        port,
        as_json,
        "Marks:",
    )


def _offer(
    file: Path,
    locked: Path,
    render: "Callable[[list[Mark]], str]",
    check: "Callable[[list[Mark]], None]",
    port: int | None,
    as_json: bool,
    then: str,
) -> None:
    """Serve until it is interrupted; `then` is what to do with the file of marks."""
    from odst.locks import lock
    from odst.report.serving import ReviewServer

    with (
        lock(locked, "odst review --serve"),
        ReviewServer(file, render, check, port or 0) as server,
        suppress(KeyboardInterrupt),  # the way it is meant to end
    ):
        server.render(server.on_file())  # a fault is said here, not in the browser
        show(as_json, {"url": server.url, "marks": file}, [f"Open {server.url}   (Ctrl-C ends)"])
        sys.stdout.flush()  # a program reads the address while the page is offered
        server.serve_forever()
    if not as_json:
        show(False, None, [f"{then} {file}" if file.exists() else "Nothing was confirmed."])
