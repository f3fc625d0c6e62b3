"""odst methods."""

from odst.cli import app


@app.command()
def methods() -> None:
    """List the named methods and what each changes against odst.

    Example: odst methods
    """
    from rich.console import Console
    from rich.table import Table

    from odst.recipe import METHODS
    from odst.run.config import recipe_changes

    table = Table(box=None, pad_edge=False)
    for heading in ("method", "what it is", "changes against odst"):
        table.add_column(heading)
    for name, (recipe, what) in METHODS.items():
        table.add_row(name, what, ", ".join(f"{key}={value}" for key, value in recipe_changes(recipe).items()) or "–")
    Console().print(table)
