"""Give odst sources that nobody could use, and print what it did that it must not.

Run: python -m benchmarks.malformed [--quick] [--seed 0] [--tries 500]
"""

import argparse
import faulthandler
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.malformed import sources
from benchmarks.malformed.trial import faults


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tries", type=int, default=500, help="sources damaged by chance, beside those by hand")
    parser.add_argument("--quick", action="store_true", help="a hundred by chance")
    asked = parser.parse_args()
    tries = min(asked.tries, 100) if asked.quick else asked.tries
    faulthandler.enable()
    tried = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        (place := Path(folder) / "sources").mkdir()
        for what, spec in sources(place, asked.seed, tries):
            start = time.monotonic()
            print(f"{what[:150]}", end="\r", file=sys.stderr, flush=True)  # the last one, if a signal ends this
            tried += 1
            if found := faults(spec, Path(folder) / "pool"):
                wrong += 1
                print(f"{what}\n  " + "\n  ".join(found), flush=True)
            if (took := time.monotonic() - start) > 10:
                print(f"{what}: took {took:.0f} s", flush=True)
    print(f"malformed ratio={wrong / tried:.4f} anchor={tried}")


if __name__ == "__main__":
    main()
