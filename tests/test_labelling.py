from pathlib import Path

import numpy as np
import pytest
import torch

from odst.errors import UserError
from odst.method.labelling import Predictions, as_input, as_tensor, batch_for, infer, model_hash, weights
from odst.vision.networks import make_network

M, D, K = 1000, 6, 3


def network(seed=0):
    torch.manual_seed(seed)
    return make_network("mlp", K, shape=(D,))


@pytest.fixture(scope="module")
def pool() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(M, D)).astype(np.float32)


def test_what_a_network_is_given_is_the_same_in_training_labelling_and_an_exported_file():
    images = np.random.default_rng(0).integers(0, 256, (5, 4, 6, 3), dtype=np.uint8)
    expected = torch.from_numpy(images).permute(0, 3, 1, 2) / 255
    plain, room = as_input(as_tensor(images, "cpu")), as_input(torch.from_numpy(images.astype(np.float32)))
    augmented = as_input(torch.from_numpy(images), lambda x: x.flip(3))
    for x in (plain, room, augmented.flip(3)):
        assert torch.equal(x, expected)
    assert plain.is_contiguous(memory_format=torch.channels_last)
    assert as_input(torch.ones(2, 3, dtype=torch.float16)).dtype == torch.float32


def test_of_large_images_fewer_go_through_the_network_at_once():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.seen = []

        def forward(self, x):
            self.seen.append(len(x))
            return x.mean((2, 3))

    rows = np.random.default_rng(0).integers(256, size=(300, 128, 128, 3), dtype=np.uint8)
    model = Counting()
    logits = infer(model, rows)
    assert model.seen[1:] == [128, 128, 44]  # the first image alone tells the number of classes
    np.testing.assert_allclose(logits, rows.mean((1, 2)) / 255, rtol=1e-5)
    assert [batch_for(np.empty((1, side, side, 3))) for side in (32, 64, 96, 224, 2000)] == [512, 512, 227, 41, 1]


def test_a_network_that_makes_one_row_of_a_batch_is_refused():
    class Averaging(torch.nn.Module):
        def forward(self, x):
            return x.mean(0, keepdim=True)

    with pytest.raises(UserError, match=r"made \(1, 6\) of 5 images\. It must return \(5, 6\)"):
        infer(Averaging(), np.ones((5, D), np.float32))


def test_an_empty_set_has_no_logits(pool):
    assert infer(network(), pool[:0]).shape == (0, K)


def test_rows_of_p_are_calibrated_probabilities(pool):
    logits = infer(network(), pool[:100])
    p = Predictions(logits, 0.5)[np.array([3, 50])]
    assert p == pytest.approx(torch.from_numpy(logits[[3, 50]] / 0.5).double().softmax(1).numpy(), abs=1e-6)


def test_rows_that_cannot_pass_are_left_out_and_none_that_can():
    logits = np.random.default_rng(1).normal(size=(5000, 4)).astype(np.float32) * 3
    tau = np.array([0.5, -np.inf, 2.0, np.inf])
    every = [np.concatenate(part) for part in zip(*Predictions(logits, 0.8).top(), strict=True)]
    some = [np.concatenate(part) for part in zip(*Predictions(logits, 0.8).top(tau), strict=True)]
    above = every[2] > tau[every[1]]
    assert np.array_equal(every[0][above], some[0][some[2] > tau[some[1]]])
    assert len(some[0]) < 0.8 * len(every[0])


def test_the_models_hash_is_that_of_its_weights_file(tmp_path: Path):
    import hashlib

    model = network()
    assert model_hash(model) == hashlib.sha256(weights(model)).hexdigest()
    assert model_hash(model) == model_hash(network())
    assert model_hash(model) != model_hash(network(1))
