"""What the paper states, one line each: its numbers, its equations, its lemmas."""

import numpy as np
import pytest
import torch

from odst.data.images import Labelled, Pool
from odst.method.labelling import Predictions
from odst.method.targets import Examples
from odst.recipe import METHODS, ODST, OE, ONE_SHOT, SOFT_REST, ST, ST_OT, SUPERVISED, UNIFORM_REST, Recipe
from odst.training.steps import eq3

# golden numbers --------------------------------------------------------------------------------------------------------------


def test_cifar10_takes_25k_50k_75k_a_class():
    assert [ODST.per_class(t, 50_000, 10) for t in range(3)] == [25_000, 50_000, 75_000]


def test_cifar100_takes_2250_4500_6750_a_class():
    assert [ODST.per_class(t, 45_000, 100) for t in range(3)] == [2_250, 4_500, 6_750]


def test_svhn_takes_25k_50k_75k_a_class_which_its_formula_does_not_give():
    assert ODST.per_class(0, 73_257, 10) == 36_628
    assert [Recipe(k=(25_000, 50_000, 75_000)).per_class(t, 73_257, 10) for t in range(3)] == [25_000, 50_000, 75_000]


def test_odst_is_alpha_998_damping_a_half_three_rounds():
    assert (ODST.alpha, ODST.damping, ODST.rounds) == (0.998, 0.5, 3)


def test_one_alpha_serves_both_thresholds_unless_one_of_them_has_its_own():
    assert ODST.alphas(val_out=True) == (0.998, 0.998)
    assert ODST.alphas(val_out=False) == (0.998, None)
    assert ST.alphas(val_out=True) == (0.998, None)
    assert Recipe(alpha=0.9, alpha_in=0.8).alphas(val_out=True) == (0.8, 0.9)
    assert Recipe(alpha_out=0.7, in_threshold=False).alphas(val_out=True) == (None, 0.7)


def test_the_methods_are_the_rows_of_the_papers_tables():
    def row(recipe):
        return recipe.out_threshold, recipe.rest_weight > 0, recipe.damping, recipe.ratio

    assert row(ODST) == (True, True, 0.5, (5, 10, 15))
    assert row(ST)[:2] == (False, False)
    assert row(ST_OT)[:2] == (True, False)
    assert row(UNIFORM_REST) == (True, True, 1.0, (5, 10, 15))
    assert row(SOFT_REST) == (True, True, 0.0, (5, 10, 15))
    assert row(ONE_SHOT) == (True, True, 0.5, (15,))
    assert SUPERVISED.rounds == OE.rounds == 0
    assert (SUPERVISED.rest_weight, OE.rest_weight) == (0.0, 1.0)
    assert METHODS["st-cw"][0].closed_world
    assert METHODS["given-selection"][0].given_selection


# equations -------------------------------------------------------------------------------------------------------------------


def test_eq1_is_eq3_with_nothing_selected_and_damping_one_in_loss_and_gradient():
    torch.manual_seed(0)
    x, z, y, K = torch.randn(8, 6), torch.randn(12, 6), torch.randint(4, (8,)), 4
    U = Pool(z.numpy())
    teacher = Predictions(np.random.default_rng(0).normal(size=(12, K)).astype(np.float32), 0.7)
    _, v = Examples(Labelled(x.numpy(), y.numpy()), U, teacher, None, 1.0, K).rest_batch(np.arange(12))
    gradients = []
    for equation in (1, 3):
        torch.manual_seed(1)
        model = torch.nn.Linear(6, K)
        if equation == 1:
            uniform = torch.full((12, K), 1 / K)
            loss = torch.nn.functional.cross_entropy(model(x), y) + torch.nn.functional.cross_entropy(model(z), uniform)
        else:
            one_hot = torch.nn.functional.one_hot(y, K).float()
            loss = eq3(model(torch.cat([x, z])), one_hot, torch.from_numpy(v).float(), 1.0)
        loss.backward()
        gradients.append((loss.detach(), model.weight.grad, model.bias.grad))
    for a, b in zip(*gradients, strict=True):
        assert torch.allclose(a, b, atol=1e-6)


# lemmas ----------------------------------------------------------------------------------------------------------------------


def test_a_lookup_table_trained_with_our_loss_reaches_the_bayes_optimal_predictions_of_both_lemmas():
    """Four places x with K = 3; p_in and p_all are counts, so that the empirical losses are the expected ones."""
    K = 3
    p_in_xy = np.array([[30, 5, 5], [0, 20, 20], [15, 0, 5], [0, 0, 0]])  # labelled images by place and class
    p_all = np.array([10, 40, 20, 130])  # pool images by place; the last place is none of the task's
    T = Labelled(
        np.eye(4, dtype=np.float32)[np.repeat(np.arange(4), p_in_xy.sum(1))],
        np.concatenate([np.repeat(np.arange(K), row) for row in p_in_xy]),
    )
    places = np.repeat(np.arange(4), p_all)
    U = Pool(np.eye(4, dtype=np.float32)[places])
    inside, everything = p_in_xy.sum(1) / p_in_xy.sum(), p_all / p_all.sum()
    with np.errstate(invalid="ignore"):
        p_in = np.nan_to_num(p_in_xy / p_in_xy.sum(1, keepdims=True), nan=1 / K)
    teacher = None
    for t in range(4):
        p = None if teacher is None else Predictions(teacher[places], 1.0)
        examples = Examples(T, U, p, None, damping=1.0 if t == 0 else 0.0, K=K)
        x, q = examples.batch(np.arange(len(T)))
        x_rest, v = examples.rest_batch(np.arange(len(U)))
        batch, q, v = (torch.from_numpy(a).double() for a in (np.concatenate([x, x_rest]), q, v))
        table = torch.zeros(4, K, dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [table], max_iter=500, tolerance_grad=1e-10, tolerance_change=1e-14, line_search_fn="strong_wolfe"
        )

        def closure(optimizer=optimizer, table=table, batch=batch, q=q, v=v):
            optimizer.zero_grad()
            loss = eq3(batch @ table, q, v, 1.0)
            loss.backward()
            return loss

        optimizer.step(closure)
        teacher = table.detach().numpy()
        share = (everything / (inside + everything))[:, None] ** (t + 1)
        lemma = p_in + share * (1 / K - p_in)
        if t == 0:  # lemma 1
            assert np.allclose(
                lemma, (p_in * inside[:, None] + everything[:, None] / K) / (inside + everything)[:, None]
            )
        reached = torch.from_numpy(teacher).softmax(1).numpy()
        assert np.allclose(reached, lemma, atol=1e-4), t
    assert reached[3] == pytest.approx([1 / K] * K, abs=1e-6)  # uniform where the task has nothing
