"""The commands, one module each. `main` turns a mistake into one line and exit code 2."""

import sys

try:
    from importlib import import_module
    from pathlib import Path
    from typing import Annotated, Any, Literal

    import typer
    from typer.core import TyperGroup

    from odst.cli.ending import advice, fall_back_to_plain_signs, say, stoppable
    from odst.cli.results import show
    from odst.engine.interface import ShareDone
except KeyboardInterrupt:  # half of the time a command takes to start is spent here
    sys.exit(130)

COMMANDS = (  # in the order they are used, which is that of `odst --help`
    "demo", "init", "forecast", "run", "report", "review", "audit", "predict", "evaluate", "compare", "export", "selection", "pool", "dedup", "status", "data", "methods", "doctor",
)  # fmt: skip


class InOrderOfUse(TyperGroup):
    def list_commands(self, ctx: Any) -> list[str]:
        return sorted(self.commands, key=COMMANDS.index)


app = typer.Typer(
    name="odst",
    cls=InOrderOfUse,
    help="Out-distribution aware self-training: a small labelled set, a huge messy pool, a classifier that knows "
    "when it does not know.\n\nExample: odst demo",
    invoke_without_command=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

WELCOME = """\
odst: a small labelled image set, a huge messy pool of unlabelled images,
and a classifier that gets better and knows when it does not know.

  odst demo                    watch it on real digits, about a minute
  odst init my_project --labelled photos/labelled --pool photos/unsorted
                               your own folders: looks at them, writes a config
  odst run my_project/odst.toml
                               trains, selects, trains again; ends with a result

All commands: odst --help. Is everything installed: odst doctor"""


@app.callback()
def welcome(context: typer.Context) -> None:
    if context.invoked_subcommand is None:
        print(WELCOME)


# options of several commands
Fit = Literal["crop", "pad", "stretch"]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")]
Round = Annotated[str | None, typer.Option(help="Another round than the one to use, or labels-alone.")]
RunFit = Annotated[str | None, typer.Option(help="How pictures are brought to size [default: as in the run].")]
Device = Annotated[str | None, typer.Option(help="auto, cpu, cuda or mps.")]
Images = Annotated[bool, typer.Option("--images/--no-images", help="Embed pictures of the pool.")]
RelativePaths = Annotated[bool, typer.Option("--relative-paths", help="Name no place outside the run's folder.")]
TrustCode = Annotated[bool, typer.Option("--trust-code", help="Import the run's own network: that runs its code.")]
FollowLinks = Annotated[bool, typer.Option("--follow-links", help="Also links that lead out of a source folder.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Move old runs aside and begin anew.")]
Where = Annotated[
    str | None, typer.Option("--engine", metavar="local|ray", help="Where work runs [default: local, or ODST_ENGINE].")
]
Address = Annotated[str | None, typer.Option(metavar="HOST:PORT", help="Of a Ray cluster.")]
Workers = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Processes, or tasks at a time [default: one per core].")
]
Gpus = Annotated[float, typer.Option("--gpus-per-worker", metavar="N", min=0, help="With Ray.", show_default=False)]
Shard = Annotated[
    str | None, typer.Option(metavar="i/n", help="Do one share: 0/n to n-1/n, or slurm; a call without it joins them.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Only results and warnings.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Everything that is logged.")]


def main() -> None:
    """Run a command; what a user can mend is one line on stderr and exit code 2."""
    fall_back_to_plain_signs()
    code: int | str | None
    with stoppable() as stopped:
        try:
            for name in COMMANDS:
                import_module(f"odst.cli.{name}")  # which registers it on `app`
            app()
        except KeyboardInterrupt:
            code = 130
        except SystemExit as end:
            code = end.code
        except ShareDone as done:
            show("--json" in sys.argv, {"share_done": str(done)}, [str(done)])
            code = 0
        except Exception as error:
            line = advice(error)
            if line is None and not stopped:
                raise
            if not stopped:  # else a process that was stopped together with this one may have failed first
                say(line or "")
            code = 2
    if code == 130:
        say("interrupted. The same command goes on where it stopped.")
    elif stopped:
        code = 128 + stopped[0]
        say("stopped. The same command goes on where it stopped.")
    sys.exit(code)
