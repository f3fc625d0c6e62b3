"""odst methods."""

from typing import Any

from odst.cli import app
from odst.cli.results import AsJson, show


@app.command()
def methods(as_json: AsJson = False) -> None:
    """List the named methods and what each changes against odst.

    Example: odst methods
    """
    from rich.table import Table

    from odst.recipe import METHODS
    from odst.run.config import recipe_changes

    table = Table(box=None, pad_edge=False)
    for heading in ("method", "what it is", "changes against odst"):
        table.add_column(heading)
    found: dict[str, dict[str, Any]] = {
        name: {"what": what, "changes": recipe_changes(recipe)} for name, (recipe, what) in METHODS.items()
    }
    for name, one in found.items():
        table.add_row(name, one["what"], ", ".join(f"{key}={value}" for key, value in one["changes"].items()) or "–")
    show(as_json, found, [table])
