"""What a run would do, before it does it: sizes, k per round, disk, and an estimate of time; with a scan, what it would find."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from odst.data.encoding import Encoding
from odst.data.images import is_counted, is_image
from odst.data.vectors import Embedder
from odst.engine.processors import processors
from odst.few_labels import weights_for
from odst.locks import lock
from odst.method.labelling import as_input, as_tensor, batch_for, weights
from odst.progress import duration, stage
from odst.run.config import Config
from odst.run.directory import RunDir
from odst.run.outlook import Outlook, described, look_ahead, write_outlook
from odst.run.preparation import Prepared, prepare
from odst.training.batches import Joint
from odst.training.precision import autocast, resolve
from odst.training.schedule import Schedule
from odst.training.steps import eq3, explained
from odst.vision.augmentation import augmenter
from odst.vision.networks import mean_level

TRIAL = 2.0  # seconds of measuring for each of training and labelling


@dataclass(frozen=True)
class Forecast:
    lines: list[str]  # a page for people
    seconds: float
    disk: float  # bytes
    outlook: Outlook | None  # what a scan has found

    def to_json(self) -> dict[str, Any]:
        found = {} if self.outlook is None else self.outlook.to_json()
        return {**found, "seconds": self.seconds, "disk_bytes": self.disk, "says": self.lines}


def forecast(config: Config, out: Path, *, scan: int | None = None) -> Forecast:
    """Times come from a few real steps on this machine.

    Without a scan nothing is written. With one a quick base looks at so many pool images: what is not packed or embedded yet
    is packed and embedded in `out`, as the run would do it, and forecast.json is left there for the report.
    """
    if scan is None:
        return Forecast(*_expense(prepare(config, None), out), None)
    with lock(out, "odst forecast"):
        RunDir(out).open(config)  # refuses a folder that holds anything else
        prepared = prepare(config, out)
        outlook = look_ahead(config, prepared.data, scan, prepared.device)
        lines, seconds, disk = _expense(prepared, out)
        write_outlook(out, outlook, seconds, disk)
    return Forecast([*lines, *described(outlook)], seconds, disk, outlook)


def _expense(prepared: Prepared, out: Path) -> tuple[list[str], float, float]:
    """The lines of the page, the seconds and the bytes of the whole run."""
    config = prepared.config
    data, recipe, schedules = prepared.data, config.recipe(), config.schedules()
    n, K, m = len(data.labelled), data.K, 0 if data.pool is None else len(data.pool)
    train_rate, label_rate = rates(prepared, schedules[0])
    lines = [
        f"method      {config.method.name}, seed {config.run.seed}, {recipe.rounds} rounds after the base, on {prepared.device}",
        f"labelled    {n:,} images, {K} classes: {', '.join(data.classes[:12])}{', …' if K > 12 else ''}",
        f"pool        {m:,} images" + (f", {len(data.pool.excluded):,} excluded" if data.pool is not None else ""),
        f"val_in      {len(data.val_in):,} images, val_out {0 if data.val_out is None else len(data.val_out):,}",
        f"test        {0 if data.test is None else len(data.test):,} images, out-distribution: {', '.join(data.out_tests) or 'none'}",
        f"speed       {train_rate:,.0f} images/s in training, {label_rate:,.0f} in labelling, by trial",
    ]
    seconds = 0.0
    for t in range(recipe.rounds + 1):
        schedule = schedules[min(t, len(schedules) - 1)]
        k = recipe.per_class(t - 1, n, K) if t else 0
        steps = schedule.plan((recipe.labelled_copies if t else 1) * n + k * K).steps
        images = steps * schedule.batch * (2 if recipe.rest_weight else 1)
        spent = images / train_rate + (m / label_rate if t < recipe.rounds else 0)
        seconds += spent
        chosen = f"up to {k:,} images a class" if t else "the labelled images"
        lines.append(f"round {t}     {chosen}, at most {steps:,} steps of {schedule.batch}, {duration(spent, 0)}")
    if beside := _beside(prepared):
        images = schedules[0].plan(n).steps * schedules[0].batch
        scan = m / label_rate if recipe.spare is not None and recipe.needs_labels_alone else 0
        spent = images * (1 + 2 * (beside - 1)) / train_rate + scan
        seconds += spent
        more = f", and up to {beside - 1} more weights of the rest" if beside > 1 else ""
        lines.append(f"beside      the labels alone{more}, {duration(spent, 0)}")
    model = len(weights(prepared.make_model()))
    disk = model * (recipe.rounds + 4 + 2 * beside) + recipe.rounds * m * K * 4
    if data.pool is not None and is_counted(data.pool.x):  # it will be packed into the run directory
        stored = [one for one in (data.pool.x, data.pool.pictures) if one is not None and is_counted(one)]
        disk += sum(math.prod(one.shape) * one.dtype.itemsize for one in stored)
        if prepared.encoding is not None:
            spent = m / embedding_rate(prepared.encoding)
            seconds += spent
            lines.append(f"vectors     of the pool, by {prepared.encoding.identity}, {duration(spent, 0)}")
    lines.append(f"disk        {disk / 1e6:,.0f} MB in {out}")
    lines.append(f"time        about {duration(seconds, 0)}")
    return lines, seconds, disk


def _beside(prepared: Prepared) -> int:
    """Models beside the rounds, at most: labels alone, and bases that are tried and not taken."""
    recipe = prepared.config.recipe()
    if recipe.rest_weight == "auto":
        return len(weights_for(prepared.data.labelled.x))
    return int(prepared.config.run.labels_alone or recipe.needs_labels_alone)


def rates(prepared: Prepared, schedule: Schedule) -> tuple[float, float]:
    """Images a second of training and of labelling, from real steps of the real network on labelled images: in the number
    format and the parts of a batch that the run will take."""
    T, device, K = prepared.data.labelled, prepared.device, prepared.data.K
    model = prepared.make_model().to(device)
    images = is_image(T.x)
    if images:
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    augment = augmenter(schedule.phases[0].augment, mean_level(T.x) if images else ())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    rows = np.arange(2 * schedule.batch) % len(T)
    target = torch.full((schedule.batch, K), 1 / K, device=device)
    dtype = resolve(schedule.precision, device)

    def step() -> None:
        generator = torch.Generator().manual_seed(0)
        batch = as_input(as_tensor(T.x[rows], device), lambda images: augment(images, generator))
        optimizer.zero_grad()
        for i in range(schedule.accumulate):
            part = Joint(batch, target, target).part(i, schedule.accumulate)
            with autocast(dtype, device):
                loss = eq3(model(part.x).float(), part.q, part.v, 1.0)
            loss.backward()
        optimizer.step()

    at_once = batch_for(T.x)

    def label() -> None:
        with torch.inference_mode():
            model(as_input(as_tensor(T.x[np.arange(at_once) % len(T)], device))).cpu()

    model.train()
    with explained(schedule, device):
        training = _rate("try training", step, len(rows), device)
    model.eval()
    return training, _rate("try labelling", label, at_once, device)


def embedding_rate(encoding: Encoding) -> float:
    """Pictures a second that the backbone makes vectors of, on as many processes as there are processors."""
    size = encoding.identity.size
    pictures = np.full((32, size, size, 3), 128, np.uint8)
    embedder = Embedder(encoding.embedder.spec)  # one that remembers nothing

    def embed() -> None:
        embedder(pictures, [""] * len(pictures))

    return processors() * _rate("try embedding", embed, len(pictures), "cpu")


def _rate(name: str, work: Callable[[], None], images: int, device: str) -> float:
    with stage(name, unit="images") as advance:

        def timed() -> float:
            begin = time.perf_counter()
            work()
            advance(images)
            return time.perf_counter() - begin

        first = timed()
        if device == "cpu" and first > 5 * TRIAL:  # so slow that the warming up does not show in it
            return images / first
        spent = [timed(), timed()]
        while sum(spent) < TRIAL:
            spent.append(timed())
    return images * len(spent) / sum(spent)
