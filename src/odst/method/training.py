"""E) Train: eq. (3), the mean loss over T ∪ I plus the mean loss over U \\ I, in one joint forward pass."""

import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import nn

from odst.data.images import Images, Labelled, is_image
from odst.errors import UserError
from odst.files import digest, whole
from odst.method.labelling import infer, model_hash
from odst.method.schedule import Schedule
from odst.method.targets import Examples
from odst.progress import stage
from odst.seeds import Shuffle, key
from odst.vision.augmentation import augmenter


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
) -> nn.Module:
    """The model with the lowest val_in error over the last 20 % of the schedule; of equals the later.

    Every draw is a function of (seed, t, step): the step number is the data cursor and the state of the randomness. With
    a scratch folder the state is written there every `checkpoint_seconds`, and a later call with the same arguments goes on.
    """
    plan = schedule.plan(len(examples))
    images = is_image(examples.T.x)
    model = model.to(device)
    if images:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(
        model.parameters(),
        lr=0.1,
        momentum=schedule.momentum,
        nesterov=schedule.momentum > 0,
        weight_decay=schedule.weight_decay,
    )
    joined = Shuffle(len(examples), seed, "joined", t)
    rest = Shuffle(len(examples.rest), seed, "rest", t) if rest_weight > 0 and examples.rest else None
    fill = mean_level(examples.T.x) if images else ()
    checks = set(plan.checks())
    file = scratch / f"train-{t}.safetensors" if scratch else None
    key_ = {
        "seed": seed,
        "t": t,
        "schedule": digest(asdict(schedule)),
        "start": model_hash(model),
        "images": len(examples),
    }
    step, best_error, best = 0, np.inf, {}
    if file is not None and file.exists():
        step, best_error, best = _load(file, model, optimizer, key_)
    saved = time.monotonic()
    with (
        stage(f"train round {t}", plan.steps * schedule.batch, "images", step * schedule.batch) as advance,
        torch.random.fork_rng(),
    ):
        while step < plan.steps:
            phase, lr = plan.at(step)
            places = np.arange(step * schedule.batch, (step + 1) * schedule.batch)
            x, q = examples.batch(joined[places])
            v = None
            if rest is not None:
                x_rest, v = examples.rest_batch(rest[places])
                x, v = np.concatenate([x, x_rest]), _float(v, device)
            torch.manual_seed(key(seed, "noise", t, step))  # dropout and the like
            batch = as_augmented(x, augmenter(phase.augment, fill), key(seed, "augment", t, step), device)
            for group in optimizer.param_groups:
                group["lr"] = lr
            model.train()
            loss = eq3(model(batch), _float(q, device), v, rest_weight)
            if not loss.isfinite():
                raise UserError(
                    f"training: the loss became {loss.item()} in round {t} at step {step} of {plan.steps}, learning rate {lr:g}. "
                    "Lower training lr; the last good checkpoint is kept."
                )
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            step += 1
            advance(schedule.batch)
            if step in checks:
                error = float((infer(model, val_in.x, device=device).argmax(1) != val_in.y).mean())
                if error <= best_error:
                    best_error, best = error, {n: w.detach().clone() for n, w in model.state_dict().items()}
            if file is not None and step < plan.steps and time.monotonic() - saved >= checkpoint_seconds:
                _save(file, model, optimizer, best, key_ | {"step": step, "best_error": best_error})
                saved = time.monotonic()
    model.load_state_dict(best)
    return model


def mean_level(x: Images) -> tuple[int, ...]:
    """The mean colour of a set, 0 to 255: what crops, cutouts and turned corners are filled with."""
    sample = x[np.linspace(0, len(x) - 1, min(len(x), 10_000)).astype(np.int64)]
    return tuple(int(level) for level in sample.reshape(-1, sample.shape[-1]).mean(axis=0).round())


def as_augmented(
    rows: np.ndarray, augment: Callable[[torch.Tensor, torch.Generator], torch.Tensor], seed: int, device: str
) -> torch.Tensor:
    """A batch as the network takes it: images augmented as uint8 and then in [0, 1], features as they are."""
    x = torch.from_numpy(np.ascontiguousarray(rows)).to(device)
    if x.ndim == 2:
        return x.float()
    return augment(x.permute(0, 3, 1, 2), torch.Generator().manual_seed(seed)).float().div_(255)


def _float(array: np.ndarray, device: str) -> torch.Tensor:
    return torch.from_numpy(array).to(device, torch.float32)


def _save(file: Path, model: nn.Module, optimizer: torch.optim.Optimizer, best: dict, state: dict) -> None:
    tensors = {f"model/{n}": w for n, w in model.state_dict().items()} | {f"best/{n}": w for n, w in best.items()}
    for i, slot in optimizer.state_dict()["state"].items():
        if slot.get("momentum_buffer") is not None:
            tensors[f"momentum/{i}"] = slot["momentum_buffer"]
    with whole(file) as temporary:
        save_file(
            {n: w.detach().cpu().contiguous() for n, w in tensors.items()}, temporary, {"state": json.dumps(state)}
        )


def _load(file: Path, model: nn.Module, optimizer: torch.optim.Optimizer, expected: dict) -> tuple[int, float, dict]:
    try:
        with safe_open(file, "pt") as opened:
            state = json.loads(opened.metadata()["state"])
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"{file}: this checkpoint is damaged ({error}). Delete it to train the round from its start."
        ) from None
    if {name: state.get(name) for name in expected} != expected:
        raise UserError(
            f"{file}: this checkpoint belongs to another training. Delete it to train the round from its start."
        )
    parts: dict[str, dict] = {"model": {}, "best": {}, "momentum": {}}
    for name, tensor in tensors.items():
        part, _, rest = name.partition("/")
        parts[part][rest] = tensor
    model.load_state_dict(parts["model"])
    momentum = optimizer.state_dict()
    momentum["state"] = {int(i): {"momentum_buffer": buffer} for i, buffer in parts["momentum"].items()}
    optimizer.load_state_dict(momentum)
    return state["step"], state["best_error"], parts["best"]
