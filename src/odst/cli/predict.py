"""odst predict."""

import shutil
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option, echo

from odst.cli import Address, Device, FollowLinks, Gpus, Round, RunFit, RunFolder, Shard, TrustCode, Where, Workers, app
from odst.cli.results import AsJson, show


@app.command()
def predict(
    run: RunFolder,
    sources: Annotated[list[str], Argument(metavar="SRC", help="Pictures, folders, tars, tables, arrays, pools.")],
    csv: Annotated[Path | None, Option(help="Write a CSV table here.")] = None,
    parquet: Annotated[Path | None, Option(help="Write a parquet table here.")] = None,
    alpha: Annotated[float | None, Option(help="Thresholds of another alpha than the run's.")] = None,
    round: Round = None,
    fit: RunFit = None,
    device: Device = None,
    follow_links: FollowLinks = False,
    trust_code: TrustCode = False,
    workers: Workers = None,
    engine: Where = None,
    address: Address = None,
    gpus: Gpus = 0,
    shard: Shard = None,
    as_json: AsJson = False,
) -> None:
    """Label any images, with `unknown` for what is no class.

    A row an image, in the order given: its class with calibrated confidence, `unknown` below the class's threshold, or
    why it was not read. On a cluster large sources are seen in parts, which are kept beside the table until all are there.
    With --json and no file the rows are in the document, and in memory until then.

    Example: odst predict runs/first photos/ --csv labels.csv
    """
    from collections import Counter

    from odst.classifier.load import load
    from odst.classifier.predict import COLUMNS, answer, write_answers
    from odst.cli.screen import bars
    from odst.data.checks import UNKNOWN
    from odst.data.sources import following
    from odst.engine.choice import chosen

    sources = [following(one) for one in sources] if follow_links else sources
    table = csv or parquet
    parts = None if table is None else table.with_name(f"{table.name}.parts")
    with bars(), chosen(engine, address, workers, gpus, shard):
        classifier = load(run, round=round, device=device or "auto", trust_code=trust_code)
        if alpha is not None:
            classifier = classifier.at(alpha)
        counts: Counter[str] = Counter()  # known, unknown, unreadable
        told: list[dict[str, Any]] = []
        terminal = csv is None and parquet is None
        answers = answer(classifier, sources, classifier.fit_of(fit), parts)
        for rows in write_answers(answers, csv, parquet, tell=not as_json):
            told += [dict(zip(COLUMNS, row, strict=True)) for row in rows] if as_json and terminal else []
            counts.update("unreadable" if one.reason else UNKNOWN if one.label == UNKNOWN else "known" for one in rows)
    if parts is not None and parts.is_dir():
        shutil.rmtree(parts)
    echo(
        f"{sum(counts.values()):,} images: {counts['known']:,} labelled, {counts[UNKNOWN]:,} unknown, "
        f"{counts['unreadable']:,} not readable ({classifier.name})",
        err=True,
    )
    if as_json:
        files = {"csv": csv, "parquet": parquet} | ({"rows": told} if terminal else {})
        show(True, {"images": sum(counts.values()), "model": classifier.name, "counts": counts, **files})
