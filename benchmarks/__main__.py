"""Run every benchmark of this folder, one after the other: python -m benchmarks [--quick]"""

import subprocess
import sys
from pathlib import Path

FOLDERS = {
    "malformed",
    "torture",
}  # benchmarks of several files; few_labels and open_world take hours and are called by name
SHARED = {"__init__", "__main__", "measuring", "planted"}  # what benchmarks stand on, not benchmarks themselves


def main() -> None:
    files = {file.stem for file in Path(__file__).parent.glob("*.py")}
    names = sorted(files - SHARED | FOLDERS)
    failed = []
    for name in names:
        print(f"\n## {name}\n", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]]).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
