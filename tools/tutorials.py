"""Run a tutorial as a reader would: its `python` blocks in one namespace and its `sh` blocks in a shell, in one folder.

python tools/tutorials.py PAGE              runs it in a temporary folder and prints what it prints
python tools/tutorials.py PAGE --notebook   writes PAGE.ipynb beside it, with the outputs of this run
"""

import contextlib
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

FENCE = re.compile(r"^```(\w*)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)


class Part(NamedTuple):
    kind: str  # markdown, python or sh; other blocks are markdown
    text: str


# where odst is not there yet, as in Colab
INSTALL = Part("python", "%pip install --quiet odst")


def parts(page: Path) -> list[Part]:
    text, found, at = page.read_text(encoding="utf-8"), [], 0
    for match in FENCE.finditer(text):
        if match[1] in ("python", "sh"):
            found += [Part("markdown", text[at : match.start()].strip()), Part(match[1], match[2].rstrip())]
            at = match.end()
    found.append(Part("markdown", text[at:].strip()))
    return [part for part in found if part.text]


def run(page: Path, folder: Path) -> Iterator[tuple[Part, str]]:
    """Each part with what it printed; a block that fails ends it with an error."""
    namespace: dict[str, Any] = {}
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    for part in parts(page):
        out = io.StringIO()
        if part.kind == "python":
            with contextlib.redirect_stdout(out), contextlib.chdir(folder):
                exec(compile(part.text, str(page), "exec"), namespace)
        elif part.kind == "sh":
            for line in part.text.splitlines():
                end = subprocess.run(
                    line, shell=True, cwd=folder, env=os.environ | {"PATH": path, "COLUMNS": "100"}, text=True,
                    capture_output=True,
                )  # fmt: skip
                if end.returncode:
                    raise RuntimeError(f"{page.name}: {line}\n{end.stdout}{end.stderr}")
                out.write(end.stdout)
        yield part, out.getvalue()


def notebook(done: list[tuple[Part, str]]) -> dict[str, Any]:
    cells = []
    for part, printed in done:
        text = part.text if part.kind != "sh" else "\n".join(f"!{line}" for line in part.text.splitlines())
        cell: dict[str, Any] = {
            "cell_type": "markdown" if part.kind == "markdown" else "code",
            "id": hashlib.sha256(text.encode()).hexdigest()[:8],
            "metadata": {},
            "source": text.splitlines(keepends=True),
        }
        if cell["cell_type"] == "code":
            stream = {"output_type": "stream", "name": "stdout", "text": printed.splitlines(keepends=True)}
            cell |= {"execution_count": None, "outputs": [stream] if printed else []}
        cells.append(cell)
    kernel = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return {"cells": cells, "metadata": kernel, "nbformat": 4, "nbformat_minor": 5}


def main() -> None:
    page = Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        done = []
        for part, printed in run(page, Path(folder)):
            done.append((part, printed.replace(folder, "")))
            if part.kind != "markdown":
                print(f"\n>>> {part.text}\n{printed}")
    if "--notebook" in sys.argv[2:]:
        made = notebook([done[0], (INSTALL, ""), *done[1:]])
        page.with_suffix(".ipynb").write_text(json.dumps(made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
