"""Which device a run takes, and which number format its forward and backward passes, where the device truly has it.

Some virtual machines announce instructions that they do not pass on (AMX), and kill the process that uses them. So a
format that is asked for by name is tried in a child process first.
"""

import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch

from odst.errors import UserError
from odst.training.schedule import Precision

TRIAL = """
import sys, torch
device, name = sys.argv[1:]
net = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 3), torch.nn.Flatten(), torch.nn.Linear(64 * 36, 10)).to(device)
with torch.autocast(device, getattr(torch, name)):
    loss = net.to(memory_format=torch.channels_last)(torch.ones(64, 3, 8, 8, device=device)).float().square().mean()
loss.backward()
sys.exit(0 if loss.isfinite() else 1)
"""


def resolve(precision: Precision, device: str) -> torch.dtype:
    """`auto` is bfloat16 on a CUDA device whose hardware has it, and float32 everywhere else."""
    if precision == "auto":
        native = device == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if native else torch.float32
    if precision != "float32" and (fault := try_out(device, precision)):
        raise UserError(
            f"training.precision: {precision} does not work on this {device} ({fault}). Set it to float32 or auto."
        )
    return getattr(torch, precision)


@cache
def try_out(device: str, precision: str, trial: str = TRIAL) -> str | None:
    """What goes wrong in a small training step of this format, in a child process; None where it works."""
    child = subprocess.run([sys.executable, "-c", trial, device, precision], capture_output=True, text=True)
    if child.returncode == 0:
        return None
    if child.returncode < 0:
        return f"a trial was killed by signal {-child.returncode}"
    return (child.stderr.strip().splitlines() or ["a trial gave no number"])[-1]


def autocast(dtype: torch.dtype, device: str) -> AbstractContextManager:
    return nullcontext() if dtype == torch.float32 else torch.autocast(device, dtype)


def pick_device(name: str) -> str:
    available = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if name == "auto":
        return "cuda" if available["cuda"] else "mps" if available["mps"] else "cpu"
    if not available.get(name):
        raise UserError(
            f"device: {name} is not available on this machine. Use --device auto or cpu; the README says how to install for a GPU."
        )
    return name
