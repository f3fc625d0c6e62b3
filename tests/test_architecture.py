"""Data flows one way: a module imports only from what stands above it."""

import ast
from pathlib import Path

import odst

ROOT = Path(odst.__file__).parent
ORDER = [
    "errors", "files", "seeds", "progress", "recipe", "data", "vision", "duplicates", "method", "training", "self_training",
    "evaluation", "run", "classifier", "project", "estimator", "report", "cli",
]  # fmt: skip


def room(module: str) -> str:
    return module.split(".")[1]


def imports(file: Path) -> set[str]:
    tree = ast.parse(file.read_text())
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("odst."):
            found.add(node.module)
        elif isinstance(node, ast.ImportFrom) and node.module == "odst":
            found |= {f"odst.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.startswith("odst.")}
    return {room(module) for module in found}


def test_imports_point_upwards():
    for file in ROOT.rglob("*.py"):
        own = file.relative_to(ROOT).parts[0].removesuffix(".py")
        if own == "__init__":
            continue
        assert own in ORDER, f"{own}: where does it stand?"
        below = {other for other in imports(file) if ORDER.index(other) > ORDER.index(own)}
        assert not below, f"{file.relative_to(ROOT)} imports from below: {below}"


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
