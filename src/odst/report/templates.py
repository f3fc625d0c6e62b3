"""The pages' templates, and texts that do not say where they were made."""

import re
from importlib.resources import files
from pathlib import Path, PurePosixPath
from urllib.parse import unquote, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from odst.report import words


def environment() -> Environment:
    """Everything is escaped; `inline` puts a file of this package, which is ours, into the page."""
    made = Environment(
        loader=PackageLoader("odst", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"percent": words.percent, "probability": words.probability, "duration": words.duration}
    made.globals["inline"] = lambda name: Markup((files("odst") / "report" / name).read_text(encoding="utf-8"))
    return made


class Hidden:
    """Texts without the places in them: a path or file URI becomes what it is called below the run's folder, or its last two
    names."""

    def __init__(self, run: Path):
        self.root = run.resolve().parent

    def __call__(self, text: str) -> str:
        return re.sub(r"(?:file://)?(?:/|[A-Za-z]:[\\/])[^\s\"'<>#?]*", lambda found: self._short(found[0]), text)

    def _short(self, place: str) -> str:
        path = PurePosixPath(unquote(urlsplit(place).path) if place.startswith("file:") else place)
        if path.is_relative_to(self.root):
            return str(path.relative_to(self.root))
        return "…/" + "/".join(path.parts[-2:]) if len(path.parts) > 2 else str(path)
