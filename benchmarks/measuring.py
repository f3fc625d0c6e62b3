"""What benchmarks share: a table, the closing line, and the peak of private memory."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path


def table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Markdown, ready for the README."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def conclude(name: str, ratio: float, anchor: str) -> None:
    """The line every benchmark ends with."""
    print(f"{name} ratio={ratio:.3g} anchor={anchor}")


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
