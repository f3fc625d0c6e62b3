"""`odst doctor`, and what `odst` says when nothing else was typed."""

import json
import subprocess
import sys

from commands import odst
from odst.cli.doctor import ENOUGH_DISK, EXTRAS, Piece, basics, extra


def test_odst_alone_says_what_it_is_and_which_commands_to_type_in_ten_lines_of_eighty_columns() -> None:
    said = odst().out.splitlines()
    assert len(said) <= 10
    assert max(map(len, said)) <= 80
    assert sum(line.startswith("  odst ") for line in said) == 3


def test_the_doctor_finds_this_python_this_torch_and_a_device() -> None:
    result = odst("doctor", "--json")
    assert result.code == 0
    found = {one["name"]: one for one in json.loads(result.out)}
    assert found["Python"]["text"] == sys.version.split()[0]
    assert found["torch"]["state"] == "ok" and "cores" in found["device"]["text"]
    assert {piece.name for piece in EXTRAS} <= found.keys()
    assert ENOUGH_DISK > 3072 * 10**6  # a million thumbnails of 32 pixels


def test_a_missing_extra_is_named_with_what_it_gives_and_the_command_that_brings_it() -> None:
    piece = Piece("wings", ("no-such-package-of-anybody", "numpy"), "flight", "pip install 'odst[wings]'")
    assert extra(piece) == ("missing", "wings", "gives flight", "pip install 'odst[wings]'")
    assert extra(piece._replace(packages=("numpy",))).state == "ok"


def test_the_commands_that_bring_the_extras_survive_the_terminal(monkeypatch) -> None:
    monkeypatch.setattr(
        "odst.cli.doctor.EXTRAS", (Piece("wings", ("no-such-package",), "flight", "pip install 'odst[wings]'"),)
    )
    assert "pip install 'odst[wings]'" in odst("doctor").out


def test_a_torch_that_does_not_import_is_one_line_and_exit_code_2(tmp_path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch is missing')")
    code = "import sys; sys.argv = ['odst', 'doctor']; from odst.cli import main; main()"
    end = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); {code}"],
        capture_output=True,
        text=True,
    )
    assert end.returncode == 2
    assert (
        end.stderr.startswith("odst: torch: it does not import (libtorch is missing)") and "Traceback" not in end.stderr
    )
    assert [one.state for one in basics()] == ["ok"] * 4
