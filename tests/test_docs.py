"""What the pages say can be typed: their links, commands and config keys are there, and the reference is what the code says."""

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.main import get_command

from commands import odst
from odst.cli import app
from odst.run.config import Config, _keys

ROOT = Path(__file__).parent.parent
PAGES = sorted([*(ROOT / "docs").rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "AGENTS.md"])
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
WRITTEN = "docs/reference/"  # by tools/reference.py


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_of_a_page_leads_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
        if re.match(r"https?://|mailto:", target):
            continue
        place, _, anchor = target.partition("#")
        there = (page.parent / place).resolve() if place else page
        assert there.exists(), f"{name(page)} links to {target}"
        if page.is_relative_to(ROOT / "docs"):
            assert there.is_relative_to(ROOT / "docs"), f"{name(page)}: {target} is not on the site; write it as `code`"
        assert not anchor or anchor in anchors(there), f"{name(page)}: {target} names no heading"


def commands(page: Path) -> list[str]:
    """The lines of a page's code blocks that call odst, continued lines joined and comments cut."""
    found = []
    for kind, block in FENCE.findall(page.read_text(encoding="utf-8")):
        if kind in ("", "sh", "bash", "console"):
            for line in block.replace("\\\n", " ").splitlines():
                line = line.strip().removeprefix("$ ")
                line = re.sub(r"^(?:srun|torchrun .*--no-python|[A-Z_]+=\S+|time) +", "", line)
                if line.startswith("odst ") and "…" not in line:
                    found.append(line)
    return found


@pytest.mark.parametrize("page", [page for page in PAGES if WRITTEN not in name(page)], ids=name)
def test_every_command_of_a_page_is_one_that_odst_understands(page: Path) -> None:
    odst("--help")  # registers the commands
    for line in commands(page):
        words = shlex.split(
            line.replace("[", "").replace("]", "").partition(" > ")[0].partition(" | ")[0], comments=True
        )[1:]
        command, context = get_command(app), None
        while hasattr(command, "commands") and words and not words[0].startswith("-"):
            found, command, words = command.resolve_command(context, words)
            assert command is not None, f"{name(page)}: {line}"
        if not hasattr(command, "commands"):
            try:
                command.make_context(found, [word for word in words if word not in ("...", "&")])
            except Exception as error:  # a usage error, whichever click's version calls it
                pytest.fail(f"{name(page)}: {line}: {error}")


def known(keys: tuple[str, ...]) -> bool:
    kind = Config
    for i, key in enumerate(keys):
        names = _keys(kind)
        if key not in names:
            return keys[:2] == ("data", "out_test") and i == 2
        kind = names[key]
    return True


def flat(values: dict, prefix: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for key, value in values.items():
        tables = [value] if isinstance(value, dict) else value if isinstance(value, list) else []
        inside = [one for one in tables if isinstance(one, dict)]
        found += [keys for one in inside for keys in flat(one, (*prefix, key))] or [(*prefix, key)]
    return found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_config_key_of_a_page_is_one(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for kind, block in FENCE.findall(text):
        if kind == "toml":
            for keys in flat(tomllib.loads(block)):
                assert known(keys), f"{name(page)}: {'.'.join(keys)}"
    sections = "|".join(Config.model_fields)
    mentioned = re.findall(rf"`({sections})\.([a-z_]+)(?:\.[a-z_]+)?(?: ?=[^`]*)?`", FENCE.sub("", text))
    for section, key in mentioned:
        if f"{section}.{key}" not in ("run.json", "data.parquet") and key not in (
            "py",
            "toml",
            "md",
            "csv",
            "safetensors",
        ):
            assert known((section, key)), f"{name(page)}: {section}.{key}"


@pytest.mark.skipif(
    tuple(map(int, version("typer").split(".")[:2])) < (0, 29), reason="typer wrote the help of commands in other words"
)
def test_the_reference_is_what_the_code_says() -> None:
    end = subprocess.run([sys.executable, ROOT / "tools" / "reference.py", "--check"], capture_output=True, text=True)
    assert end.returncode == 0, end.stderr


def test_the_site_has_a_place_for_every_page_and_builds_strictly(tmp_path: Path) -> None:
    pytest.importorskip("zensical")
    settings = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))
    placed = set(re.findall(r"'([\w/.-]+\.md)'", str(settings["project"]["nav"])))
    there = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.is_relative_to(ROOT / "docs")}
    assert placed == there
    copy = tmp_path / "site"
    shutil.copytree(ROOT / "docs", copy / "docs")
    for part in ("zensical.toml", "CHANGELOG.md", "benchmarks/README.md"):
        (copy / part).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / part, copy / part)
    end = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"], cwd=copy, capture_output=True, text=True
    )
    assert end.returncode == 0, end.stdout + end.stderr
    assert "Unreleased" in (copy / "site" / "changelog.html").read_text(encoding="utf-8")
