"""A stranger's run is not code. What its config would import is imported only for somebody who says that he trusts it.

A config that a user himself gives to `odst run` is his own, like a script that he starts. A run directory is data: it may
come from anybody. SECURITY.md has the whole of it.
"""

from collections.abc import Collection
from pathlib import Path

from odst.errors import UserError
from odst.run.config import CONFIG_FILE, Config
from odst.run.directory import RunDir


def imported_by(spec: str | None) -> str | None:
    """The package.module:function that a network's or a backbone's name would import; None where it is one of ours or of
    an installed library's, which run no code of a file."""
    kind, colon, rest = (spec or "").partition(":")
    if kind == "torch":
        return rest.rpartition("#")[2].partition("?")[0].partition("@")[0]
    return spec if colon and kind not in ("timm", "hf", "onnx") else None


def check_code(place: Path, spec: str | None, trusted: bool) -> None:
    """Refuse to build what the run or the model at this place names if that would run code and nobody has said that it may."""
    code = imported_by(spec)
    if code is not None and not trusted:
        raise UserError(
            f"{place}: its config asks to import {code}, which runs whatever that holds. If you trust whoever made this run, "
            "say so with --trust-code (trust_code=True in Python)."
        )


def check_config(name: str, config: Config, given: Collection[str], trust_code: bool) -> None:
    """The same for `odst run NAME`, where NAME is a run directory or the config inside one. `given` are the keys that came
    from the command line: what they name is the user's own."""
    folder = Path(name).parent if Path(name).name == CONFIG_FILE else Path(name)
    run = RunDir(folder, trust_code)
    if run.begun() and (run.exists() or folder == Path(name)):
        for key, spec in (("model.name", config.model.name), ("model.backbone", config.model.backbone)):
            if key not in given:
                check_code(folder, spec, trust_code)
