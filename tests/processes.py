"""A command as the shell calls it, in this process: exit code, standard output, standard error."""

import contextlib
import io
import sys
from typing import NamedTuple

from odst.cli import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


def odst(*words: object) -> Result:
    out, err, argv = io.StringIO(), io.StringIO(), sys.argv
    sys.argv = ["odst", *map(str, words)]
    code = 0
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
    finally:
        sys.argv = argv
    return Result(code, out.getvalue(), err.getvalue())


def fails(*words: object) -> str:
    """The one line that a command leaves when it exits with 2; stages that were finished before may stand above it."""
    result = odst(*words)
    assert result.code == 2, result
    said = [line for line in result.err.splitlines() if line.startswith("odst: ")]
    assert len(said) == 1 and result.err.splitlines()[-1] == said[0], result.err
    return said[0]
