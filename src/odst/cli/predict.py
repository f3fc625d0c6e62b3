"""odst predict."""

from pathlib import Path
from typing import Annotated

import typer

from odst.cli import app


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="A run directory.")],
    sources: Annotated[list[str], typer.Argument(help="Pictures, folders, tars, tables, arrays, pools.")],
    csv: Annotated[Path | None, typer.Option(help="Write a CSV table here.")] = None,
    parquet: Annotated[Path | None, typer.Option(help="Write a parquet table here.")] = None,
    alpha: Annotated[float | None, typer.Option(help="Thresholds of another alpha than the run's.")] = None,
    round: Annotated[int | None, typer.Option(help="Another round than the final one.")] = None,
    fit: Annotated[str | None, typer.Option(help="How pictures are brought to size [default: as in the run].")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or mps.")] = "auto",
) -> None:
    """Label any images: a class with calibrated confidence, `unknown` below the class's threshold, or why it was not read.

    Example: odst predict runs/first photos/ --csv labels.csv
    """
    from collections import Counter

    from odst.classifier.load import answer, load
    from odst.cli.screen import bars
    from odst.cli.writing import write_answers
    from odst.data.checks import UNKNOWN

    with bars():
        classifier = load(run, round=round, device=device)
        if alpha is not None:
            classifier = classifier.at(alpha)
        counts: Counter[str] = Counter()  # known, unknown, unreadable
        for rows in write_answers(answer(classifier, sources, classifier.fit_of(fit)), csv, parquet):
            counts.update("unreadable" if one.reason else UNKNOWN if one.label == UNKNOWN else "known" for one in rows)
    typer.echo(
        f"{sum(counts.values()):,} images: {counts['known']:,} labelled, {counts[UNKNOWN]:,} unknown, "
        f"{counts['unreadable']:,} not readable (round {classifier.round})",
        err=True,
    )
