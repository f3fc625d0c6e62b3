"""Cells of the CSVs that odst writes and reads: a spreadsheet must not take a name for a formula.

A text that begins with =, +, -, @, a tab or a carriage return gets a ' in front; so does one that begins with ' before any of
these, or what is read could not be told from what was written. A number is no formula: -1.5 stays as it is.
"""

import re
from collections.abc import Iterable
from typing import Any

FORMULA = re.compile(r"'*[=+\-@\t\r]")
NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?|[+-]?(inf|nan)")


def cells(row: Iterable[Any]) -> list[Any]:
    """A row as it is written."""
    return [f"'{value}" if isinstance(value, str) and _is_formula(value) else value for value in row]


def plain(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it was before it was written."""
    return {key: _plain(value) for key, value in row.items()}


def _plain(value: Any) -> Any:
    quoted = isinstance(value, str) and value.startswith("'") and _is_formula(value[1:])
    return value[1:] if quoted else value


def _is_formula(text: str) -> bool:
    return FORMULA.match(text) is not None and NUMBER.fullmatch(text) is None
