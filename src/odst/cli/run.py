"""odst run."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from odst.cli import Address, Device, Fresh, Gpus, Quiet, Shard, TrustCode, Verbose, Where, Workers, app
from odst.cli.results import AsJson, show

if TYPE_CHECKING:
    from odst.run.directory import RunDir


@app.command()
def run(
    config: Annotated[
        str,
        Argument(metavar="CONFIG", help="A TOML file, a preset (digits, cifar10-resnet50, …), or a run to go on with."),
    ],
    method: Annotated[str | None, Option(help="A named method: see `odst methods`.")] = None,
    model: Annotated[str | None, Option(help="small, resnet50, timm:NAME, or your package.module:factory.")] = None,
    out: Annotated[Path | None, Option(help="Its folder [default: runs/CONFIG-METHOD-SEED].")] = None,
    seed: Annotated[int | None, Option(help="Deals splits, order, augmentation and ties.")] = None,
    device: Device = None,
    change: Annotated[list[str] | None, Option("--set", metavar="SECTION.KEY=VALUE", help="Change one key.")] = None,
    stop_on_harm: Annotated[bool, Option("--stop-on-harm", help="End at the first student that harms.")] = False,
    marks: Annotated[
        list[Path] | None,
        Option(metavar="FILE", help="Of `odst review`: begins RUN-marked, which learns from them; RUN stays."),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only say what it would do, how large and how long.")] = False,
    fresh: Fresh = False,
    trust_code: TrustCode = False,
    workers: Workers = None,
    engine: Where = None,
    address: Address = None,
    gpus: Gpus = 0,
    shard: Shard = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
    as_json: AsJson = False,
) -> None:
    """Train a teacher, select from the pool, train students.

    One run, in its own directory. The same command, or `odst run DIR`, goes on where a run stopped.

    Example: odst run digits --method odst --out runs/first
    """
    from odst.cli.screen import bars, rounds_table
    from odst.engine.choice import chosen
    from odst.run.config import files_of, parse_change, read_config, run_folder
    from odst.run.directory import RunDir
    from odst.run.execution import execute
    from odst.run.torchrun import first_process
    from odst.run.trust import check_config

    changes = dict(parse_change(text) for text in change or [])
    given = {
        "method.name": method,
        "model.name": model,
        "run.seed": seed,
        "run.device": device,
        "run.stop_on_harm": stop_on_harm or None,
    }
    changes |= {key: value for key, value in given.items() if value is not None}
    settings = read_config(config, changes)
    check_config(config, settings, changes, trust_code)
    parent = None
    if marks or "data.marks" in changes:
        from odst.run.execution import check_marked, feed_back

        marked = RunDir(Path(config), trust_code)
        check_marked(marked, files_of(settings.data.marks) if "data.marks" in changes else (), marks or [])
    if marks:
        settings, parent = feed_back(marked, settings, marks)
        out = out or Path(config).with_name(f"{Path(config).resolve().name}-marked")
    out = run_folder(config, settings, out)
    if dry_run:
        from odst.run.forecast import forecast

        with bars(quiet, verbose):
            seen = forecast(settings, out)
        show(as_json, {"folder": out, **seen.to_json()}, seen.lines)
        return
    with first_process(settings, out) as leading, bars(quiet, verbose) as console:
        if not leading:
            return
        with chosen(engine, address, workers, gpus, shard):
            use = execute(settings, out, fresh=fresh, parent=parent)
    metrics, final = RunDir(out).metrics(), RunDir(out).final() or {}
    alone, then = final.get("labels_alone"), next_steps(out, metrics, shows_pictures(RunDir(out, trust_code)))
    shown: list[Any] = [rounds_table(f"{settings.method.name}, seed {settings.run.seed}", metrics, use, alone)]
    if alone:
        shown.append(f"{alone['says'][0].upper()}{alone['says'][1:]}.")
    width = max(len(command) for command, _ in then)
    named = f"round {use}" if isinstance(use, int) else "your labels alone"
    shown += [f"Use {named}. The run is in {out}", *(f"  {command:<{width}}  # {why}" for command, why in then)]
    found = {"folder": out, **final, "metrics": metrics, "next": [command for command, _ in then]}
    show(as_json, found, shown, console)


def shows_pictures(run: "RunDir") -> bool:
    """Whether there is something of its pool to look at. Only a pool of bare vectors has to be opened to know."""
    info = run.info()
    if len(info["shape"]) > 1 or "encoder" in info:
        return True
    from odst.run.preparation import pool_of

    pool = pool_of(run)
    return pool is not None and pool.shown is not None


def next_steps(out: Path, metrics: list[dict[str, Any]], pictures: bool = True) -> list[tuple[str, str]]:
    """What to type now, and what for."""
    run = shlex.quote(str(out))
    steps = [(f"odst report {run}", "a page: what came out, what was selected, why")]
    if pictures and any(one.get("selected") for one in metrics):
        steps.append((f"odst review {run}", "look at what was selected; marks give a certificate"))
    return [*steps, (f"odst predict {run} SRC --csv labels.csv", "a class or `unknown` for each")]
