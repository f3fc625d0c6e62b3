"""Started by torchrun: a training on images in as many processes as there are. Process 0 writes what came out."""

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from torch import nn

from odst import Data, Labelled, Phase, Pool, Schedule
from odst.method.labelling import Predictions
from odst.method.selection import Selection
from odst.method.targets import Examples
from odst.run.torchrun import follow
from odst.seeds import stream
from odst.training import processes as distributed
from odst.training.batches import Draw
from odst.training.steps import eq3, train

AUGMENT = ("crop:1", "flip", "cutout:3")
SCHEDULE = Schedule(phases=(Phase(steps=8, lr=0.05, augment=AUGMENT),), batch=9, accumulate=2)


def network() -> nn.Module:
    """Without batch-norm, whose statistics are each process's own."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 3))


def world() -> Data:
    rng = stream(0, "two processes")
    x = rng.integers(256, size=(90, 8, 8, 3), dtype=np.uint8)
    return Data(Labelled(x[:30], np.arange(30) % 3), Pool(x[30:80]), Labelled(x[80:], np.arange(10) % 3))


def student(data: Data) -> Examples:
    """A second round: soft targets from a teacher, and a few images selected."""
    p = Predictions(stream(1, "logits").normal(size=(50, 3)).astype(np.float32), 1.3)
    I = Selection(
        ids=np.arange(6),
        classes=np.arange(6) % 3,
        log_odds=np.zeros(6),
        copies=np.array([1, 2, 1, 1, 3, 1]),
        above=np.full(3, 2),
        stop=("short",) * 3,
        k=3,
    )
    return Examples(data.labelled, data.pool, p, I, 0.5, 3)


def joint_loss(examples: Examples) -> float:
    """Eq. (3) of step 0, put together from the parts of all processes."""
    model, plan = network(), SCHEDULE.plan(len(examples))
    batch = Draw(examples, plan, rest=True, seed=0, t=1, device="cpu")(0)
    part = batch.part(distributed.rank(), distributed.size())
    share = distributed.size() * len(part.q) / len(batch.q)
    return distributed.mean(share * eq3(model(part.x), part.q, part.v, 1.0).detach())


def threads_of_the_group() -> list[str]:
    """Of gloo: one that is left would abort the process if it lets go of a tensor while Python ends."""
    names = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if "gloo_runloop" in name]


if __name__ == "__main__":
    out, scratch = Path(sys.argv[1]).resolve(), Path(sys.argv[2]) if len(sys.argv) > 2 else None
    data = world()
    with distributed.process_group("cpu"):
        loss = joint_loss(student(data))
        if distributed.rank() > 0:
            os.chdir(tempfile.mkdtemp(dir=out.parent))  # a relative scratch folder is not seen from here
            follow("cpu", lambda: (data, network))
        else:
            options = {"rest_weight": 1.0, "seed": 0, "scratch": scratch, "checkpoint_seconds": 0}
            models = [
                train(network(), examples, SCHEDULE, data.val_in, t=t, **options)
                for t, examples in enumerate([Examples(data.labelled, data.pool, None, None, 1.0, 3), student(data)])
            ]
            if distributed.size() > 1:
                distributed.tell(None)
            weights = {
                f"{t}.{name}": w.contiguous()
                for t, model in enumerate(models)
                for name, w in model.state_dict().items()
            }
            save_file(weights | {"loss": torch.tensor(loss, dtype=torch.float64)}, out)
    assert not threads_of_the_group()
