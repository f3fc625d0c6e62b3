"""odst on several GPUs, of one machine or more: `torchrun --nproc-per-node 2 --no-python odst run CONFIG`.

Process 0 runs the scheme as ever and alone writes files. The others wait for its trainings and take part in them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from safetensors.torch import load
from torch import nn

from odst.data.images import Data
from odst.method.targets import Examples
from odst.run.config import Config
from odst.run.preparation import prepare
from odst.training import processes
from odst.training.precision import pick_device
from odst.training.steps import train


@contextmanager
def first_process(config: Config, out: Path) -> Iterator[bool]:
    """True in the process that is to run the scheme. The others follow it first, and then get False."""
    device = pick_device(config.run.device)

    def sets_and_network() -> tuple[Data, Callable[[], nn.Module]]:
        prepared = prepare(config, out)
        return prepared.data, prepared.make_model

    with processes.process_group(device):
        if processes.rank() > 0:
            follow(device, sets_and_network)
            yield False
            return
        yield True
        if processes.size() > 1:  # after a fault there is nobody to tell: torchrun ends the others
            processes.tell(None)


def follow(device: str, prepare: Callable[[], tuple[Data, Callable[[], nn.Module]]]) -> None:
    """Take part in process 0's trainings until it is done. `prepare` gives the same sets and network as it has, and is
    called when process 0 has its own, so that nothing is packed twice."""
    job = processes.listen()
    if job is None:
        return
    data, make_model = prepare()
    while job is not None:
        model = make_model()
        model.load_state_dict(load(job.weights))
        pool = data.pool
        if pool is not None and job.excluded is not None and len(job.excluded) != len(pool.excluded):
            pool = replace(pool, excluded=job.excluded, identity=pool.id)
        examples = Examples(data.labelled, pool, job.predictions(), job.I, job.damping, data.K, job.labelled_copies)
        train(model, examples, job.schedule, data.val_in, device=device, **job.options)
        job = processes.listen()
