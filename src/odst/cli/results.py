"""What a command has found: lines and tables for a person, or with --json exactly one JSON document on standard output."""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Option, echo

if TYPE_CHECKING:
    from rich.console import Console

AsJson = Annotated[bool, Option("--json", help="One JSON document instead of text, for programs.")]


def show(as_json: bool, found: Any, shown: Iterable[Any] = (), console: "Console | None" = None) -> None:
    """`found` as JSON; else `shown`: lines as they are, and tables as wide as the console."""
    if as_json:
        echo(json.dumps(plain(found), indent=2))  # letters beyond ASCII escaped: no terminal changes them
        return
    for one in shown:
        if isinstance(one, str):
            echo(one)
        else:
            from rich.console import Console

            (console or Console()).print(one)


def plain(value: Any) -> Any:
    """What JSON can hold: numbers of numpy as numbers, paths as texts, and null where a number is not finite."""
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if hasattr(value, "_asdict"):
        return plain(value._asdict())
    if hasattr(value, "tolist"):  # of numpy, which not every command imports
        return plain(value.tolist())
    if isinstance(value, list | tuple | set):
        return [plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
