"""odst demo."""

from pathlib import Path
from typing import Annotated, Any

from typer import Option

from odst.cli import Device, Fresh, Quiet, Verbose, app
from odst.cli.results import AsJson, show

# T ∪ val_in with true labels: val_in's labels outnumber T's, so it stands beside the methods
REFERENCE = "supervised+val_in"
WEIGHT = (
    "The digits keep the paper's rest_weight = 1: the base pays for it and the students win it back. For few labels of your own "
    '`odst init` writes "auto", which leaves the weight to val_in.'
)


@app.command()
def demo(
    world: Annotated[str, Option(help="digits or photos, real images.")] = "digits",
    out: Annotated[Path, Option(help="A folder for a run per method.")] = Path("runs/demo"),
    methods: Annotated[str, Option(help="What to compare.")] = "odst,st,st-ot",
    seed: Annotated[int, Option(help="Deals the images to the sets.")] = 0,
    pool: Annotated[int | None, Option(help="Images in the pool.")] = None,
    device: Device = None,
    fresh: Fresh = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """See odst improve round by round on a messy pool.

    Plain self-training stands beside it, and a page shows both. Nothing is downloaded; the images come with odst[demo].

    Example: odst demo --world photos --pool 20000
    """
    from rich.text import Text

    from odst.cli.screen import bars, comparison
    from odst.errors import UserError
    from odst.recipe import METHODS
    from odst.report.comparison import write_comparison
    from odst.run.config import read_config
    from odst.run.directory import RunDir
    from odst.run.execution import execute

    names = [name.strip() for name in methods.split(",") if name.strip()]
    unknown = [name for name in names if name not in METHODS]
    if unknown or not names:
        raise UserError(
            f"--methods: {unknown[0] if unknown else methods!r} is no method. Choose from {', '.join(METHODS)}."
        )
    if world not in ("digits", "photos"):
        raise UserError(f"--world: {world!r} is not built in. Choose digits or photos.")
    changes: dict[str, Any] = {"run.seed": seed}
    changes |= {} if pool is None else {"data.pool_size": pool}
    changes |= {} if device is None else {"run.device": device}
    plan = {name: read_config(world, changes | {"method.name": name}) for name in names}
    plan[REFERENCE] = read_config(world, changes | {"method.name": "supervised", "data.join_val_in": True})
    with bars(quiet, verbose) as console:
        for name, config in plan.items():
            execute(config, out / name, fresh=fresh)
        runs = {name: RunDir(out / name) for name in names}
        reference = RunDir(out / REFERENCE).metrics()[0]
        page = write_comparison(list(runs.values()), out / "index.html")
    metrics = {name: run.metrics() for name, run in runs.items()}
    scale = (
        f"For scale: trained on the labelled and the validation images together, with true labels, the same network has "
        f"{100 * reference['error']:.1f} % error and OD-AUROC {100 * reference['od_auroc']:.1f}."
    )
    shown = [comparison(f"{world}, seed {seed}", metrics), Text(scale), f"Open {page.resolve()}"]
    if world == "digits":
        shown.insert(2, Text(WEIGHT))
    show(as_json, {"runs": metrics, "reference": reference, "page": page.resolve()}, shown, console)
