import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from blobs import blob_world, make_mlp
from interruption import Interrupted, StopAfter
from odst import Phase, Schedule
from odst.errors import UserError
from odst.method.labelling import infer, model_hash
from odst.method.targets import Examples
from odst.progress import listening
from odst.training.steps import train

SCHEDULE = Schedule(phases=(Phase(steps=40, lr=0.1, shape="cosine"),), batch=16)


def seeded():
    torch.manual_seed(0)
    return make_mlp()


def base(data):
    return Examples(data.labelled, data.pool, None, None, 1.0, data.K)


def fit(data, schedule=SCHEDULE, scratch=None, seed=0, **options):
    return train(
        seeded(), base(data), schedule, data.val_in, rest_weight=1.0, seed=seed, t=0, scratch=scratch, **options
    )


def test_the_same_seed_gives_the_same_bits_and_another_seed_others():
    data = blob_world()
    assert model_hash(fit(data)) == model_hash(fit(data))
    assert model_hash(fit(data)) != model_hash(fit(data, seed=1))


def test_training_leaves_the_callers_randomness_alone():
    data, model = blob_world(), seeded()
    before = torch.get_rng_state()
    train(model, base(data), SCHEDULE, data.val_in, rest_weight=1.0, seed=0, t=0)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("stop", [1, 7, 33, 36, 39])
def test_a_training_broken_off_anywhere_resumes_to_the_same_bits(tmp_path: Path, stop):
    data = blob_world()
    whole = model_hash(fit(data))
    with pytest.raises(Interrupted), listening(StopAfter(stop * 16)):
        fit(data, scratch=tmp_path, checkpoint_seconds=0)
    assert model_hash(fit(data, scratch=tmp_path, checkpoint_seconds=0)) == whole


def test_a_damaged_checkpoint_is_named(tmp_path: Path):
    (tmp_path / "train-0.safetensors").write_bytes(b"not a checkpoint")
    with pytest.raises(UserError, match=r"train-0\.safetensors.*damaged"):
        fit(blob_world(), scratch=tmp_path)


def test_a_foreign_checkpoint_is_refused(tmp_path: Path):
    with pytest.raises(Interrupted), listening(StopAfter(80)):
        fit(blob_world(), scratch=tmp_path, checkpoint_seconds=0)
    with pytest.raises(UserError, match="another training"):
        fit(blob_world(), scratch=tmp_path, seed=1)


@pytest.mark.parametrize("change", ["a label of T", "an image of T", "a label of val_in", "the pool", "its exclusions"])
def test_a_checkpoint_of_other_sets_is_refused(tmp_path: Path, change: str):
    data = blob_world()
    with pytest.raises(Interrupted), listening(StopAfter(80)):
        fit(data, scratch=tmp_path, checkpoint_seconds=0)
    T, val_in, pool = deepcopy((data.labelled, data.val_in, data.pool))
    if change == "a label of T":
        T.y[0] = (T.y[0] + 1) % 3
    elif change == "an image of T":
        T.x[0] += 1
    elif change == "a label of val_in":
        val_in.y[0] = (val_in.y[0] + 1) % 3
    elif change == "the pool":
        pool = replace(pool, x=pool.x + 1)
    else:
        pool = replace(pool, excluded=np.array([5]))
    with pytest.raises(UserError, match="belongs to another training or an older odst"):
        fit(replace(data, labelled=T, val_in=val_in, pool=pool), scratch=tmp_path)


def test_a_checkpoint_that_does_not_say_what_ours_says_is_an_older_odsts(tmp_path: Path):
    with pytest.raises(Interrupted), listening(StopAfter(80)):
        fit(blob_world(), scratch=tmp_path, checkpoint_seconds=0)
    file = tmp_path / "train-0.safetensors"
    with safe_open(file, "pt") as opened:
        state = json.loads(opened.metadata()["state"])
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    del state["val_in"]
    save_file(tensors, file, {"state": json.dumps(state)})
    with pytest.raises(UserError, match=r"belongs to another training or an older odst\. Delete it"):
        fit(blob_world(), scratch=tmp_path)


def test_the_kept_model_has_the_lowest_val_error_of_the_last_fifth_and_of_equals_the_later():
    data = blob_world()
    schedule = Schedule(phases=(Phase(steps=25, lr=0.5),), batch=4)
    errors, models = [], []
    for steps in (21, 22, 23, 24, 25):
        # a constant rate: a shorter schedule is the beginning of the longer one
        short = Schedule(phases=(Phase(steps=steps, lr=0.5),), batch=4)
        last = short.plan(len(data.labelled))
        last_only = train_to_the_end(data, short, last.steps)
        errors.append((infer(last_only, data.val_in.x).argmax(1) != data.val_in.y).mean())
        models.append(model_hash(last_only))
    best = max(i for i, e in enumerate(errors) if e == min(errors))
    assert schedule.plan(len(data.labelled)).checks() == [21, 22, 23, 24, 25]
    assert model_hash(fit(data, schedule)) == models[best]


def train_to_the_end(data, schedule, steps):
    """The model after the last step, whatever its error: plain SGD on eq. (3), written out."""
    from odst.seeds import Shuffle
    from odst.training.steps import eq3

    model, examples = seeded(), base(data)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.5, momentum=0.9, nesterov=True, weight_decay=schedule.weight_decay
    )
    joined, rest = Shuffle(len(examples), 0, "joined", 0), Shuffle(len(examples.rest), 0, "rest", 0)
    model.train()
    for step in range(steps):
        places = np.arange(step * 4, step * 4 + 4)
        (x, q), (z, v) = examples.batch(joined[places]), examples.rest_batch(rest[places])
        loss = eq3(
            model(torch.from_numpy(np.concatenate([x, z]))),
            torch.from_numpy(q).float(),
            torch.from_numpy(v).float(),
            1.0,
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def test_a_loss_that_is_no_number_stops_the_training_and_names_the_place():
    with pytest.raises(UserError, match=r"round 0 at step \d+ of 40, learning rate 1e\+30"):
        fit(blob_world(), Schedule(phases=(Phase(steps=40, lr=1e30),), batch=16))


def test_the_checkpoint_holds_no_more_than_tensors(tmp_path: Path):
    with pytest.raises(Interrupted), listening(StopAfter(80)):
        fit(blob_world(), scratch=tmp_path, checkpoint_seconds=0)
    head = (tmp_path / "train-0.safetensors").read_bytes()
    assert int.from_bytes(head[:8], "little") < len(head)  # a safetensors header, no pickle


def test_a_checkpoint_with_a_changed_byte_is_refused(tmp_path: Path):
    with pytest.raises(Interrupted), listening(StopAfter(80)):
        fit(blob_world(), scratch=tmp_path, checkpoint_seconds=0)
    file = tmp_path / "train-0.safetensors"
    raw = bytearray(file.read_bytes())
    raw[-100] ^= 1
    file.write_bytes(bytes(raw))
    with pytest.raises(UserError, match="damaged"):
        fit(blob_world(), scratch=tmp_path)


def test_a_checkpoint_of_another_loss_is_refused(tmp_path: Path):
    data = blob_world()
    with pytest.raises(Interrupted), listening(StopAfter(80)):
        fit(data, scratch=tmp_path, checkpoint_seconds=0)
    with pytest.raises(UserError, match="another training"):
        train(seeded(), base(data), SCHEDULE, data.val_in, rest_weight=0.0, seed=0, t=0, scratch=tmp_path)
