"""odst forecast."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from odst.cli import Device, Quiet, TrustCode, Verbose, app
from odst.cli.results import AsJson, show


@app.command()
def forecast(
    config: Annotated[str, Argument(metavar="CONFIG", help="A TOML file, a preset's name, or a run.")],
    scan: Annotated[int, Option(help="Pool images to look at, chosen at random.")] = 20_000,
    out: Annotated[Path | None, Option(help="The run's folder [default: as `odst run` has it].")] = None,
    method: Annotated[str | None, Option(help="A named method: see `odst methods`.")] = None,
    seed: Annotated[int | None, Option(help="Deals splits and chooses the images to look at.")] = None,
    device: Device = None,
    change: Annotated[list[str] | None, Option("--set", metavar="SECTION.KEY=VALUE", help="Change one key.")] = None,
    trust_code: TrustCode = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Say what a run will find and cost, before it is spent.

    From a minute's base and a random part of the pool: how much of it is of each class, what a round will select, what
    precision val_out can promise, hours, disk, and whether it is worth it. The run's report compares it with what came out.

    Example: odst forecast digits --scan 20000
    """
    from odst.cli.screen import bars
    from odst.run.config import parse_change, read_config, run_folder
    from odst.run.forecast import forecast
    from odst.run.trust import check_config

    changes = dict(parse_change(text) for text in change or [])
    given = {"method.name": method, "run.seed": seed, "run.device": device}
    changes |= {key: value for key, value in given.items() if value is not None}
    settings = read_config(config, changes)
    check_config(config, settings, changes, trust_code)
    place = run_folder(config, settings, out)
    with bars(quiet, verbose):
        found = forecast(settings, place, scan=scan)
    kept = f"Kept in {place}, for the report of the run."
    show(as_json, {"folder": place, **found.to_json()}, [*found.lines, kept])
