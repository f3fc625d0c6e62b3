"""The tutorials run as they stand, from the first line to the last, and the notebook is the same page."""

import json
import shutil
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parent.parent
PAGES = sorted((ROOT / "docs" / "tutorials").glob("*.md"))

sys.path.insert(0, str(ROOT / "tools"))
from tutorials import INSTALL, Part, notebook, parts, run  # noqa: E402

sys.path.pop(0)


def printed(page: str, folder: Path) -> str:
    """All that a tutorial prints."""
    return "\n".join(text for _, text in run(ROOT / "docs" / "tutorials" / page, folder))


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODST_DATA", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))


@pytest.mark.slow
def test_two_folders_of_photos(real_data: Path, tmp_path: Path) -> None:
    """Small photographs of landscapes and streets, as a reader would have them in folders."""
    wanted = {"labelled": 60, "pool": 400}
    for row in pq.read_table(real_data / "scene_photos.parquet").to_pylist():
        if wanted.get(row["split"], 0) > 0:
            wanted[row["split"]] -= 1
            inner = f"labelled/{row['label']}" if row["split"] == "labelled" else "unsorted"
            file = tmp_path / "photos" / inner / f"{wanted[row['split']]}.jpg"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(row["image"]["bytes"])
    said = printed("photos.md", tmp_path)
    assert "worth it" in said and "Use " in said and "error-free draws" in said
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 401
    assert (tmp_path / "review.html").is_file() and any((tmp_path / "selected").iterdir())


@pytest.mark.slow
def test_vectors_you_already_have(tmp_path: Path) -> None:
    said = printed("vectors.md", tmp_path)
    assert "396 of 996 in the pool are of the task" in said and "Use " in said
    assert "30 labelled, 996 in the pool" in said
    assert len((tmp_path / "labels.csv").read_text().splitlines()) == 351
    errors = [float(line.split()[-2].rstrip("%")) for line in said.splitlines() if line.endswith("% error")]
    assert len(errors) == 2 and errors[1] < errors[0] < 30


@pytest.mark.slow
def test_the_papers_experiment(tmp_path: Path) -> None:
    said = printed("paper.md", tmp_path)
    assert r"\begin{tabular}" in said and "uniform-rest" in said
    assert (tmp_path / "comparison.html").is_file()


def test_a_block_that_fails_ends_the_tutorial_with_what_it_said(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "Some words.\n\n```python\nx = 2\n```\n\n```sh\nodst run no-such-config\n```\n\n```python\nx += 1\n```\n"
    )
    with pytest.raises(RuntimeError, match=r"odst run no-such-config\n(.|\n)*no-such-config"):
        list(run(page, tmp_path))


def code(cells: list[dict]) -> list[str]:
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


def test_the_notebook_is_its_page_with_real_outputs() -> None:
    """Its cells are those that the page makes now; when a page has changed: python tools/tutorials.py PAGE --notebook."""
    books = sorted((ROOT / "docs" / "tutorials").glob("*.ipynb"))
    assert [book.stem for book in books] == ["vectors"]
    for book in books:
        assert book.stat().st_size < 200_000
        kept = json.loads(book.read_text(encoding="utf-8"))
        first, *rest = parts(book.with_suffix(".md"))
        fresh = notebook([(part, "") for part in (first, INSTALL, *rest)])
        assert [cell["source"] for cell in kept["cells"]] == [cell["source"] for cell in fresh["cells"]]
        assert len({cell["id"] for cell in kept["cells"]}) == len(kept["cells"])
        assert (kept["nbformat"], kept["nbformat_minor"]) == (4, 5)
        told = ["".join(out["text"]) for cell in kept["cells"] for out in cell.get("outputs", ())]
        assert any("called unknown:" in text for text in told) and any("round" in text for text in told)
        assert not any(str(place) in text for text in told for place in (Path.home(), Path("/tmp"), ROOT))


def test_every_page_that_is_a_tutorial_is_run_above() -> None:
    assert [page.name for page in PAGES] == ["paper.md", "photos.md", "vectors.md"]
    for page in PAGES:
        assert [part.kind for part in parts(page)].count("sh") >= 1


def test_other_blocks_stay_text(tmp_path: Path) -> None:
    (tmp_path / "p.md").write_text("a\n\n```\nodst doctor\n```\n\nb\n\n```sh\necho 1\n```\n")
    assert parts(tmp_path / "p.md") == [Part("markdown", "a\n\n```\nodst doctor\n```\n\nb"), Part("sh", "echo 1")]
    assert shutil.which("sh")
