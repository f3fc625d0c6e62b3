from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands import odst
from pictures import folder_of, picture


def test_a_pool_is_built_shown_checked_and_joined_by_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder_of(tmp_path / "photos", 5)
    (tmp_path / "photos" / "notes.txt").write_text("no image")
    np.save(tmp_path / "more.npy", np.stack([picture(i) for i in range(3, 9)]))
    built = odst("pool", "build", "photos", "more.npy", "--out", "pool", "--size", "16")
    assert built.code == 0, built.err
    assert "pool: 9 images" in built.out
    assert "rejected: 3 (duplicate 2, not an image 1)" in built.out
    shown = odst("pool", "info", "pool")
    assert "9 images, 16×16×3 uint8" in shown.out
    assert "originally 40×32: 9" in shown.out
    with Image.open(tmp_path / "pool" / "contact_sheet.png") as sheet:
        assert sheet.width > 500
    assert odst("pool", "verify", "pool").code == 0
    odst("pool", "build", "more.npy", "--out", "pool2", "--size", "16")
    joined = odst("pool", "join", "pool", "pool2", "--out", "both")
    assert "both: 9 images of 2 pools" in joined.out, joined.err


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (("build", "gone", "--out", "pool"), ("info", ".")):
        done = odst("pool", *arguments)
        assert done.code == 2
        assert done.err.startswith("odst: ")
        assert done.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
