import subprocess
import sys
from pathlib import Path

import numpy as np
from PIL import Image

from pictures import folder_of, picture


def odst(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from odst.cli import main; main()", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120)


def test_a_pool_is_built_shown_checked_and_joined_by_command(tmp_path: Path) -> None:
    folder_of(tmp_path / "photos", 5)
    (tmp_path / "photos" / "notes.txt").write_text("no image")
    np.save(tmp_path / "more.npy", np.stack([picture(i) for i in range(3, 9)]))
    built = odst("pool", "build", "photos", "more.npy", "--out", "pool", "--size", "16", cwd=tmp_path)
    assert built.returncode == 0, built.stderr
    assert "pool: 9 images" in built.stdout
    assert "rejected: 3 (duplicate 2, not an image 1)" in built.stdout
    shown = odst("pool", "info", "pool", cwd=tmp_path)
    assert "9 images, 16×16×3 uint8" in shown.stdout
    assert "originally 40×32: 9" in shown.stdout
    with Image.open(tmp_path / "pool" / "contact_sheet.png") as sheet:
        assert sheet.width > 500
    assert odst("pool", "verify", "pool", cwd=tmp_path).returncode == 0
    odst("pool", "build", "more.npy", "--out", "pool2", "--size", "16", cwd=tmp_path)
    joined = odst("pool", "join", "pool", "pool2", "--out", "both", cwd=tmp_path)
    assert "both: 9 images of 2 pools" in joined.stdout, joined.stderr


def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    for arguments in (("build", "gone", "--out", "pool"), ("info", ".")):
        done = odst("pool", *arguments, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("odst: ")
        assert done.stderr.count("\n") == 1
    assert list(tmp_path.iterdir()) == []
