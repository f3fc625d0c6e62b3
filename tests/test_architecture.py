"""Data flows one way: a module imports only from what stands above it."""

import ast
from pathlib import Path

import odst

ROOT = Path(odst.__file__).parent
ORDER = [
    "errors", "files", "seeds", "progress", "recipe", "vision", "data", "duplicates", "method", "training", "self_training",
    "evaluation", "run", "classifier", "project", "estimator", "report", "cli",
]  # fmt: skip
DATA = [
    "images", "views", "decoding", "items", "vectors", "workers", "formats.unpickling", "formats.arrays", "formats.folders",
    "formats.tables", "formats.embeddings", "formats.tars", "formats.originals", "exclusions", "pool", "features", "joining", "named.lmdb", "named.conversion",
    "named.catalogue", "named.download", "sources", "shards", "packing", "embedding", "reading", "encoding", "sets", "named.tasks", "worlds", "loading",
    "checks",
]  # fmt: skip


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


def test_imports_point_upwards_inside_data_too():
    folder = ROOT / "data"
    files = {file: ".".join(file.relative_to(folder).with_suffix("").parts) for file in folder.rglob("*.py")}
    for file, own in files.items():
        if file.name == "__init__.py":
            continue
        assert own in DATA, f"data/{own}: where does it stand?"
        others = {module.removeprefix("data.") for module in imported(file) if module.startswith("data.")}
        below = {other for other in others if DATA.index(other) >= DATA.index(own)}
        assert not below, f"data/{own} imports from below: {below}"
    assert set(DATA) <= set(files.values())


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
