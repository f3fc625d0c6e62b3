"""The training of a peer: Nesterov SGD, judged by the running mean of the weights on val_in, resumed to the bit."""

import json
import math
import time
from copy import deepcopy
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch
from torch import nn

from benchmarks.peers.methods import LOSSES, Batches, Moment, heads_of
from benchmarks.peers.settings import Settings, decay_of, images_by, momentum_of, rate, rejections, steps_of
from odst.data.images import Data, fingerprint
from odst.errors import UserError
from odst.files import digest, whole, write_json
from odst.method.labelling import infer
from odst.progress import stage
from odst.seeds import key
from odst.training import memory
from odst.training.schedule import Phase, Schedule
from odst.training.state import Training, read_checkpoint
from odst.vision.networks import make_network


def train(data: Data, s: Settings, folder: Path, checkpoint_seconds: float = 60) -> tuple[nn.Module, float]:
    """The model with the lowest val_in error over the last 20 % of the steps, of equals the later, and the seconds it took.

    The state is in `folder`; a later call with the same arguments goes on from there.
    """
    assert data.pool is not None
    steps = steps_of(s)
    decay, looks = decay_of(s, steps), rejections(s, steps)
    checks = set(Schedule(phases=(Phase(steps=steps, lr=s.lr),)).plan(steps).checks())
    now = begin(fresh(data, s), s, decay)
    file, note = folder / "state.safetensors", folder / "seconds.json"
    identity = {
        "settings": digest(asdict(s)),
        "data": digest([fingerprint(data.labelled.x, data.labelled.y), data.pool.id]),
    }
    if (checkpoint := read_checkpoint(file, identity)) is not None:
        now.resume(checkpoint)
    spent = json.loads(note.read_text()) if checkpoint is not None else 0.0
    inliers = None
    if passed := [look for look in looks if look < now.step]:
        inliers = np.load(folder / f"inliers-{passed[-1]}.npy")
    batches, loss_of = Batches(data.labelled, data.pool, s), LOSSES[s.method]
    counted = [images_by(s, step, looks) for step in range(steps + 1)]
    started = saved = time.monotonic()
    with memory.kept(), stage(f"{s.method} {s.seed}", counted[-1], "images", counted[now.step]) as advance:
        while now.step < steps:
            step = now.step
            if step in looks:
                inliers = inliers_of(now.judged, data)
                with whole(folder / f"inliers-{step}.npy") as part, part.open("wb") as opened:
                    np.save(opened, inliers)
            now.model.train()
            now.optimizer.zero_grad(set_to_none=True)
            loss = loss_of(now.model, batches, Moment(step, step / steps, inliers))
            loss.backward()
            if not math.isfinite(loss.item()):
                raise UserError(f"peers: the loss of {s.method} became {loss.item()} at step {step}. Lower --lr.")
            now.update(rate(s, step / steps), decay)
            if now.step in checks:
                now.judge(float((infer(now.judged, data.val_in.x)[:, : data.K].argmax(1) != data.val_in.y).mean()))
            if now.step == steps or time.monotonic() - saved >= checkpoint_seconds:
                saved = time.monotonic()
                write_json(note, spent + saved - started)  # before the state, which is not gone on from without it
                now.save(file, identity)
            advance(counted[step + 1] - counted[step])
    now.model.load_state_dict(now.best)
    return now.model, json.loads(note.read_text())


def fresh(data: Data, s: Settings) -> nn.Module:
    """OpenMatch's second head is 2K more outputs of the last layer."""
    with torch.random.fork_rng([]):
        torch.default_generator.manual_seed(key(s.seed, "peer network"))
        return make_network(s.network, data.K * (3 if s.method == "openmatch" else 1), data.labelled.x)


def begin(model: nn.Module, s: Settings, decay: float) -> Training:
    """A training before its first step; weights decay, biases and batch-norm do not."""
    model = model.to(memory_format=torch.channels_last)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            module.momentum = momentum_of(decay)
    groups = [
        {"params": [one for one in model.parameters() if (one.ndim > 1) is decays], "weight_decay": rate, "factor": 1.0}
        for decays, rate in ((True, s.weight_decay), (False, 0.0))
    ]
    optimizer = torch.optim.SGD(groups, lr=s.lr, momentum=0.9, nesterov=True)
    return Training(model, deepcopy(model), optimizer, torch.amp.GradScaler("cpu", enabled=False))


def inliers_of(model: nn.Module, data: Data) -> np.ndarray:
    """The pool ids whose predicted class's own head says inlier rather than outlier."""
    assert data.pool is not None
    ids = np.flatnonzero(inlier_log_odds(infer(model, data.pool.x), data.K) > 0)
    return np.setdiff1d(ids, data.pool.excluded)


def inlier_log_odds(logits: np.ndarray, K: int) -> np.ndarray:
    """Of OpenMatch's one-vs-all head, for the class that the closed head predicts."""
    heads = heads_of(torch.from_numpy(logits), K).double().numpy()
    rows = np.arange(len(logits))
    c = logits[:, :K].argmax(1)
    return heads[rows, 1, c] - heads[rows, 0, c]
