"""The temperature of a model with many classes: `fit_temperature` against the grid it stands for, on the same logits.

The grid works out every one of its 2,001 points in full, as odst did at first; both must give the same temperature to the
bit. At 2,000 classes and 20,000 images the grid takes many minutes, so it is timed on some of its points and multiplied.

Run: python -m benchmarks.calibration [--quick]
"""

import argparse
import time

import numpy as np

from odst.method.calibration import GRID, expected_calibration_error, fit_temperature
from odst.seeds import stream

TIMED = 10  # points of the grid at the largest size


def grid_scores(logits: np.ndarray, y: np.ndarray, criterion: str, points: np.ndarray = GRID) -> np.ndarray:
    """The score of each point, one after the other."""
    z = logits.astype(np.float64)
    z -= z.max(axis=1, keepdims=True)
    correct, own = z.argmax(axis=1) == y, z[np.arange(len(y)), y]
    scores = []
    for temperature in np.exp(points):
        total = np.exp(z / temperature).sum(axis=1)
        if criterion == "ece":
            scores.append(expected_calibration_error(1 / total, correct))
        else:
            scores.append((np.log(total) - own / temperature).mean())
    return np.array(scores)


def grid_temperature(logits: np.ndarray, y: np.ndarray, criterion: str = "ece") -> float:
    scores = grid_scores(logits, y, criterion)
    tied = np.flatnonzero(scores <= scores.min() + 1e-12)
    return float(np.exp(GRID[tied[np.abs(GRID[tied]).argmin()]]))


def model(n: int, K: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits of a classifier that is right for about three images of four, and too sure of itself."""
    rng = stream(seed, "calibration")
    y = rng.integers(K, size=n)
    logits = rng.normal(size=(n, K)).astype(np.float32)
    logits[np.arange(n), y] += np.sqrt(2 * np.log(K)).astype(np.float32) + 0.8
    return 3 * logits, y


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    print("| images | classes | criterion | ours | grid | same temperature |\n|---|---|---|---|---|---|")
    for n, K in ((2000, 10), (2000, 100)) if quick else ((2000, 10), (5000, 100), (20_000, 2000)):
        logits, y = model(n, K, 0)
        for criterion in ("ece", "nll"):
            start = time.perf_counter()
            ours = fit_temperature(logits, y, criterion)
            took = time.perf_counter() - start
            start = time.perf_counter()
            if n * K <= 10**6:
                same = "yes" if grid_temperature(logits, y, criterion) == ours else "NO"
                whole = time.perf_counter() - start
            else:
                at = int(np.abs(np.exp(GRID) - ours).argmin())
                near = np.arange(max(0, at - TIMED // 2), min(len(GRID), at + TIMED // 2 + 1))
                scores = grid_scores(logits, y, criterion, GRID[near])
                whole = (time.perf_counter() - start) / len(near) * len(GRID)
                same = "least of its neighbours" if near[scores.argmin()] == at else "NO"
            print(f"| {n:,} | {K:,} | {criterion} | {took:.2f} s | {whole:.1f} s | {same} |", flush=True)
            if criterion == "ece":
                ratio = took / whole
    print(f"calibration ratio={ratio:.4f} anchor=grid")


if __name__ == "__main__":
    main()
