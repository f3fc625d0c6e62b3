"""How a command ends early: signals, limits, a terminal without signs. Real processes."""

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from odst.cli.ending import advice
from odst.data.packing import build_pool
from odst.errors import is_out_of_memory
from odst.locks import FILE
from pictures import folder_of
from processes import artefacts, command, environment, odst

RUN = (
    "run",
    "digits",
    "--set",
    "training.phases=[{steps=300, lr=0.1}]",
    "--set",
    "method.ratio=[5]",
    "--set",
    "method.alpha=0.5",
)


def start(*words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command(*map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )


@pytest.mark.slow
def test_sigterm_and_sighup_are_one_line_and_the_same_command_goes_on(tmp_path: Path) -> None:
    for number, code in ((signal.SIGTERM, 143), (signal.SIGHUP, 129)):
        process = start(*RUN, "--out", tmp_path / "run")
        while not (tmp_path / "run" / FILE).exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        time.sleep(1)
        process.send_signal(number)
        _, err = process.communicate()
        assert process.returncode == code, err
        assert "Traceback" not in err
        assert [line for line in err.splitlines() if line.startswith("odst: ")] == [
            "odst: stopped. The same command goes on where it stopped."
        ]
        assert not (tmp_path / "run" / FILE).exists()
        assert not list((tmp_path / "run").rglob(".*.part"))
    odst(*RUN, "--out", tmp_path / "run")
    odst(*RUN, "--out", tmp_path / "elsewhere" / "run")
    assert artefacts(tmp_path / "run") == artefacts(tmp_path / "elsewhere" / "run")


@pytest.mark.parametrize("delay", [0.01, 0.15, 0.5])
def test_an_interrupt_while_modules_are_imported_is_no_traceback(tmp_path: Path, delay: float) -> None:
    script = "import odst; print('begun', flush=True)\nfrom odst.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", script, "run", "digits", "--out", str(tmp_path / "run")],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(),
    )  # fmt: skip
    assert process.stdout is not None and process.stdout.readline() == "begun\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate()
    assert process.returncode == 130, err
    assert "Traceback" not in err


def test_signs_fall_back_where_a_terminal_knows_ascii_only(tmp_path: Path) -> None:
    build_pool(folder_of(tmp_path / "in", 6), tmp_path / "pool", size=8)
    plain = environment() | {"PYTHONIOENCODING": "ascii"}
    words = (
        ["pool", "info", str(tmp_path / "pool")],
        ["methods"],
        ["--help"],
        ["pool", "info", str(tmp_path / "größe")],
    )
    for each in words:
        done = subprocess.run(command(*each), env=plain, capture_output=True)
        assert done.returncode == (2 if "größe" in each[-1] else 0), done.stderr
        assert b"Traceback" not in done.stderr
        assert (done.stdout + done.stderr).isascii()
    shown = subprocess.run(command(*words[0]), env=plain, capture_output=True, text=True).stdout
    assert "6 images, 8x8x3 uint8" in shown


def test_a_limit_on_the_size_of_files_is_one_line(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((40, 32, 32, 3), np.uint8))

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    words = ("pool", "build", tmp_path / "a.npy", "--out", tmp_path / "pool", "--keep-duplicates")
    done = odst(*words, check=2, preexec_fn=limit)
    said = [line for line in done.stderr.splitlines() if line.startswith("odst: ")]
    assert len(said) == 1 and "ulimit -f" in said[0] and "Traceback" not in done.stderr, done.stderr
    odst(*words)


@pytest.mark.parametrize("error", [
    MemoryError(), RuntimeError("could not create a primitive"), RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory"),
    ImportError("libtorch_cpu.so: failed to map segment from shared object"), OSError(12, "Cannot allocate memory"),
    RuntimeError("can't start new thread"),
])  # fmt: skip
def test_want_of_memory_is_known_by_its_words(error: Exception) -> None:
    assert is_out_of_memory(error)
    assert "out of memory" in (advice(error) or "")


def test_faults_of_the_disk_are_lines_and_those_of_ours_are_not() -> None:
    assert advice(OSError(5, "Input/output error", "x.npy")) == (
        "x.npy: the disk cannot read or write it. Look after the disk, then give the same command again."
    )
    assert "x.npy: Stale file handle." in (advice(OSError(116, "Stale file handle", "x.npy")) or "")
    assert advice(KeyError("x")) is None
    assert advice(RuntimeError("a bug")) is None


@pytest.mark.skipif(os.name != "posix", reason="limits are POSIX")
def test_importing_odst_and_asking_for_help_are_quick() -> None:
    """Against a bare Python in the same minute, so that a busy machine does not decide."""

    def best(*words: str) -> float:
        times = []
        for _ in range(5):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([sys.executable, *words], env=environment(), capture_output=True, check=True)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return min(times)

    bare = best("-c", "pass")
    assert best("-c", "import odst") - bare < 0.15
    assert best("-c", "from odst.cli import main; main()", "--help") < 0.5
