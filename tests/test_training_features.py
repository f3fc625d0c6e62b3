"""What step E offers beyond the plain loop: parts of a batch, batches ahead of time, running means, number formats."""

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import nn

from blobs import blob_world, make_mlp
from interruption import Interrupted, StopAfter
from odst import Labelled, Phase, Pool, Schedule
from odst.errors import UserError
from odst.method.labelling import infer, model_hash
from odst.method.targets import Examples
from odst.progress import listening
from odst.rounds import seeded
from odst.seeds import stream
from odst.training.batches import Draw, Joint, ahead
from odst.training.precision import resolve, try_out
from odst.training.steps import begin, eq3, train

STEPS = (Phase(steps=30, lr=0.1, shape="cosine"),)


def without_batch_norm() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))


def with_batch_norm() -> nn.Module:
    torch.manual_seed(0)
    return make_mlp()


def fit(model: nn.Module, schedule: Schedule, scratch: Path | None = None, **options: float) -> nn.Module:
    data = blob_world()
    examples = Examples(data.labelled, data.pool, None, None, 1.0, data.K)
    return train(model, examples, schedule, data.val_in, rest_weight=1.0, seed=0, t=0, scratch=scratch, **options)


def image_examples() -> Examples:
    rng = stream(0, "images")
    x = rng.integers(256, size=(40, 8, 8, 3), dtype=np.uint8)
    return Examples(Labelled(x[:10], np.arange(10) % 2), Pool(x[10:]), None, None, 1.0, 2)


def image_draw(device: str = "cpu") -> Draw:
    phases = (Phase(steps=6, lr=0.1, augment=("crop:2", "flip", "autoaugment:cifar10", "cutout:4")),)
    plan = Schedule(phases=phases, batch=8).plan(10)
    return Draw(image_examples(), plan, rest=True, seed=3, t=1, device=device)


# parts of a batch


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 40), st.integers(1, 8), st.booleans())
def test_the_parts_of_a_batch_are_all_of_it_and_each_holds_both_halves(n: int, count: int, rest: bool) -> None:
    count = min(count, n)
    x, q = torch.arange(2.0 * n if rest else n).unsqueeze(1), torch.arange(float(n)).unsqueeze(1)
    joint = Joint(x, q, q + n if rest else None)
    parts = [joint.part(i, count) for i in range(count)]
    for part in parts:
        assert torch.equal(part.x, part.q if part.v is None else torch.cat([part.q, part.v]))
        assert n // count <= len(part.q) <= n // count + 1
    assert torch.equal(torch.cat([part.x for part in parts]).sort(dim=0).values, x)


@pytest.mark.parametrize("accumulate", [2, 3, 16])
def test_without_batch_norm_accumulated_parts_train_as_the_joint_batch_does(accumulate: int) -> None:
    joint = fit(without_batch_norm(), Schedule(phases=STEPS, batch=16))
    parts = fit(without_batch_norm(), Schedule(phases=STEPS, batch=16, accumulate=accumulate))
    for a, b in zip(joint.state_dict().values(), parts.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_the_shares_of_the_parts_make_up_equation_3() -> None:
    batch, model = image_draw()(0), nn.Sequential(nn.Flatten(), nn.Linear(192, 2)).double()
    parts = [batch.part(i, 3) for i in range(3)]

    def loss(part: Joint) -> torch.Tensor:
        return eq3(model(part.x.double()), part.q.double(), None if part.v is None else part.v.double(), 0.7)

    total = sum(len(part.q) / 8 * loss(part) for part in parts)
    torch.testing.assert_close(total, loss(batch), rtol=1e-12, atol=0)


# batches ahead of time


def test_batches_made_ahead_are_those_drawn_one_by_one() -> None:
    plain = [image_draw()(step) for step in range(6)]
    assert len({batch.x.sum().item() for batch in plain}) == 6
    for first in (0, 4, 6):
        for one, other in zip(plain[first:], ahead(image_draw(), range(first, 6)), strict=True):
            assert torch.equal(one.x, other.x)
            assert torch.equal(one.q, other.q)


def test_a_batch_lies_with_its_channels_last() -> None:
    assert image_draw()(0).x.is_contiguous(memory_format=torch.channels_last)


def test_a_fault_while_reading_ahead_is_raised_where_the_batch_is_used() -> None:
    def draw(step: int) -> Joint:
        if step == 3:
            raise OSError("the disk is gone")
        return image_draw()(step)

    batches = ahead(draw, range(6))
    assert [len(next(batches).q) for _ in range(3)] == [8, 8, 8]
    with pytest.raises(OSError, match="the disk is gone"):
        next(batches)


# running means


def test_the_running_mean_is_that_of_the_formula_and_a_young_one_forgets_faster() -> None:
    now = begin(with_batch_norm(), Schedule(phases=STEPS, ema=0.3), False, torch.float32, "cpu")
    mean = {name: w.clone() for name, w in now.model.state_dict().items()}
    for step in range(1, 6):
        now.model(torch.randn(8, 6)).square().sum().backward()
        now.update(0.01, 0.3)
        decay = min(0.3, (1 + step) / (10 + step))
        for name, w in now.model.state_dict().items():
            mean[name] = decay * mean[name] + (1 - decay) * w if w.is_floating_point() else w.clone()
        for name, w in now.judged.state_dict().items():
            torch.testing.assert_close(w, mean[name], rtol=1e-5, atol=1e-6)


def test_the_running_mean_is_the_model_that_is_judged_and_kept() -> None:
    one_step = (Phase(steps=1, lr=0.1),)
    start, plain = (
        with_batch_norm().state_dict(),
        fit(with_batch_norm(), Schedule(phases=one_step, batch=16)).state_dict(),
    )
    kept = fit(with_batch_norm(), Schedule(phases=one_step, batch=16, ema=0.9)).state_dict()
    assert not torch.equal(kept["net.1.weight"], plain["net.1.weight"])
    for name, value in kept.items():
        if value.is_floating_point():
            torch.testing.assert_close(value, 2 / 11 * start[name] + 9 / 11 * plain[name])


@pytest.mark.parametrize("stop", [5, 26])
def test_a_training_with_all_its_state_resumes_to_the_same_bits(tmp_path: Path, stop: int) -> None:
    schedule = Schedule(phases=STEPS, batch=16, ema=0.9, accumulate=2, precision="float16")
    whole = model_hash(fit(with_batch_norm(), schedule))
    with pytest.raises(Interrupted), listening(StopAfter(stop * 16)):
        fit(with_batch_norm(), schedule, tmp_path, checkpoint_seconds=0)
    assert (tmp_path / "train-0.safetensors").exists()
    assert model_hash(fit(with_batch_norm(), schedule, tmp_path, checkpoint_seconds=0)) == whole


def test_batches_are_made_on_one_core_and_the_network_keeps_all() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert list(ahead(lambda step: torch.get_num_threads(), range(3))) == [1, 1, 1]
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)


# number formats


def test_a_processor_trains_in_float32_unless_told_otherwise() -> None:
    assert resolve("auto", "cpu") == resolve("float32", "cpu") == torch.float32


def test_a_format_that_kills_its_trial_is_refused_and_the_process_lives() -> None:
    died = "import os, signal; os.kill(os.getpid(), signal.SIGILL)"
    assert try_out("cpu", "bfloat16", died) == "a trial was killed by signal 4"


def test_a_format_the_device_does_not_have_is_refused_with_the_way_out() -> None:
    with pytest.raises(UserError, match=r"bfloat16 does not work on this xla \(.+\). Set it to float32 or auto"):
        resolve("bfloat16", "xla")


def test_training_in_bfloat16_keeps_float32_weights_and_learns_as_much() -> None:
    short, long = (
        fit(with_batch_norm(), Schedule(phases=STEPS, batch=16, precision=p)) for p in ("bfloat16", "float32")
    )
    assert {w.dtype for w in short.parameters()} == {torch.float32}
    assert model_hash(short) != model_hash(long)
    val_in = blob_world().val_in
    errors = [(infer(model, val_in.x).argmax(1) != val_in.y).mean() for model in (short, long)]
    assert abs(errors[0] - errors[1]) < 0.05


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # what the compiler's own parts deprecate is not ours
def test_a_compiled_network_trains_to_the_same_weights() -> None:
    plain = fit(without_batch_norm(), Schedule(phases=STEPS, batch=16))
    compiled = fit(without_batch_norm(), Schedule(phases=STEPS, batch=16, compile=True))
    for name, w in plain.state_dict().items():
        torch.testing.assert_close(compiled.state_dict()[name], w, rtol=1e-4, atol=1e-5)


# what goes wrong


class Greedy(nn.Module):
    """Asks for more memory than any machine has, or says what another device would."""

    def __init__(self, says: str = "") -> None:
        super().__init__()
        self.weight, self.says = nn.Parameter(torch.ones(6, 3)), says

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.says:
            raise RuntimeError(self.says)
        return x @ self.weight + torch.empty(10**15)[:3]


@pytest.mark.parametrize(
    ("accumulate", "way_out"),
    [
        (2, r"training\.accumulate = 4 .*lower training\.batch"),
        (12, r"training\.accumulate = 16 "),
        (16, r"with accumulate = 16\. Bring the images to a smaller data\.size"),
    ],
)
def test_too_little_memory_is_one_line_with_the_setting_to_lower(accumulate: int, way_out: str) -> None:
    with pytest.raises(UserError, match=f"cpu has too little memory.*{way_out}"):
        fit(Greedy(), Schedule(phases=STEPS, batch=16, accumulate=accumulate))


@pytest.mark.parametrize("says", ["MPS backend out of memory (9 GB)", "CUDA error: CUBLAS_STATUS_ALLOC_FAILED"])
def test_too_little_memory_is_understood_from_every_device(says: str) -> None:
    with pytest.raises(UserError, match=r"too little memory"):
        fit(Greedy(says), Schedule(phases=STEPS, batch=16))


def test_other_faults_of_a_network_are_not_dressed_up() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        fit(nn.Linear(5, 3), Schedule(phases=STEPS, batch=16))


def test_a_loss_that_is_no_number_leaves_the_last_good_checkpoint(tmp_path: Path) -> None:
    phases = (Phase(steps=10, lr=0.1), Phase(steps=10, lr=1e38))
    schedule = Schedule(phases=phases, batch=16)
    for _ in range(2):  # going on from it meets the same fault at the same step
        with pytest.raises(UserError, match=r"round 0 at step 11 of 20, learning rate 1e\+38.*is kept: .*train-0"):
            fit(without_batch_norm(), schedule, tmp_path, checkpoint_seconds=0)
        tensors = load_file(tmp_path / "train-0.safetensors")
        assert all(tensor.isfinite().all() for tensor in tensors.values())
        assert {name.partition("/")[0] for name in tensors} == {"model", "momentum"}


def test_weights_that_the_very_last_step_spoils_are_not_kept() -> None:
    phases = (Phase(steps=9, lr=0.1), Phase(steps=1, lr=1e38))
    with pytest.raises(UserError, match=r"val_in became no numbers in round 0 at step 9 of 10, learning rate 1e\+38"):
        fit(without_batch_norm(), Schedule(phases=phases, batch=16))


def test_a_training_on_the_processor_wakes_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    seeded(lambda: fit(without_batch_norm(), Schedule(phases=(Phase(steps=1, lr=0.1),), batch=16)), 0)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"accumulate": 0}, r"training\.accumulate is between 1 and the batch \(128\), got 0"),
        ({"accumulate": 129}, r"between 1 and the batch \(128\), got 129"),
        ({"ema": 1.0}, r"training\.ema is a decay between 0 and 1, such as 0\.999, got 1"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(values: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        Schedule(phases=STEPS, **values)


def test_only_a_restart_narrows_the_last_fifth() -> None:
    falling = (Phase(epochs=90, lr=0.1), Phase(epochs=10, lr=0.01))
    assert Schedule(phases=falling, batch=10).plan(100).checks() == [10 * e for e in range(81, 101)]
    restarting = (Phase(epochs=90, lr=0.1, shape="cosine"), Phase(epochs=10, lr=0.01))
    assert Schedule(phases=restarting, batch=10).plan(100).checks() == [10 * e for e in range(91, 101)]
