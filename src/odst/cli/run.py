"""odst run, odst methods."""

from pathlib import Path
from typing import Annotated

import typer

from odst.cli import app

Out = Annotated[Path | None, typer.Option(help="The run directory [default: runs/CONFIG-METHOD-SEED].")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only results and warnings.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Everything that is logged.")]


@app.command()
def run(
    config: Annotated[
        str, typer.Argument(help="A TOML config, the name of a preset, or a run directory to go on with.")
    ],
    method: Annotated[str | None, typer.Option(help="A named method: see `odst methods`.")] = None,
    model: Annotated[
        str | None, typer.Option(help="A network: small, resnet50, timm:NAME, package.module:factory for your own.")
    ] = None,
    out: Out = None,
    seed: Annotated[int | None, typer.Option(help="Deals splits, order, augmentation and ties.")] = None,
    device: Device = None,
    change: Annotated[
        list[str] | None, typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Change one key.")
    ] = None,
    stop_on_harm: Annotated[bool, typer.Option("--stop-on-harm", help="End at the first student that harms.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what would be done, how large and how long.")
    ] = False,
    fresh: Annotated[bool, typer.Option("--fresh", help="Move an old run in --out aside and begin anew.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train a teacher, select from the pool, train students: one run, in its own directory.

    The same command, or `odst run DIR`, goes on where a run stopped.

    Example: odst run digits --method odst --out runs/first
    """
    from odst.cli.screen import bars, rounds_table
    from odst.run.config import parse_change, read_config
    from odst.run.directory import RunDir
    from odst.run.execution import execute
    from odst.run.torchrun import first_process

    changes = dict(parse_change(text) for text in change or [])
    given = {
        "method.name": method,
        "model.name": model,
        "run.seed": seed,
        "run.device": device,
        "run.stop_on_harm": stop_on_harm or None,
    }
    settings = read_config(config, changes | {key: value for key, value in given.items() if value is not None})
    if out is None and RunDir(Path(config)).begun():
        out = Path(config)
    elif out is None:
        out = Path("runs") / f"{Path(config).stem}-{settings.method.name}-{settings.run.seed}"
    if dry_run:
        from odst.run.forecast import forecast

        with bars(quiet, verbose) as console:
            page = forecast(settings, out)
        console.print(page, soft_wrap=True, highlight=False)
        return
    with first_process(settings, out) as leading, bars(quiet, verbose) as console:
        if not leading:
            return
        best = execute(settings, out, fresh=fresh)
        console.print(rounds_table(f"{settings.method.name}, seed {settings.run.seed}", RunDir(out).metrics(), best))
    console.print(f"Use round {best}. The run is in {out}", soft_wrap=True, highlight=False)


@app.command()
def methods() -> None:
    """List the named methods and what each changes against odst.

    Example: odst methods
    """
    from rich.console import Console
    from rich.table import Table

    from odst.recipe import METHODS
    from odst.run.config import recipe_changes

    table = Table(box=None, pad_edge=False)
    for heading in ("method", "what it is", "changes against odst"):
        table.add_column(heading)
    for name, (recipe, what) in METHODS.items():
        table.add_row(name, what, ", ".join(f"{key}={value}" for key, value in recipe_changes(recipe).items()) or "–")
    Console().print(table)
