"""What sets, pools and networks are, in hashes: enough to tell whether two runs share one."""

import hashlib
import inspect
import sys
from typing import Any

import numpy as np
from torch import nn

from odst.data.images import Data, Pool, fingerprint
from odst.files import digest, sha256
from odst.vision.finetuning import head_of
from odst.vision.hubs import state_hash


def network_key(name: str, model: nn.Module) -> str:
    """A hash of what a network is: the shapes of its weights, and the code of a factory of one's own and of those of its parts
    that are not torch's or ours."""
    shapes = {name: list(value.shape) for name, value in model.state_dict().items()}
    own = {type(part) for part in model.modules() if type(part).__module__.split(".")[0] not in ("torch", "odst")}
    factory = sys.modules.get(name.partition(":")[0]) if ":" in name else None
    files = {file for one in [*own, *([factory] if factory else [])] if (file := _source(one)) is not None}
    return digest([shapes, repr(model), sorted(sha256(file) for file in files)])


def begun_key(model: nn.Module) -> str:
    """A hash of the weights that a network begins with: all but those of its head, which are drawn."""
    drawn = {id(value) for value in head_of(model).parameters()}
    state = model.state_dict(keep_vars=True)
    return state_hash({name: value for name, value in state.items() if id(value) not in drawn})


def _source(code: Any) -> str | None:
    try:
        return inspect.getsourcefile(code)
    except (TypeError, OSError):  # made at a prompt
        return None


def describe_sets(data: Data) -> dict[str, Any]:
    """How many images each set but the pool has, and a hash of them and their labels."""
    sets = {}
    for name, one in (("labelled", data.labelled), ("val_in", data.val_in), ("test", data.test)):
        if one is not None:
            sets[name] = {"images": len(one), "hash": fingerprint(one.x, one.y)}
    for name, x in {"val_out": data.val_out, **{f"out_test.{name}": x for name, x in data.out_tests.items()}}.items():
        if x is not None:
            sets[name] = {"images": len(x), "hash": fingerprint(x)}
    return sets


def describe_pool(pool: Pool) -> dict[str, Any]:
    excluded = hashlib.blake2b(np.ascontiguousarray(pool.excluded).data, digest_size=16).hexdigest()
    return {"images": len(pool), "excluded": len(pool.excluded), "hash": digest([pool.id, excluded])}
