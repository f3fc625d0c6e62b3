"""The pages' templates, and texts that do not say where they were made."""

from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import unquote, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from odst.progress import duration
from odst.report.measures import percent
from odst.report.words import probability


def environment() -> Environment:
    """Everything is escaped; `inline` puts a file of this package, which is ours, into the page."""
    made = Environment(
        loader=PackageLoader("odst", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"percent": percent, "probability": probability, "duration": duration, "code": code}
    made.globals["inline"] = lambda name: Markup((files("odst") / "report" / name).read_text(encoding="utf-8"))
    return made


def code(text: str) -> Markup:
    """What stands between backticks as code, everything escaped."""
    parts = [
        Markup("<code>{}</code>").format(part) if i % 2 else escape(part) for i, part in enumerate(text.split("`"))
    ]
    return Markup("").join(parts)


class Hidden:
    """Names without their place: of an absolute path or file URI stays what is inside the run's folder, or the source's own
    name and what is below it; of what lies in no known source the last name. No folder above a source is kept."""

    def __init__(self, run: Path, sources: Sequence[str] = ()):
        self.root = run.resolve()
        known = (PurePosixPath(spec.partition("?")[0]) for spec in sources)
        # a relative one is seen from where the pool was packed, which nobody has noted: it is found by its names
        self.sources = [[part for part in path.parts if part != ".."] for path in known]

    def __call__(self, text: str) -> str:
        if text.startswith("file:"):
            parts = urlsplit(text)
            mark = f"#{parts.fragment}" if parts.fragment else ""
            return self._short(PurePosixPath(unquote(parts.path))) + mark
        path = PureWindowsPath(text) if PureWindowsPath(text).drive else PurePosixPath(text)
        return self._short(path) if path.is_absolute() else text

    def _short(self, path: PurePath) -> str:
        if path.is_relative_to(self.root):
            return path.relative_to(self.root.parent).as_posix()
        parts = list(path.parts)
        starts = [
            start + len(source) - 1
            for source in self.sources
            if source
            for start in ((0,) if source[0] == "/" else range(len(parts)))
            if parts[start : start + len(source)] == source
        ]
        return "…/" + "/".join(parts[max(starts) :] if starts else parts[-1:])

    def within(self, value: Any) -> Any:
        """The same for every text in a tree of values."""
        if isinstance(value, dict):
            return {key: self.within(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self.within(one) for one in value]
        return self(value) if isinstance(value, str) else value
