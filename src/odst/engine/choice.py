"""What a person says of the engine, on the command line or in the environment -> an engine and a share."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from odst.engine.interface import Engine, Share, running_on
from odst.engine.local import Local
from odst.errors import UserError

ENGINES = ("local", "ray")


def choose_engine(
    engine: str | None,
    address: str | None,
    workers: int | None,
    gpus: float,
    environment: Mapping[str, str] = os.environ,
) -> Engine:
    """`engine` or ODST_ENGINE: local, ray, or ray:HOST:PORT."""
    text = engine or environment.get("ODST_ENGINE") or ("ray" if address else "local")
    name, _, behind = text.partition(":")
    address = address or behind or environment.get("RAY_ADDRESS")
    if name not in ENGINES:
        raise UserError(f"--engine: {text!r} is none of {', '.join(ENGINES)}.")
    if name == "local":
        if gpus:
            raise UserError("--gpus-per-worker: it is for --engine ray. On one machine choose --device.")
        if engine == "local" and address and not environment.get("RAY_ADDRESS"):
            raise UserError(f"--address {address}: it names a Ray cluster. Say --engine ray.")
        return Local(workers)
    if not address:
        raise UserError("--engine ray: which cluster? Give --address HOST:PORT; `ray start --head` prints it.")
    from odst.engine.ray import OnRay

    return OnRay(address, workers, gpus)


def choose_share(text: str | None, environment: Mapping[str, str] = os.environ) -> Share | None:
    """`3/8`, counted from 0; `slurm` and `torchrun` take theirs from the environment."""
    if text is None:
        return None
    if text in ("slurm", "torchrun"):
        first, names = 0, ("RANK", "WORLD_SIZE")
        if text == "slurm":
            first, names = (
                int(environment.get("SLURM_ARRAY_TASK_MIN", "0")),
                ("SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT"),
            )
        missing = [name for name in names if not environment.get(name, "").isdigit()]
        if missing:
            raise UserError(
                f"--shard {text}: {missing[0]} is not set here. Start it as an array job, or give --shard i/n."
            )
        index, count = int(environment[names[0]]) - first, int(environment[names[1]])
    elif match := re.fullmatch(r"(\d+)/(\d+)", text):
        index, count = int(match[1]), int(match[2])
    else:
        raise UserError(f"--shard takes i/n, for example 0/8, or slurm or torchrun, got {text!r}.")
    if not index < count:
        last = f"{count - 1}/{count}" if count else "0/1"
        raise UserError(f"--shard {index}/{count}: shares count from 0, so the last one is {last}.")
    return Share(index, count)


@contextmanager
def chosen(
    engine: str | None,
    address: str | None = None,
    workers: int | None = None,
    gpus: float = 0,
    shard: str | None = None,
) -> Iterator[None]:
    """Stages inside run where the command says."""
    share = choose_share(shard)
    with running_on(choose_engine(engine, address, workers, gpus), share):
        yield
