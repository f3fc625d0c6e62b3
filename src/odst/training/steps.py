"""E) Train: the loss of eq. (3), the mean loss over T ∪ I plus the mean loss over U \\ I, in one joint forward pass."""

import math
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from odst.data.images import Labelled, fingerprint, is_image
from odst.engine.interface import share as own_share
from odst.errors import UserError, is_out_of_memory
from odst.files import digest
from odst.method.labelling import infer, model_hash
from odst.method.targets import Examples
from odst.progress import stage
from odst.seeds import key
from odst.training import memory, processes
from odst.training.batches import Draw, ahead
from odst.training.precision import autocast, resolve
from odst.training.schedule import Schedule
from odst.training.state import Training, checkpoint_file, read_checkpoint
from odst.vision.finetuning import head_of


def eq3(logits: torch.Tensor, q: torch.Tensor, v: torch.Tensor | None, rest_weight: float) -> torch.Tensor:
    """Mean cross-entropy on T ∪ I plus `rest_weight` times the mean cross-entropy on U \\ I.

    `logits` are those of the joint batch, T ∪ I first. With I empty and v = 1/K it is eq. (1), the base classifier's.
    """
    log_p = logits.log_softmax(dim=1)
    loss = -(q * log_p[: len(q)]).sum(dim=1).mean()
    if v is None:
        return loss
    return loss + rest_weight * -(v * log_p[len(q) :]).sum(dim=1).mean()


def train(
    model: nn.Module,
    examples: Examples,
    schedule: Schedule,
    val_in: Labelled,
    *,
    rest_weight: float,
    seed: int,
    t: int,
    device: str = "cpu",
    scratch: Path | None = None,
    checkpoint_seconds: float = 30,
    name: str | None = None,
) -> nn.Module:
    """The model with the lowest val_in error over the last 20 % of the schedule; of equals the later.

    Every draw is a function of (seed, t, step): the step number is the data cursor and the state of the randomness. With
    a scratch folder the state is written there every `checkpoint_seconds`, and a later call with the same arguments goes
    on. `name` is the stage shown to the user. Under torchrun the other processes are called in, and the model of process 0 is the one to use.
    """
    if own_share() is not None:
        raise UserError(
            f"--shard: the training of round {t} comes next, which calls do not share. Run without --shard."
        )
    processes.call_in(model, examples, schedule, rest_weight=rest_weight, seed=seed, t=t, scratch=scratch)
    plan = schedule.plan(len(examples))
    checks = set(plan.checks())
    file = checkpoint_file(scratch, t) if scratch else None
    identity = {} if file is None else {
        "seed": seed,
        "t": t,
        "schedule": digest(asdict(schedule)),
        "start": model_hash(model),
        "examples": examples.digest(),
        "val_in": fingerprint(val_in.x, val_in.y),
        "rest_weight": rest_weight,
    }  # fmt: skip
    dtype = resolve(schedule.precision, device)
    now = begin(model, schedule, is_image(examples.T.x), dtype, device)
    rank = processes.rank()
    identity_of_first, checkpoint = processes.from_first(
        (identity, read_checkpoint(file, identity) if rank == 0 else None)  # of the others, some may not see the file
    )
    processes.check_same(identity, identity_of_first)
    if checkpoint is not None:
        now.resume(checkpoint)
    draw = Draw(examples, plan, rest=rest_weight > 0, seed=seed, t=t, device=device)
    network = processes.averaging(now.model)
    if schedule.compile:
        network = torch.compile(network)  # type: ignore[assignment]
    parts = schedule.accumulate * processes.size()
    saved = time.monotonic()
    with (
        stage(name or f"train round {t}", plan.steps * plan.batch, "images", now.step * plan.batch) as advance,
        torch.random.fork_rng(own_generators(device)),
        memory.kept() if device == "cpu" else nullcontext(),
        explained(schedule, device),
        closing(ahead(draw, range(now.step, plan.steps))) as batches,
    ):
        for batch in batches:
            _, lr = plan.at(now.step)
            seed_noise(key(seed, "noise", t, now.step, rank), device)
            now.model.train()
            now.optimizer.zero_grad(set_to_none=True)
            total = torch.zeros((), device=device)
            for i in range(rank, parts, processes.size()):
                part = batch.part(i, parts)
                with autocast(dtype, device):
                    loss = eq3(network(part.x).float(), part.q, part.v, rest_weight)
                share = processes.size() * len(part.q) / len(batch.q)  # gradients are then averaged over the processes
                now.scaler.scale(share * loss).backward()
                total += share * loss.detach()
            if not math.isfinite(value := processes.mean(total)):
                raise diverged(f"the loss became {value}", t, now.step, plan.steps, lr, file)
            now.update(lr, schedule.ema)
            advance(plan.batch)
            if rank > 0:
                continue
            if now.step in checks:
                logits = infer(now.judged, val_in.x, device=device)
                if not np.isfinite(logits).all():  # the last update of all is followed by no loss that would show it
                    raise diverged("the logits of val_in became no numbers", t, now.step - 1, plan.steps, lr, file)
                now.judge(float((logits.argmax(1) != val_in.y).mean()))
            if file is not None and now.step < plan.steps and time.monotonic() - saved >= checkpoint_seconds:
                now.save(file, identity)
                saved = time.monotonic()
    if rank == 0:
        now.model.load_state_dict(now.best)
    return now.model


def diverged(what: str, t: int, step: int, steps: int, lr: float, file: Path | None) -> UserError:
    kept = f" The last good checkpoint is kept: {file}" if file is not None and file.exists() else ""
    return UserError(
        f"training: {what} in round {t} at step {step} of {steps}, learning rate {lr:g}. Lower lr in training.phases, "
        f"with another --out or --fresh.{kept}"
    )


def own_generators(device: str) -> list[int]:
    """The generators beside the CPU's that a training draws from. Left to itself, fork_rng wakes every GPU of the machine."""
    return [] if device == "cpu" else [torch.accelerator.current_device_index()]


def seed_noise(seed: int, device: str) -> None:
    """Dropout and the like draw from the device's own generator. torch.manual_seed would seed every device, and where CUDA
    is not in use it keeps a note of each call for later: a leak, at one call a step."""
    torch.default_generator.manual_seed(seed)
    if device == "cuda":
        torch.cuda.manual_seed(seed)
    elif device == "mps":
        torch.mps.manual_seed(seed)


def begin(model: nn.Module, schedule: Schedule, images: bool, dtype: torch.dtype, device: str) -> Training:
    """A training before its first step."""
    model = model.to(device)
    if images:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(
        learning(model, schedule.backbone_lr),
        lr=0.1,
        momentum=schedule.momentum,
        nesterov=schedule.momentum > 0,
        weight_decay=schedule.weight_decay,
    )
    average = None if schedule.ema is None else deepcopy(model)
    return Training(model, average, optimizer, torch.amp.GradScaler(device, enabled=dtype == torch.float16))


def learning(model: nn.Module, backbone_lr: float) -> list[dict[str, Any]]:
    """The weights that learn, with their factor on the learning rate: the head's is 1."""
    parameters = [one for one in model.parameters() if one.requires_grad]
    if backbone_lr == 1:
        return [{"params": parameters, "factor": 1.0}]
    head = {id(one) for one in head_of(model).parameters()}
    backbone, last = ([one for one in parameters if (id(one) in head) is own] for own in (False, True))
    groups = [{"params": backbone, "factor": backbone_lr}, {"params": last, "factor": 1.0}]
    return [group for group in groups if group["params"]]


@contextmanager
def explained(schedule: Schedule, device: str) -> Iterator[None]:
    """What the machine cannot do, as one line with the setting to change."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        text = str(error)
        if is_out_of_memory(error):
            parts = min(2 * schedule.accumulate, schedule.batch)
            way_out = f"Set training.accumulate = {parts} (the same loss in smaller parts), or lower training.batch."
            if schedule.accumulate == schedule.batch:  # one image at a time
                way_out = "Bring the images to a smaller data.size, or take a smaller network in model.name."
            raise UserError(
                f"training: {device} has too little memory for batch = {schedule.batch} with accumulate = "
                f"{schedule.accumulate}. {way_out}"
            ) from error
        if schedule.compile and type(error).__module__.startswith("torch._"):
            first = text.strip().splitlines()[0] if text.strip() else type(error).__name__
            raise UserError(
                f"training.compile: torch.compile does not work here ({first}). Set training.compile = false."
            ) from error
        raise
