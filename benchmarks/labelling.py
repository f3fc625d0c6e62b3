"""Labelling a packed pool into a file against a bare `model(batch)` loop on float images that lie ready in memory.

    python -m benchmarks.labelling [--quick]

Both in inference mode, batches of 512; they take turns, and the median turn of each counts. The logits must agree bit by bit.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from benchmarks.measuring import conclude, table
from benchmarks.reads import write_pool
from benchmarks.training import network
from odst.data.pool import open_pool
from odst.method.labelling import BATCH, as_input, as_tensor
from odst.method.stored import label

NETWORKS = {"resnet18": 4 * BATCH, "small": 16 * BATCH}  # images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one turn instead of seven")
    turns = 1 if parser.parse_args().quick else 7
    torch.set_num_threads(1)  # as a range of the pool is labelled
    rows, ratios = [], {}
    for name, images in NETWORKS.items():
        with tempfile.TemporaryDirectory() as folder:
            write_pool(Path(folder) / "pool", images, shard_rows=BATCH * 8)
            x = open_pool(Path(folder) / "pool").x
            model = network(name).eval()
            batches = [as_input(as_tensor(x[start : start + BATCH], "cpu")) for start in range(0, images, BATCH)]
            spent: dict[str, list[float]] = {"bare": [], "odst": []}
            with torch.inference_mode():
                bare = torch.empty(images, model(batches[0]).shape[1])  # outputs into place, as odst has them
            for turn in range(turns):
                begin = time.perf_counter()
                with torch.inference_mode():
                    for i, batch in enumerate(batches):
                        bare[i * BATCH : (i + 1) * BATCH] = model(batch)
                spent["bare"].append(time.perf_counter() - begin)
                begin = time.perf_counter()
                logits = label(model, x, Path(folder) / f"logits-{turn}", name="label")
                spent["odst"].append(time.perf_counter() - begin)
                assert np.array_equal(logits[:], bare.numpy())
        bare_seconds, odst_seconds = (float(np.median(seconds)) for seconds in spent.values())
        ratios[name] = bare_seconds / odst_seconds
        rates = [f"{images / seconds:,.0f}" for seconds in (bare_seconds, odst_seconds)]
        rows.append([name, f"{images:,}", *rates, f"{ratios[name]:.1%}", "95%"])
    print(table(["network", "images", "bare, images/s", "odst, images/s", "share", "wanted"], rows))
    for name, ratio in ratios.items():
        conclude("labelling", ratio, f"bare-loop-in-memory-{name}")


if __name__ == "__main__":
    main()
