"""benchmarks.peers: the loss of one step against the originals', what the network is shown, and the scores.

The originals' values were computed once in float64: by FixMatch and PseudoLabel of USB (semilearn 0.3.2, train_step), and by the lines of
OpenMatch's public trainer between its network and its backward pass, on logits that `table` gives.
"""

from pathlib import Path

import numpy as np
import pytest
import torch
from benchmarks.peers.losses import one_vs_all_loss, open_entropy
from benchmarks.peers.methods import LOSSES, Batches, Moment
from benchmarks.peers.scoring import row_of
from benchmarks.peers.settings import settings_of
from benchmarks.peers.training import inliers_of
from benchmarks.peers.views import RANGES, draw, rand_augment
from sklearn.metrics import roc_auc_score
from torch import nn

from odst.data.images import Data, Labelled, Pool
from odst.data.worlds import load_world
from odst.vision.operations import NAMES, NOTHING

N, M, K = 4, 8, 4  # labelled images, pool images, classes


def table(rows: int, columns: int, phase: float) -> torch.Tensor:
    """Logits as a formula, float64."""
    i, j = torch.arange(rows, dtype=torch.float64).view(-1, 1), torch.arange(columns, dtype=torch.float64)
    return (6 * torch.sin(phase + 0.37 * i + 1.3 * j + 0.11 * i * j)).requires_grad_()


class Tables(nn.Module):
    """A network that gives these logits, one after the other, to whatever is put in."""

    def __init__(self, *logits: torch.Tensor):
        super().__init__()
        self.coming = list(logits)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        z = self.coming.pop(0)
        assert len(x) == len(z)
        return z


def batches(method: str, **changes) -> Batches:
    """T holds one image a class, so a batch of it has the labels 0 to 3 in order."""
    rows = np.zeros((40, 8, 8, 3), np.uint8)
    s = settings_of(method, 1000, 0, batch=N, mu=M // N, **changes)
    return Batches(Labelled(rows[:N], np.arange(N)), Pool(rows), s)


# losses against the originals ----------------------------------------------------------------------------------------------


def test_a_step_of_fixmatch_has_the_loss_and_gradients_of_the_original() -> None:
    labelled, weak, strong = table(N, K, 0.0), table(M, K, 1.0), table(M, K, 2.0)
    loss = LOSSES["fixmatch"](Tables(torch.cat([labelled, weak, strong])), batches("fixmatch"), Moment(3, 0.5))
    loss.backward()
    assert loss.item() == pytest.approx(5.792657524818573, rel=1e-12)
    assert labelled.grad.abs().sum().item() == pytest.approx(1.5111366128398853, rel=1e-12)
    assert strong.grad.abs().sum().item() == pytest.approx(0.2985310883142287, rel=1e-12)
    assert not weak.grad.any()  # it gives the labels


def test_a_step_of_pseudo_labelling_has_the_loss_and_gradients_of_the_original() -> None:
    labelled, pool = table(N, K, 0.0), table(M, K, 1.0)
    network = Tables(torch.cat([labelled, pool]))
    loss = LOSSES["pseudo"](network, batches("pseudo"), Moment(100, 0.1))  # a quarter of the warm-up of 0.4
    loss.backward()
    assert loss.item() == pytest.approx(5.40699337560051, rel=1e-12)
    assert pool.grad.abs().sum().item() == pytest.approx(0.001735129608726322, rel=1e-12)


def test_the_terms_of_the_one_vs_all_head_are_those_of_the_original() -> None:
    z = table(N, 2 * K, 0.5)
    loss = one_vs_all_loss(z.view(N, 2, K), torch.arange(N))
    loss.backward()
    assert loss.item() == pytest.approx(4.55628567879279, rel=1e-12)
    assert z.grad.abs().sum().item() == pytest.approx(2.5298213601243194, rel=1e-12)
    z = table(M, 2 * K, 0.7)
    loss = open_entropy(z.view(M, 2, K))
    loss.backward()
    assert loss.item() == pytest.approx(0.29216061718868813, rel=1e-12)
    assert z.grad.abs().sum().item() == pytest.approx(0.21179455751803303, rel=1e-12)


@pytest.mark.parametrize(
    ("threshold", "fixing", "total", "gradient"),
    [
        (0.0, True, 20.217661414858096, 1.7593951204931582),
        (0.95, True, 16.164963976912173, 0.7397155562688675),
        (0.0, False, 13.36260784033923, None),  # before the FixMatch phase
    ],
)
def test_a_step_of_openmatch_has_the_loss_and_gradients_of_the_original(
    threshold: float, fixing: bool, total: float, gradient: float | None
) -> None:
    closed, heads, inliers = table(2 * N + 2 * M, K, 0.0), table(2 * N + 2 * M, 2 * K, 0.5), table(2 * M, K, 1.0)
    network = Tables(torch.cat([closed, heads], dim=1), torch.cat([inliers, torch.zeros(2 * M, 2 * K)], dim=1))
    moment = Moment(3, 0.5, np.array([1, 5, 9]) if fixing else None)
    loss = LOSSES["openmatch"](network, batches("openmatch", threshold=threshold), moment)
    loss.backward()
    assert loss.item() == pytest.approx(total, rel=1e-12)
    assert closed.grad.abs().sum().item() == pytest.approx(1.3933018216895405, rel=1e-12)
    assert heads.grad.abs().sum().item() == pytest.approx(3.8801213298362054, rel=1e-12)
    assert (inliers.grad is None) is not fixing
    if gradient is not None:
        assert inliers.grad.abs().sum().item() == pytest.approx(gradient, rel=1e-12)


# views ---------------------------------------------------------------------------------------------------------------------


def test_strong_views_draw_every_operation_of_fixmatch_over_its_whole_range() -> None:
    code, magnitude = draw(40_000, 32, 20, torch.Generator().manual_seed(0), 2)
    assert NAMES.index("Invert") not in code
    assert (code == NOTHING).double().mean().item() == pytest.approx(0.5 + 0.5 / 14, abs=0.01)
    for name, (low, high) in RANGES.items():
        if name == "Identity":
            continue
        own = magnitude[code == NAMES.index(name)] / {"TranslateX": 20, "TranslateY": 32}.get(name, 1)
        assert len(own) == pytest.approx(80_000 / 28, rel=0.1)
        assert low <= own.min() <= low + 0.01 * (high - low)
        assert high - 0.01 * (high - low) <= own.max() <= high


def test_a_strong_view_differs_from_its_image_more_than_a_weak_one_and_is_the_same_again() -> None:
    x = load_world("photos", 0, 8).labelled.x[:64]
    views = Batches(Labelled(x, np.zeros(64, np.int64)), Pool(x), settings_of("fixmatch", 9999, 0)).views
    plain = torch.from_numpy(x).permute(0, 3, 1, 2) / 255
    weak, strong, again, later = (
        make(x, step, "name")
        for make, step in ((views.weak, 1), (views.strong, 1), (views.strong, 1), (views.strong, 2))
    )
    assert strong.equal(again) and not strong.equal(later)
    assert (strong - plain).abs().mean() > 1.2 * (weak - plain).abs().mean()
    fill = views.fill / 255
    covered = (strong == fill.view(1, 3, 1, 1)).all(dim=1).double().mean(dim=(1, 2))
    assert covered.min() > 0.04 and covered.mean() > 0.15  # Cutout: a quarter of the image where it is not cut off
    grey = torch.full((50, 8, 8, 3), 100, dtype=torch.uint8)
    assert rand_augment(grey, views.fill, torch.Generator().manual_seed(1)).shape == grey.shape


def test_labelled_images_are_seen_as_weakly_as_the_pools_but_for_the_cutout_that_is_asked_for() -> None:
    x = load_world("photos", 0, 8).labelled.x[:64]
    T, U = Labelled(x, np.zeros(64, np.int64)), Pool(x)
    plain, cut = (Batches(T, U, settings_of("fixmatch", 9999, 0, cutout=n)).views for n in (0, 8))
    assert plain.labelled(x, 3, "name").equal(plain.weak(x, 3, "name")) and cut.weak(x, 3, "name").equal(
        plain.weak(x, 3, "name")
    )
    changed = (cut.labelled(x, 3, "name") != plain.labelled(x, 3, "name")).any(dim=1).sum(dim=(1, 2))
    assert changed.median() >= 16 and changed.max() <= 64


class Witness(nn.Module):
    """Keeps what it is shown."""

    def __init__(self, outputs: int):
        super().__init__()
        self.outputs, self.shown = outputs, []

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.shown.append((x * 255).round().int())
        return torch.zeros(len(x), self.outputs)


def levels(x: torch.Tensor) -> list[int]:
    """Of flat images, whose borders alone a crop can change: which each is."""
    return x[:, 0, 8, 8].tolist()


def shown(method: str, inliers: np.ndarray | None = None) -> list[torch.Tensor]:
    """T is the levels 0 to 3, the pool 100 to 199, of which the even ones are excluded."""
    flat = np.arange(200, dtype=np.uint8).reshape(-1, 1, 1, 1) * np.ones((1, 16, 16, 3), np.uint8)
    pool = Pool(flat[100:], excluded=np.arange(0, 100, 2))
    s = settings_of(method, 1000, 0, batch=4, mu=6)
    witness = Witness(12 if method == "openmatch" else 4)
    LOSSES[method](
        witness, Batches(Labelled(flat[:4], np.arange(4)), pool, s), Moment(1, 0.5, inliers)
    )  # within the first pass
    return witness.shown


def is_same_image_seen_twice(first: torch.Tensor, second: torch.Tensor) -> bool:
    return levels(first) == levels(second) and not first.equal(second)


def test_fixmatch_shows_the_weak_and_strong_views_of_the_same_pool_images() -> None:
    (x,) = shown("fixmatch")
    labelled, weak, strong = x.split([4, 24, 24])
    assert levels(labelled) == [0, 1, 2, 3]
    assert len(set(levels(weak))) == 24 and all(level >= 100 and level % 2 for level in levels(weak))
    kept = [(image == level).any().item() for image, level in zip(strong, levels(weak), strict=True)]
    assert np.mean(kept) > 0.5  # colours change in some
    assert not strong.equal(weak)


def test_openmatch_shows_two_views_of_each_image_and_then_inliers_alone() -> None:
    inliers = np.array([1, 7, 31])
    joint, passed = shown("openmatch", inliers)
    first, second, pool, again = joint.split([4, 4, 24, 24])
    assert levels(first) == [0, 1, 2, 3]
    assert is_same_image_seen_twice(first, second) and is_same_image_seen_twice(pool, again)
    assert len(set(levels(pool))) == 24 and all(level >= 100 and level % 2 for level in levels(pool))
    assert set(levels(passed[:24])) == {101, 107, 131}
    assert len(shown("openmatch")) == 1


def test_pseudo_labelling_shows_one_weak_view() -> None:
    (x,) = shown("pseudo")
    assert levels(x)[:4] == [0, 1, 2, 3] and len(x) == 28
    assert len(set(levels(x)[4:])) == 24 and all(level >= 100 and level % 2 for level in levels(x)[4:])


# rejection and scores ----------------------------------------------------------------------------------------------------


class Lookup(nn.Module):
    """The logits of an image are the row of a table that its first level names."""

    def __init__(self, logits: torch.Tensor):
        super().__init__()
        self.logits = logits

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits[(x[:, 0, 0, 0] * 255).round().long()]


def test_openmatch_lets_pass_what_the_predicted_class_own_head_takes_for_an_inlier() -> None:
    logits = table(60, 3 * K, 0.0).detach()
    x = np.zeros((60, 4, 4, 3), np.uint8)
    x[:] = np.arange(60).reshape(-1, 1, 1, 1)
    T = Labelled(x[:N], np.arange(N))
    data = Data(T, Pool(x, excluded=np.arange(10)), T, x[50:], T, {"same": x[:50]}, classes=tuple("abcd"))
    predicted = logits[:, :K].argmax(1)
    unknown = logits[:, K:].view(60, 2, K).softmax(1)[torch.arange(60), 0, predicted]  # as the original has it
    expected = [j for j in range(10, 60) if unknown[j] < 0.5]
    assert inliers_of(Lookup(logits), data).tolist() == expected and 5 < len(expected) < 45
    row = row_of(Lookup(logits), data, settings_of("openmatch", 1000, 0), Path("world-made"))
    known = 1 - unknown.numpy()
    assert row["own_od_auroc"] == pytest.approx(roc_auc_score([1] * N + [0] * 50, [*known[:N], *known[:50]]))
    assert row["own_val_od_auroc"] == pytest.approx(roc_auc_score([1] * N + [0] * 10, [*known[:N], *known[50:]]))
    assert row["selected"] == len(expected)  # its threshold is 0
