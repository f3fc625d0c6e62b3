"""What `odst --help` and every command's own help say, in a terminal of 80 columns."""

import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from typer.main import get_command

from commands import odst
from odst.cli import COMMANDS, app


def commands(group: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The words of every command, those of groups included."""
    for name, command in group.commands.items():
        yield (*words, name)
        if hasattr(command, "commands"):
            yield from commands(command, (*words, name))


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_commands_are_listed_in_the_order_they_are_used_and_none_is_cut_short() -> None:
    lines = odst("--help").out.split("Commands:\n")[1].splitlines()
    assert tuple(line.split()[0] for line in lines) == COMMANDS
    assert COMMANDS[:6] == ("demo", "init", "forecast", "run", "report", "review")
    for words in ((), ("pool",), ("data",)):
        assert "..." not in odst(*words, "--help").out.split("Commands:\n")[1]


def test_every_help_ends_with_an_example_on_one_line_that_the_command_understands() -> None:
    odst("--help")  # registers the commands
    for words in [(), *commands(get_command(app))]:
        text, *_ = odst(*words, "--help").out.partition("\n\nOptions:")
        text, *_ = text.partition("\n\nArguments:")
        before, last = text.splitlines()[-2:]
        assert before == "" and last.startswith(f"  Example: {' '.join(('odst', *words))}"), words
        command, context, rest = get_command(app), None, shlex.split(last)[2:]
        while hasattr(command, "commands"):
            name, command, rest = command.resolve_command(context, rest)
            assert command is not None, last
        command.make_context(name, rest)  # raises for an option or argument that it does not take


def test_no_option_is_so_long_that_its_help_begins_on_the_next_line() -> None:
    """It would also squeeze the help of all the others into half of the screen."""
    odst("--help")  # registers the commands
    for words in commands(get_command(app)):
        for line in odst(*words, "--help").out.partition("\nOptions:\n")[2].splitlines():
            assert not line.startswith("  -") or "  " in line.strip(), (words, line)
