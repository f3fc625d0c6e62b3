"""What sets, pools and networks are, in hashes: enough to tell whether two runs share one."""

import hashlib
from typing import Any

import numpy as np
from torch import nn

from odst.data.images import Data, Pool, fingerprint
from odst.files import digest
from odst.vision.finetuning import head_of
from odst.vision.weights import state_hash


def begun_key(model: nn.Module) -> str:
    """A hash of the weights that a network begins with: all but those of its head, which are drawn."""
    drawn = {id(value) for value in head_of(model).parameters()}
    state = model.state_dict(keep_vars=True)
    return state_hash({name: value for name, value in state.items() if id(value) not in drawn})


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
