"""The memory that a training keeps between its steps, in processes of their own: the settings are a process's."""

import ctypes
import os
import subprocess
import sys

import pytest

GLIBC = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")
pytestmark = pytest.mark.skipif(not GLIBC, reason="only glibc gives memory back so soon")

MEASURES = """
import resource, torch
from odst.training.memory import kept

def faults(work):  # pages that the system had to clear
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    work()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def private_mb():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("RssAnon")) // 1024

def tensors():
    for _ in range(10):
        torch.zeros(10_000_000)
"""

BLOCKS = """
plain, before = faults(tensors), private_mb()
with kept():
    tensors()
    print(plain, faults(tensors), private_mb() - before)
print(private_mb() - before)
"""

STEPS = """
import numpy as np
from odst.data.images import Labelled, Pool
from odst.method.targets import Examples
from odst.training.schedule import Phase, Schedule
from odst.training.steps import train
from odst.vision.networks import make_network

x = np.random.default_rng(0).integers(0, 255, (64, 64, 64, 3), dtype=np.uint8)
T = Labelled(x, np.arange(64) % 2)
examples = Examples(T, Pool(x), p=None, I=None, damping=1.0, K=2)

def steps(n):
    schedule = Schedule(phases=(Phase(steps=n, lr=0.01),), batch=32)
    train(make_network("small", K=2, images=x), examples, schedule, T, rest_weight=1.0, seed=0, t=0)

torch.set_num_threads(1)
steps(2)
print(faults(lambda: steps(4)), faults(lambda: steps(14)))
"""


def measured(script: str, **environment: str) -> list[int]:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("MALLOC_", "GLIBC_TUNABLES"))}
    done = subprocess.run(
        [sys.executable, "-c", MEASURES + script], env=own | environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return [int(number) for number in done.stdout.split()]


def test_what_is_freed_inside_is_used_again_and_given_back_at_the_end() -> None:
    plain, inside, more, left = measured(BLOCKS)
    assert inside < plain / 10
    assert more > 30 and left < 10


def test_thresholds_that_the_user_has_set_stay() -> None:
    plain, inside, *_ = measured(BLOCKS, MALLOC_MMAP_THRESHOLD_="131072")
    assert inside > plain / 2


def test_other_settings_of_the_c_library_are_no_reason_to_do_nothing() -> None:
    plain, inside, *_ = measured(BLOCKS, MALLOC_ARENA_MAX="2")
    assert inside < plain / 10


def test_a_training_clears_no_more_pages_the_longer_it_is() -> None:
    few, many = measured(STEPS)
    assert many - few < few / 2  # by itself every step clears tens of thousands
