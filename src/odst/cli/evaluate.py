"""odst evaluate."""

import shutil
from pathlib import Path
from typing import Annotated, Any

from typer import Option

from odst.cli import Address, Device, FollowLinks, Gpus, Round, RunFit, RunFolder, Shard, TrustCode, Where, Workers, app
from odst.cli.results import AsJson, show


@app.command()
def evaluate(
    run: RunFolder,
    on: Annotated[str | None, Option(help="A labelled source [default: the run's test set].")] = None,
    out: Annotated[list[str] | None, Option(metavar="NAME=SOURCE", help="Images of no class. Repeatable.")] = None,
    corruptions: Annotated[bool, Option("--corruptions", help="Also the error under 15 corruptions.")] = False,
    corruption_files: Annotated[
        Path | None, Option(help="The same from a folder of CIFAR-10-C or CIFAR-100-C.")
    ] = None,
    round: Round = None,
    save: Annotated[Path | None, Option(help="Write every number into this JSON file.")] = None,
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
    """Measure a run's classifier on any images.

    Error, calibration and detection, with 95 % intervals; the error under corruptions where asked for. On a cluster large
    sources are seen in parts, which are kept beside the file of --save until all are there.

    Example: odst evaluate runs/first --on test/ --out flowers=flowers.parquet
    """
    from odst.classifier.evaluate import assess, labelled_source, out_sources, own_images, own_sets
    from odst.classifier.load import load
    from odst.cli.screen import bars
    from odst.engine.choice import chosen
    from odst.engine.parts import close_later
    from odst.errors import UserError
    from odst.files import write_json

    if follow_links:
        from odst.data.sources import following

        on = None if on is None else following(on)
        named = (one.partition("=") for one in out or [])
        out = [f"{name}{sign}{following(spec) if spec.strip() else spec}" for name, sign, spec in named]
    if corruptions and corruption_files is not None:
        raise UserError("--corruptions and --corruption-files: give one of them, made on the fly or as published.")
    parts = None if save is None else save.with_name(f"{save.name}.parts")
    with bars() as console, chosen(engine, address, workers, gpus, shard):
        classifier = load(run, round=round, device=device or "auto", trust_code=trust_code)
        how = classifier.fit_of(fit)
        if on is None:
            name, logits, y, outs = own_sets(classifier)
            images = own_images(classifier) if corruptions else None
        else:
            place = None if parts is None else parts / "on"
            logits, y, x = labelled_source(classifier, on, how, place, images=corruptions)
            name, outs, images = on, {}, x if corruptions else None
        if out:
            outs = out_sources(classifier, out, how, parts)
        close_later("evaluate")
        found = assess(classifier, logits, y, outs, corrupted=corruption_files or images)
        found = {"run": str(run), "on": name, **found}
        if save is not None:
            write_json(save, found)
    if parts is not None and parts.is_dir():
        shutil.rmtree(parts)
    titled = tables(f"{classifier.name} on {name}, {found['images']:,} images", found)
    show(as_json, found, [one for table in titled for one in (table, "")], console)


def tables(title: str, found: dict[str, Any]) -> list[Any]:
    from rich.table import Table
    from rich.text import Text

    from odst.report.measures import measures, percent

    def table(heading: str, *columns: str) -> Table:
        made = Table(title=Text(heading), title_justify="left", box=None, pad_edge=False)
        for i, column in enumerate(columns):
            made.add_column(Text(column), justify="left" if i == 0 else "right")
        return made

    def within(value: float, interval: list[float]) -> str:
        return f"{percent(value)} ({percent(interval[0])} to {percent(interval[1])})"

    first = table(title, "measure", "value")
    first.add_row("error %", within(found["error"], found["error_interval"]))
    for measure in measures("ece", "nll", "brier"):
        first.add_row(measure.title, measure.text(found[measure.key], 2 if measure.kind == "percent" else 4))
    if "od_auroc" in found:
        first.add_row("OD-AUROC %, mean over sets", percent(found["od_auroc"]))
    if "corruption_error" in found:
        first.add_row("mean corruption error %", percent(found["corruption_error"]))
    made = [first]
    if "out" in found:
        second = table(
            "telling these images from others",
            "set", "images", "AUROC %", "FPR95 % (in positive)", "FPR95 % (out positive)", "AUPR-in %", "AUPR-out %",
        )  # fmt: skip
        for name, one in found["out"].items():
            second.add_row(
                Text(name), f"{one['images']:,}", within(one["auroc"], one["auroc_interval"]), percent(one["fpr_at_95_tpr"]),
                percent(one["fpr_at_95_tpr_out_positive"]), percent(one["aupr_in"]), percent(one["aupr_out"]),
            )  # fmt: skip
        made.append(second)
    if "corruption_errors" in found:
        third = table("error % by corruption and level", "corruption", "1", "2", "3", "4", "5")
        for name, levels in found["corruption_errors"].items():
            third.add_row(name, *(percent(value) for value in levels))
        made.append(third)
    return made
