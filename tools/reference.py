"""Write docs/reference/: every command from its own help, every public name from its docstring, every config key with its
type, default and the reason that stands beside it in the code, every preset with what it says of itself.

python tools/reference.py           writes the pages
python tools/reference.py --check   exits with 2 where a page is not what the code says
"""

import ast
import inspect
import os
import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from itertools import takewhile
from pathlib import Path
from typing import Any

os.environ |= {"COLUMNS": "100", "TERM": "dumb"}

from click import Context
from typer.main import get_command

import odst
from odst.cli import COMMANDS, WELCOME, app
from odst.data.sets import DataSection
from odst.recipe import Recipe
from odst.run.config import PRESETS, Config, MethodSection, ModelSection, RunSection, TrainingSection, presets
from odst.training.schedule import Phase, Schedule

HERE = Path(__file__).parent.parent / "docs" / "reference"
MADE = "<!-- Written by tools/reference.py: change the code, then `make docs`. -->\n\n"


def main() -> None:
    pages = {"cli.md": cli_page(), "api.md": api_page(), "config.md": config_page(), "presets.md": presets_page()}
    stale = []
    for name, text in pages.items():
        file = HERE / name
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv[1:]:
                file.parent.mkdir(exist_ok=True)
                file.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv[1:]:
        sys.exit(f"docs/reference/{stale[0]} is not what the code says. Type: make docs")


# commands ------------------------------------------------------------------------------------------------------------------


def cli_page() -> str:
    for name in COMMANDS:
        __import__(f"odst.cli.{name}")
    parts = [MADE, "# Commands\n\n`odst` alone says where to begin:\n\n", f"```\n{WELCOME}\n```\n"]
    for words, command in walk(get_command(app), ("odst",)):
        title = " ".join(words)
        help_ = command.get_help(Context(command, info_name=title, max_content_width=100))
        parts.append(f"\n## {title}\n\n```\n{help_.rstrip()}\n```\n")
    return "".join(parts)


def walk(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name in command.list_commands(None):
        one = command.commands[name]
        yield (*words, name), one
        if hasattr(one, "commands"):
            yield from walk(one, (*words, name))


# public names --------------------------------------------------------------------------------------------------------------


def api_page() -> str:
    parts = [MADE, "# Python names\n\nAll of `from odst import …`. [The Python API](../api.md) shows them at work.\n"]
    for name in sorted(odst.__all__, key=str.lower):
        parts.append(f"\n## {name}\n\n{described(getattr(odst, name), name)}\n")
    return "".join(parts)


def described(value: Any, name: str) -> str:
    if isinstance(value, dict):
        rows = [f"| `{key}` | {what} |" for key, (_, what) in value.items()]
        return "\n".join(
            ["The named methods: each a recipe and what it is.\n", "| method | what |", "|---|---|", *rows]
        )
    if not callable(value):
        return f"A `{type(value).__name__}`:\n\n```python\n{textwrap.fill(repr(value), 110, subsequent_indent='    ')}\n```"
    doc = inspect.getdoc(value)
    if not doc:
        raise SystemExit(f"odst.{name} has no docstring")
    text = f"```python\n{signature(value, name)}\n```\n\n{doc}\n"
    if is_dataclass(value):
        text += "\n" + table(rows_of(value)) + "\n"
    elif inspect.isclass(value):
        for method, function in inspect.getmembers(value, inspect.isfunction):
            if not method.startswith("_") and method in value.__dict__:
                told = inspect.getdoc(function) or ""
                text += f"\n### {name}.{method}\n\n```python\n{signature(function, method)}\n```\n\n{told}\n"
    return text.rstrip()


def signature(value: Any, name: str) -> str:
    one = f"{name}{inspect.signature(value)}"
    one = re.sub(r"\b(?:[a-z_]+\.)+(?=[A-Za-z])", "", one.replace("collections.abc.", ""))
    if len(one) <= 100:
        return one
    inside, _, back = one.partition("(")[2].rpartition(")")
    return f"{name}(\n" + "".join(f"    {part},\n" for part in split(inside)) + f"){back}"


def split(arguments: str) -> Iterator[str]:
    """At the commas that are not inside brackets."""
    depth, start = 0, 0
    for i, letter in enumerate(arguments):
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            yield arguments[start:i].strip()
            start = i + 1
    yield arguments[start:].strip()


# config keys ---------------------------------------------------------------------------------------------------------------


def config_page() -> str:
    sections = [
        ("data", DataSection, {}),
        ("method", Recipe, {"name": ("text", '"odst"', METHOD_NAME)}),
        ("model", ModelSection, {}),
        ("training", Schedule, {"students": ("list of tables", "[]", reasons(TrainingSection)["students"])}),
        ("training.phases", Phase, {}),
        ("run", RunSection, {}),
    ]
    assert {name.partition(".")[0] for name, *_ in sections} == set(Config.model_fields)
    parts = [
        MADE,
        "# Every key of a config\n\nA config is TOML. `odst init` writes one with a reason on every line; `--set SECTION.KEY=VALUE`\n"
        "changes one key of a run. What has no default and is not given is left out, or asked for in one line.\n",
    ]
    for name, kind, more in sections:
        heading = f"[[{name}]]" if name == "training.phases" else f"[{name}]"
        told = " ".join((inspect.getdoc(kind) or "").split())
        rows = [row for row in rows_of(kind) if name != "method" or row[0] not in NO_KEYS]
        rows = [(f"`{key}`", *values) for key, values in more.items()] + rows
        parts.append(f"\n## `{heading}`\n\n{told}\n\n{table(rows)}\n")
    return "".join(parts)


def presets_page() -> str:
    parts = [
        MADE,
        "# Presets\n\nConfigs by name: `odst run NAME`. What each says of itself: its command, what it needs, how long it takes, and for\n"
        "the paper's experiments the numbers to compare with.\n",
    ]
    for name in presets():
        lines = (PRESETS / f"{name}.toml").read_text(encoding="utf-8").splitlines()
        head = [
            line.removeprefix("#").removeprefix(" ") for line in takewhile(lambda line: line.startswith("#"), lines)
        ]
        parts.append("\n".join([f"\n## {name}\n", "```", *head, "```\n"]))
    return "".join(parts)


METHOD_NAME = "a named method of `odst methods`; the keys below change it"
NO_KEYS = {f"`{f.name}`" for f in fields(Recipe)} - {
    f"`{name}`" for name in MethodSection.model_fields
}  # named methods set them


def table(rows: list[tuple[str, str, str, str]]) -> str:
    escaped = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    return "\n".join(
        ["| key | type | default | what it does |", "|---|---|---|---|", *(f"| {row} |" for row in escaped)]
    )


def rows_of(kind: type) -> list[tuple[str, str, str, str]]:
    why = reasons(kind)
    if missing := [name for name in field_names(kind) if not why.get(name)]:
        raise SystemExit(f"{kind.__module__}.{kind.__name__}: no comment beside {', '.join(missing)}")
    return [(f"`{name}`", f"`{type_of(kind, name)}`", default_of(kind, name), why[name]) for name in field_names(kind)]


def field_names(kind: type) -> list[str]:
    return [f.name for f in fields(kind)] if is_dataclass(kind) else list(kind.model_fields)  # type: ignore[attr-defined]


def default_of(kind: type, name: str) -> str:
    if is_dataclass(kind):
        field = next(f for f in fields(kind) if f.name == name)
        if field.default is MISSING and field.default_factory is MISSING:
            return "to be given"
        value = field.default if field.default is not MISSING else field.default_factory()  # type: ignore[misc]
    else:
        field = kind.model_fields[name]  # type: ignore[attr-defined]
        if field.is_required():
            return "to be given"
        value = field.default
    if value is None:
        return "none"
    text = (
        str(value).lower() if isinstance(value, bool) else str(list(value)) if isinstance(value, tuple) else repr(value)
    )
    return f"`{text}`".replace("'", '"')


def source_of(kind: type) -> tuple[ast.ClassDef, list[str]]:
    lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    return ast.parse("\n".join(lines)).body[0], lines  # type: ignore[return-value]


def type_of(kind: type, name: str) -> str:
    for base in kind.__mro__:
        if name in inspect.get_annotations(base):
            body, _ = source_of(base)
            node = next(n for n in body.body if isinstance(n, ast.AnnAssign) and n.target.id == name)  # type: ignore[union-attr]
            text = re.sub(r"Annotated\[([^,\]]+(?:\[[^\]]*\])?), Field\([^)]*\)\]", r"\1", ast.unparse(node.annotation))
            return text.replace(" | None", "").replace("None | ", "").replace("'", '"')
    raise AssertionError(name)


def reasons(kind: type) -> dict[str, str]:
    """The comment behind each field, or on the lines before it."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.split(".")[0] != "odst":
            continue
        try:
            body, lines = source_of(base)
        except (OSError, TypeError):
            continue
        for node in body.body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                inside = lines[node.lineno - 1 : node.end_lineno]
                comment = next((c for line in inside if (c := comment_of(line))), "")
                above = node.lineno - 2
                while not comment and above > 0 and lines[above].strip().startswith("#"):
                    comment = f"{lines[above].strip().lstrip('# ')} {comment}".strip()
                    above -= 1
                found[node.target.id] = comment
    return found


def comment_of(line: str) -> str:
    match = re.search(r"\s#\s(?!type:|noqa|fmt:)(.*)$", line)
    return match[1].strip() if match else ""


if __name__ == "__main__":
    main()
