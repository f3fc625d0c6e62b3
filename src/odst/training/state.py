"""The state of a training in one safetensors file: tensors and a line of JSON, nothing that could be executed."""

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import nn

from odst.errors import UserError
from odst.files import whole

Weights = dict[str, torch.Tensor]


def checkpoint_file(scratch: Path, t: int) -> Path:
    """Where the training of round t keeps its state."""
    return scratch / f"train-{t}.safetensors"


@dataclass
class Training:
    """All that changes in the course of a training. Randomness and the data cursor are functions of `step`."""

    model: nn.Module
    average: nn.Module | None  # the running mean of the weights, where the schedule asks for it
    optimizer: torch.optim.Optimizer
    scaler: torch.amp.GradScaler  # of float16; idle otherwise
    step: int = 0
    best_error: float = np.inf
    best: Weights = field(default_factory=dict)

    @property
    def judged(self) -> nn.Module:
        return self.model if self.average is None else self.average

    def update(self, lr: float, ema: float | None) -> None:
        """One step of the optimiser along the gradients at hand. A young running mean forgets faster, so that the first
        weights leave it."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["factor"]
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.step += 1
        if self.average is not None and ema is not None:
            follow(self.average, self.model, min(ema, (1 + self.step) / (10 + self.step)))

    def judge(self, error: float) -> None:
        """Keep the weights of the lowest error; of equals the later ones."""
        if error <= self.best_error:
            self.best_error = error
            self.best = {name: value.detach().clone() for name, value in self.judged.state_dict().items()}

    def save(self, file: Path, identity: dict[str, Any]) -> None:
        """Write the state, unless the last update left weights that are no numbers: a checkpoint is always a good one."""
        tensors = {
            **_named("model", self.model.state_dict()),
            **_named("average", {} if self.average is None else self.average.state_dict()),
            **_named("best", self.best),
            **_named("momentum", _momentum(self.optimizer)),
        }
        if not all(value.isfinite().all() for value in tensors.values()):
            return
        state = identity | {"step": self.step, "best_error": self.best_error, "scaler": self.scaler.state_dict()}
        plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
        with whole(file) as temporary:
            temporary.write_bytes(save(plain, {"state": json.dumps(state | {"hash": _hash(plain)})}))

    def resume(self, checkpoint: "Checkpoint") -> None:
        state, tensors = checkpoint.state, checkpoint.tensors
        self.model.load_state_dict(_part(tensors, "model"))
        if self.average is not None:
            self.average.load_state_dict(_part(tensors, "average"))
        optimizer = self.optimizer.state_dict()
        momentum = _part(tensors, "momentum")
        optimizer["state"] = {int(i): {"momentum_buffer": buffer} for i, buffer in momentum.items()}
        self.optimizer.load_state_dict(optimizer)
        self.scaler.load_state_dict(state["scaler"])
        self.step, self.best_error, self.best = state["step"], state["best_error"], _part(tensors, "best")


@dataclass(frozen=True)
class Checkpoint:
    """What `Training.save` wrote."""

    state: dict[str, Any]
    tensors: Weights


def read_checkpoint(file: Path | None, identity: dict[str, Any]) -> Checkpoint | None:
    """The state of this very training; None where there is none yet."""
    if file is None or not file.exists():
        return None
    try:
        with safe_open(file, "pt") as opened:
            state = json.loads(opened.metadata()["state"])
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        was = {name: state[name] for name in identity if name in state}
        if state["hash"] != _hash(tensors):
            raise ValueError("its tensors have changed since they were written")
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file}: this checkpoint is damaged ({error}). Delete it to train the round from its start."
        ) from None
    if was != identity:
        raise UserError(
            f"{file}: this checkpoint belongs to another training or an older odst. Delete it to train the round from its start."
        )
    return Checkpoint(state, tensors)


@torch.no_grad()
def follow(average: nn.Module, model: nn.Module, decay: float) -> None:
    """average = decay · average + (1 - decay) · model, for weights and batch-norm's statistics; counters are copied."""
    pairs = list(zip(average.state_dict().values(), model.state_dict().values(), strict=True))
    real = [pair for pair in pairs if pair[0].is_floating_point()]
    torch._foreach_lerp_([a for a, _ in real], [b for _, b in real], 1 - decay)
    for a, b in pairs:
        if not a.is_floating_point():
            a.copy_(b)


def _hash(tensors: Weights) -> str:
    state = hashlib.blake2b(digest_size=16)
    for name in sorted(tensors):
        state.update(name.encode())
        state.update(tensors[name].contiguous().view(-1).view(torch.uint8).numpy().data)
    return state.hexdigest()


def _named(part: str, tensors: Weights) -> Weights:
    return {f"{part}/{name}": value for name, value in tensors.items()}


def _part(tensors: Weights, part: str) -> Weights:
    return {name.partition("/")[2]: value for name, value in tensors.items() if name.startswith(f"{part}/")}


def _momentum(optimizer: torch.optim.Optimizer) -> Weights:
    slots = optimizer.state_dict()["state"].items()
    return {str(i): slot["momentum_buffer"] for i, slot in slots if slot.get("momentum_buffer") is not None}
