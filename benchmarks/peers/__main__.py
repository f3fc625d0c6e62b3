"""A peer of odst in a world of benchmarks.open_world:

    python -m benchmarks.peers --world DIR --method fixmatch|openmatch|pseudo --images N --seed S --out FILE.json

It trains on N images, every view counted: as many as odst's whole chain. Killed, the same command goes on; FILE.json then holds
the rows. What is not given is as in the original; tune it on `val_error`, never on `error`, which is in the file and is not shown.
"""

import argparse
import sys
from pathlib import Path

import torch

from benchmarks.peers.runs import run
from benchmarks.peers.settings import METHODS, settings_of
from odst.cli.screen import bars
from odst.errors import UserError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--world", type=Path, required=True)
    parser.add_argument("--method", choices=METHODS, required=True)
    parser.add_argument("--images", type=int, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--network", help="default: small")
    parser.add_argument("--lr", type=float, help="default: 0.03")
    parser.add_argument("--rise", type=float, help="share of the steps in which the rate rises; default: none")
    parser.add_argument("--fall", choices=("cosine", "linear"), help="of the rate; default: cosine, to a fifth")
    parser.add_argument("--cutout", type=int, help="pixels cut out of the labelled images; default: none")
    parser.add_argument("--mu", type=int, help="pool images for one labelled; default: 7, 2, 1")
    parser.add_argument("--batch", type=int, help="labelled images in a step; default: 64")
    parser.add_argument("--threshold", type=float, help="default: 0.95, 0, 0.95")
    parser.add_argument("--warm-up", type=float, help="share of the steps; default: none, 0.2, 0.4")
    parser.add_argument("--memory", type=float, help="share of the steps in the running mean; default: 0.05")
    parser.add_argument("--checkpoint-seconds", type=float, default=60)
    options = vars(parser.parse_args())
    torch.set_num_threads(1)
    world, out, seconds = (options.pop(name) for name in ("world", "out", "checkpoint_seconds"))
    with bars():
        rows = run(world, settings_of(**options), out, checkpoint_seconds=seconds)
    for row in rows:
        print(
            f"{row['share']}/{row['method']}/{row['seed']}: val_error {row['val_error']:.1%}, val OD-AUROC {row['val_od_auroc']:.1%}, "
            f"by its own score {row['own_val_od_auroc']:.1%}; {row['steps']} steps, {row['seconds']} s"
        )


if __name__ == "__main__":
    try:
        main()
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
