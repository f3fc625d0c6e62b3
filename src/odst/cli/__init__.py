"""The commands. `main` turns a mistake into one line and exit code 2."""

import errno
import sys

import typer

from odst.errors import UserError, is_out_of_memory

app = typer.Typer(
    name="odst",
    help="Out-distribution aware self-training: a small labelled set, a huge messy pool, a classifier that knows "
    "when it does not know. Start with: odst demo",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run a command; what a user can mend is one line on stderr and exit code 2."""
    from odst.cli import commands  # noqa: F401  (registers every command on `app`)

    try:
        app()
    except UserError as error:
        sys.exit(_fail(str(error)))
    except OSError as error:
        advice = {
            errno.ENOSPC: "the disk is full. Free some space and give the same command again: it goes on where it stopped.",
            errno.EACCES: "permission denied. Give yourself the right to read or write there, or choose another place.",
            errno.ENOTDIR: "a file stands where a folder is needed. Choose another place.",
            errno.EEXIST: "a file stands where a folder is needed. Choose another place.",
            errno.EROFS: "the file system is read-only. Choose a folder you may write to.",
        }.get(error.errno or 0)
        if advice is None:
            raise
        sys.exit(_fail(f"{error.filename or 'writing'}: {advice}"))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        reason = (str(error).splitlines() or ["no memory left"])[0]
        sys.exit(
            _fail(
                f"out of memory ({reason}). Bring the images to a smaller data.size, take a smaller network in model.name, "
                "or use --device cpu."
            )
        )
    except SystemExit as end:
        if end.code == 130:  # Ctrl-C
            print("odst: interrupted. The same command goes on where it stopped.", file=sys.stderr)
        raise


def _fail(message: str) -> int:
    print(f"odst: {' '.join(message.split())}", file=sys.stderr)
    return 2
