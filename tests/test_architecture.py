"""Data flows one way: a module imports only from what stands above it."""

import ast
import re
from pathlib import Path

import pytest

import odst

ROOT = Path(odst.__file__).parent
ORDER = [
    "errors", "files", "holders", "locks", "seeds", "progress", "engine", "recipe", "vision", "data", "duplicates", "method", "training", "rounds",
    "few_labels", "self_training",
    "evaluation", "run", "classifier", "exchange", "project", "estimator", "report", "cli",
]  # fmt: skip
DATA = [
    "cells", "images", "copies", "remote", "mapped", "unchanged", "views", "decoding", "items", "pictures", "vectors", "workers", "formats.unpickling", "formats.arrays", "formats.folders",
    "formats.tables", "formats.embeddings", "formats.tars", "formats.originals", "exclusions", "pool", "features", "joining", "named.lmdb", "named.conversion",
    "named.catalogue", "named.download", "sources", "visible", "addresses", "shards", "part_files", "repeats", "packing", "embedding", "reading", "encoding", "sets", "named.tasks", "worlds", "loading",
    "checks",
]  # fmt: skip


RUN = [
    "config",
    "journal",
    "sealed",
    "selection_file",
    "round_note",
    "round_folder",
    "bases",
    "directory",
    "trust",
    "marks",
    "feedback",
    "identity",
    "preparation",
    "quick_base",
    "outlook",
    "audit",
    "first_round",
    "execution",
    "torchrun",
    "forecast",
]
OWNERS = {  # of the names of a run's files
    **dict.fromkeys(("config.toml", "forecast.json"), "run/config.py"),
    "bases.json": "run/bases.py",
    **dict.fromkeys(
        ("run.json", "final.json", "metrics.jsonl", "timings.jsonl", "log.txt", "audit.json"), "run/directory.py"
    ),
    **dict.fromkeys(
        ("round.json", "selection.parquet", "model.safetensors", "logits.safetensors"), "run/round_folder.py"
    ),
}  # fmt: skip


def imported(file: Path) -> set[str]:
    """Every module of odst that a file imports, inside its functions too, without the leading odst."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith("odst."):
            inside = ROOT.parent / str(node.module).replace(".", "/")
            names = [alias.name for alias in node.names]
            modules = [name for name in names if (inside / name).is_dir() or (inside / f"{name}.py").is_file()]
            found |= {f"{node.module}.{name}" for name in modules} or {str(node.module)}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("odst.")}
    return {module.removeprefix("odst").removeprefix(".") for module in found} - {""}


def imports(file: Path) -> set[str]:
    return {module.split(".")[0] for module in imported(file)}


def test_imports_point_upwards():
    for file in ROOT.rglob("*.py"):
        own = file.relative_to(ROOT).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        assert own in ORDER, f"{own}: where does it stand?"
        below = {other for other in imports(file) if ORDER.index(other) > ORDER.index(own)}
        assert not below, f"{file.relative_to(ROOT)} imports from below: {below}"


@pytest.mark.parametrize(("name", "order"), [("data", DATA), ("run", RUN)])
def test_imports_point_upwards_inside_a_room_too(name: str, order: list[str]) -> None:
    folder = ROOT / name
    files = {file: ".".join(file.relative_to(folder).with_suffix("").parts) for file in folder.rglob("*.py")}
    for file, own in files.items():
        if file.name == "__init__.py":
            continue
        assert own in order, f"{name}/{own}: where does it stand?"
        others = {module.removeprefix(f"{name}.") for module in imported(file) if module.startswith(f"{name}.")}
        below = {other for other in others if order.index(other) >= order.index(own)}
        assert not below, f"{name}/{own} imports from below: {below}"
    assert set(order) <= set(files.values())


def texts(file: Path) -> list[str]:
    """The strings of a file that are values: docstrings tell, they do not name."""
    tree = ast.parse(file.read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in told]
    return [node.value for node in found if isinstance(node.value, str)]


def test_one_module_names_each_file_of_a_run() -> None:
    for file in ROOT.rglob("*.py"):
        place = str(file.relative_to(ROOT))
        if place.startswith(("data/", "vision/")):  # which stand above runs; published weights have such names too
            continue
        for name, owner in OWNERS.items():
            named = [text for text in texts(file) if text == name or text.endswith(f"/{name}")]
            assert not named or place == owner, f"{place} names {name}, which is {owner}'s"


def test_nobody_imports_a_run_for_a_helper() -> None:
    """What comes after a run may open its directory, ask for its sets and start one; devices, statistics and the like are above."""
    offered = {
        "run.audit", "run.bases", "run.config", "run.directory", "run.execution", "run.forecast", "run.marks", "run.outlook", "run.preparation",
        "run.quick_base", "run.round_folder", "run.round_note", "run.selection_file", "run.torchrun", "run.trust",
    }  # fmt: skip
    helpers = {"pick_device", "statistics", "resolve", "fingerprint", "digest", "make_network"}
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("odst.run"):
                assert str(node.module).removeprefix("odst.") in offered or file.parent.name == "run", file
                assert not helpers & {alias.name for alias in node.names}, file


def test_no_file_is_longer_than_three_hundred_lines():
    lengths = {file.relative_to(ROOT): len(file.read_text().splitlines()) for file in ROOT.rglob("*.py")}
    assert {str(file): n for file, n in lengths.items() if n > 300} == {}


def test_the_loop_fits_on_a_screen():
    tree = ast.parse((ROOT / "self_training.py").read_text())
    loop = next(node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "self_train")
    assert loop.end_lineno - loop.lineno < 75


def test_the_core_does_without_torchvision_and_its_kin():
    banned = {"torchvision", "timm", "lpips", "kornia", "faiss"}
    for file in ROOT.rglob("*.py"):
        for node in ast.parse(
            file.read_text()
        ).body:  # module level; an optional extra may be imported inside a function
            names = (
                [node.module or ""]
                if isinstance(node, ast.ImportFrom)
                else [a.name for a in getattr(node, "names", [])]
            )
            assert not {str(name).split(".")[0] for name in names if name} & banned, file


def test_nothing_unpickles_but_the_restricted_reader():
    for file in ROOT.rglob("*.py"):
        text = file.read_text()
        assert "allow_pickle=True" not in text, file
        assert "weights_only=False" not in text, file
        unpickles = any(call in text for call in ("pickle.load", "pickle.Unpickler", "from pickle"))
        assert not unpickles or file.name == "unpickling.py", file


def test_the_readme_has_a_line_for_every_file_of_the_top_two_levels() -> None:
    tree = (ROOT.parent.parent / "README.md").read_text(encoding="utf-8").partition("## Find your way")[2]
    for file in [*ROOT.glob("*.py"), *ROOT.glob("*/*.py")]:
        assert file.name == "__init__.py" or f"{file.name} " in tree or f"{file.name}\n" in tree, file


def test_every_module_that_a_page_of_the_docs_names_is_there() -> None:
    for page in sorted((ROOT.parent.parent / "docs").rglob("*.md")):
        for name in re.findall(r"`([a-z_/]+\.py)", page.read_text(encoding="utf-8")):
            there = any((place / name).is_file() for place in (ROOT, ROOT.parent.parent))
            assert there or any(ROOT.parent.parent.glob(f"**/{name}")), f"{page.name} names {name}"
