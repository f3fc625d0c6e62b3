"""Several processes, on one machine or many, started by torchrun: each takes its part of every joint batch.

Process 0 runs the scheme; the others follow it from training to training. What a process draws does not depend on how many
there are, so the loss of a step is that of one process on the joint batch.
"""

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from odst.data.images import Images
from odst.errors import UserError
from odst.method.labelling import Predictions, weights
from odst.method.selection import Selection
from odst.method.stored import StoredLogits, read_logits
from odst.method.targets import Examples
from odst.training.schedule import Schedule

T = TypeVar("T")

PATIENCE = timedelta(days=30)  # the others wait while process 0 labels the pool; torchrun ends them if it dies


def rank() -> int:
    return dist.get_rank() if dist.is_initialized() else 0


def size() -> int:
    return dist.get_world_size() if dist.is_initialized() else 1


@contextmanager
def process_group(device: str) -> Iterator[None]:
    """The processes of this torchrun as one group, each with its own GPU where there are some; alone it does nothing."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield
        return
    try:
        gpus = torch.cuda.device_count() if device == "cuda" else 0
        check_devices(device, int(os.environ.get("LOCAL_WORLD_SIZE", "1")), gpus)
    except UserError:
        # All of them see it and one says it; a failure of the others could end that one first
        if int(os.environ["LOCAL_RANK"]) > 0:
            raise SystemExit(0) from None
        raise
    # Functions in there have the group of their import as a default, and hold it for ever if there is one already. Its threads
    # then outlive it, and one that lets go of a tensor while Python ends aborts the process.
    import_module("torch._dynamo")  # which every optimiser imports anyway

    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo", timeout=PATIENCE)
    try:
        yield
    finally:
        dist.destroy_process_group()
        gc.collect()  # the group's threads are joined when nothing holds it any more, cycles included


def check_devices(device: str, processes: int, gpus: int) -> None:
    """A GPU for each process of this machine, or one line."""
    if device == "cuda" and processes > gpus:
        raise UserError(f"torchrun: {processes} processes for {gpus} GPUs. Give it --nproc-per-node {gpus}.")
    if device == "mps":
        raise UserError(f"torchrun: {processes} processes cannot share one mps device. Call odst without torchrun.")


@dataclass(frozen=True)
class Job:
    """A training, for processes that have the sets already. A pool's logits on disk travel as the name of their folder."""

    weights: bytes
    schedule: Schedule
    I: Selection | None
    excluded: np.ndarray | None  # from the pool: a base may spare more of it than the run excludes
    damping: float
    labelled_copies: int
    logits: Images | Path | None
    temperature: float
    options: dict[str, Any]  # the other arguments of `train`

    def predictions(self) -> Predictions | None:
        logits = read_logits(self.logits) if isinstance(self.logits, Path) else self.logits
        if logits is None and self.logits is not None:
            raise UserError(
                f"process {rank()} cannot read {self.logits}. All processes of a run need its folder: put it where every "
                "machine sees it under the same name."
            )
        return None if logits is None else Predictions(logits, self.temperature)


def call_in(model: nn.Module, examples: Examples, schedule: Schedule, **options: Any) -> None:
    """From process 0 to the others, if there are any: take part in this training."""
    if size() == 1 or rank() > 0:
        return
    if schedule.batch < size() * schedule.accumulate:
        raise UserError(
            f"training.batch: {schedule.batch} images are too few for {size()} processes and accumulate = "
            f"{schedule.accumulate}. Raise the batch or start fewer processes."
        )
    p = examples.p
    logits = None if p is None else p.logits.folder if isinstance(p.logits, StoredLogits) else p.logits
    temperature = 1.0 if p is None else p.temperature
    excluded = None if examples.U is None else examples.U.excluded
    tell(
        Job(
            weights(model),
            schedule,
            examples.I,
            excluded,
            examples.damping,
            examples.labelled_copies,
            logits,
            temperature,
            options,
        )
    )


def tell(job: Job | None) -> None:
    """From process 0 to the others: something to do, or None to go home."""
    dist.broadcast_object_list([job], src=0)


def listen() -> Job | None:
    job: list[Job | None] = [None]
    try:
        dist.broadcast_object_list(job, src=0)
    except RuntimeError:  # process 0 is gone: what stopped it, it has said itself
        return None
    return job[0]


def from_first(value: T) -> T:
    """What process 0 has, for all of them: a checkpoint is read where it can be seen, and nowhere else."""
    if size() == 1:
        return value
    told: list[T] = [value]
    try:
        dist.broadcast_object_list(told, src=0)
    except RuntimeError:
        if rank() == 0:
            raise
        raise SystemExit(0) from None  # process 0 is gone: what stopped it, it has said itself
    return told[0]


def check_same(own: dict[str, Any], firsts: dict[str, Any]) -> None:
    """Refuse to train on other sets than process 0, as a machine with another copy of the data would."""
    if differ := [name for name in firsts if own.get(name) != firsts[name]]:
        raise UserError(
            f"process {rank()} has another {', '.join(differ)} than process 0. Give every machine the same data and config."
        )


def averaging(model: nn.Module) -> nn.Module:
    """The model, its gradients averaged over the processes. Batch-norm's statistics stay each process's own: process 0's
    are the ones that are kept."""
    return model if size() == 1 else DistributedDataParallel(model, broadcast_buffers=False)


def mean(value: torch.Tensor) -> float:
    if size() > 1:
        dist.all_reduce(value)
    return value.item() / size()
