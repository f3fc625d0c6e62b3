"""What the benchmarks share."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

BENCHMARK = """
import os, time
from benchmarks.measuring import side_by_side

if __name__ == "__main__":
    with side_by_side(1) as workers:
        print(workers.submit(os.getpid).result(), flush=True)
        workers.submit(time.sleep, 600).result()
"""


def test_the_runs_of_a_benchmark_end_with_it_even_when_it_is_killed(tmp_path: Path) -> None:
    (tmp_path / "benchmark.py").write_text(BENCHMARK)
    benchmark = subprocess.Popen(
        [sys.executable, "benchmark.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # a killed process leaves semaphores, and Python says so
        text=True,
    )
    assert benchmark.stdout is not None
    worker = int(benchmark.stdout.readline())
    assert running(worker)
    benchmark.kill()
    benchmark.wait()
    benchmark.stdout.close()
    end = time.monotonic() + 30
    while running(worker) and time.monotonic() < end:
        time.sleep(0.05)
    left = running(worker)
    if left:
        os.kill(worker, signal.SIGKILL)
    assert not left


FAILING = """
import sys, time
from benchmarks.measuring import side_by_side

if __name__ == "__main__":
    with side_by_side(2) as workers:
        for _ in range(20):
            workers.submit(time.sleep, 600)
        if sys.argv[1:]:
            raise KeyboardInterrupt
        raise ValueError("broken")
"""


@pytest.mark.parametrize("interrupted", [(), ("interrupted",)])
def test_a_benchmark_that_fails_or_is_interrupted_does_not_work_off_what_is_waiting(
    tmp_path: Path, interrupted: tuple[str, ...]
) -> None:
    (tmp_path / "benchmark.py").write_text(FAILING)
    ended = subprocess.run(
        [sys.executable, "benchmark.py", *interrupted],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=120,
    )
    assert ended.returncode and (b"KeyboardInterrupt" if interrupted else b"broken") in ended.stderr


def running(pid: int) -> bool:
    """A process that has ended and that nobody has asked for yet is a zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
