"""What benchmarks share: a table, the closing line, the peak of private memory, and processes for runs side by side."""

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from threading import Thread

from odst.errors import UserError


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Markdown, ready for the README."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def conclude(name: str, ratio: float, anchor: str) -> None:
    """The line every benchmark ends with."""
    print(f"{name} ratio={ratio:.3g} anchor={anchor}")


def commit() -> str:
    """Of this checkout and whether it was changed, for the record; empty outside of one."""
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=10", "--exclude=*"], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return ""


def peak_memory(arguments: Sequence[str], every: float = 0.01) -> tuple[int, float]:
    """Run a command; return the peak of its private memory (RssAnon, children included) in bytes, and its seconds."""
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], env=os.environ | {"OMP_NUM_THREADS": "2"})
    peak = 0
    while process.poll() is None:
        peak = max(peak, private_memory(process.pid))
        time.sleep(every)
    if process.returncode:
        raise SystemExit(f"{' '.join(arguments)}: exit code {process.returncode}")
    return peak, time.perf_counter() - begin


def private_memory(pid: int) -> int:
    """RssAnon of a process and its descendants, in bytes: mapped files do not count."""
    total = 0
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                total = int(line.split()[1]) * 1024
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:  # it has just ended
        return total
    return total + sum(private_memory(int(child)) for child in children)


@contextmanager
def side_by_side(workers: int) -> Iterator[ProcessPoolExecutor]:
    """Processes with a share of the cores each. They end with this one, also when it is killed, and when anything goes wrong
    in it: left alone they would go on to hold the folders of their runs, and work off what is waiting."""
    if workers < 1:
        raise UserError(f"--workers: at least one, got {workers}.")
    threads = max(1, (os.cpu_count() or 1) // workers)
    with ProcessPoolExecutor(workers, get_context("spawn"), initializer=begin, initargs=(threads,)) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.terminate()
            raise


def begin(threads: int) -> None:
    """What every process of a benchmark starts with."""
    import torch

    torch.set_num_threads(threads)
    logging.getLogger("odst").setLevel(logging.ERROR)
    Thread(target=end_with_parent, daemon=True).start()


def end_with_parent() -> None:
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
