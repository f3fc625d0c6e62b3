"""Networks: parity with pytorchcv, ShakeDrop's arithmetic, what a user may name and what is refused."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from odst.errors import UserError
from odst.vision.networks import IMAGE_NETWORKS, Normalised, make_network
from odst.vision.pyramidnet import Bottleneck, ShakeDrop, pyramidnet, shakedrop

MEAN, STD = [0.49, 0.48, 0.45], [0.25, 0.24, 0.26]


def image_network(name: str, K: int = 10, side: int = 32) -> Normalised:
    network = make_network(name, K, shape=(side, side, 3), mean=MEAN, std=STD)
    assert isinstance(network, Normalised)
    return network


def copy_in_order(source: nn.Module, target: nn.Module) -> None:
    """Both networks register their layers in the order of the forward pass."""
    theirs, ours = list(source.state_dict().values()), list(target.state_dict().values())
    assert [v.shape for v in theirs] == [v.shape for v in ours]
    with torch.no_grad():
        for a, b in zip(theirs, ours, strict=True):
            b.copy_(a)


def unsettled(network: nn.Module) -> nn.Module:
    """Batch-norm statistics as after training, so that parity tests every one of them."""
    generator = torch.Generator().manual_seed(1)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            n = module.num_features
            module.running_mean = 0.1 * torch.randn(n, generator=generator)
            module.running_var = 0.8 + 0.4 * torch.rand(n, generator=generator)
            module.weight.data = 0.8 + 0.4 * torch.rand(n, generator=generator)
            module.bias.data = 0.1 * torch.randn(n, generator=generator)
    return network


def assert_same_function(theirs: nn.Module, ours: nn.Module, side: int) -> None:
    copy_in_order(unsettled(theirs), ours)
    x = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        torch.testing.assert_close(ours.eval()(x), theirs.eval()(x), rtol=1e-4, atol=1e-4)


def small_stem(network: nn.Module) -> nn.Module:
    """An ImageNet ResNet of pytorchcv with the stem for 32×32 in place of its own."""
    from pytorchcv.models.common.conv import conv3x3_block

    network.features.init_block = conv3x3_block(in_channels=3, out_channels=64)
    network.features.final_pool = nn.AdaptiveAvgPool2d(1)
    return network


@pytest.mark.parametrize(
    ("name", "module", "factory"),
    [
        ("resnet18", "resnet", "resnet18"),
        ("resnet50", "resnet", "resnet50b"),  # b: the stride is in the 3×3 convolution, as in every later ResNet-50
    ],
)
def test_a_resnet_for_small_images_is_pytorchcvs_with_the_stem_replaced(name: str, module: str, factory: str) -> None:
    models = pytest.importorskip(f"pytorchcv.models.{module}")
    assert_same_function(small_stem(getattr(models, factory)(num_classes=10)), image_network(name).net, 32)


def test_a_resnet_for_large_images_is_pytorchcvs() -> None:
    models = pytest.importorskip("pytorchcv.models.resnet")
    assert_same_function(models.resnet50b(num_classes=10), image_network("resnet50", side=224).net, 224)


@pytest.mark.slow
def test_wideresnet_28_10_is_pytorchcvs() -> None:
    models = pytest.importorskip("pytorchcv.models.wrn_cifar")
    assert_same_function(models.wrn28_10_cifar10(), image_network("wideresnet28-10").net, 32)


@pytest.mark.slow
def test_pyramidnet_272_without_shakedrop_is_pytorchcvs() -> None:
    models = pytest.importorskip("pytorchcv.models.pyramidnet_cifar")
    assert_same_function(models.pyramidnet272_a200_bn_cifar10(), pyramidnet(10, last=0.0), 32)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("resnet18", 11_173_962),
        ("resnet50", 23_520_842),
        ("wideresnet28-10", 36_479_194),
        ("pyramidnet272", 26_210_842),
    ],
)
def test_parameter_counts_are_the_published_ones(name: str, parameters: int) -> None:
    with torch.device("meta"):
        build = IMAGE_NETWORKS[name][2]
        assert sum(p.numel() for p in build(10, 32).parameters()) == parameters


def test_shakedrop_in_expectation_over_gates_is_evaluation_mode() -> None:
    torch.manual_seed(0)
    x = torch.randn(4000, 8)
    draws = torch.stack([shakedrop(x, 0.3, training=True) for _ in range(300)])
    scale = (draws * x).sum() / (300 * x.square().sum())
    assert scale == pytest.approx(0.7, abs=0.06)  # 300 gates: standard error 0.026
    torch.testing.assert_close(shakedrop(x, 0.3, training=False), 0.7 * x)


def test_shakedrop_draws_one_gate_per_batch_and_alpha_per_image() -> None:
    torch.manual_seed(0)
    x = torch.ones(500, 3, 2, 2)
    open_gates = 0
    for _ in range(50):
        scale = shakedrop(x, 0.5, training=True)
        assert torch.equal(scale, scale[:, :1, :1, :1].expand_as(scale))  # one factor for the whole image
        alphas = scale[:, 0, 0, 0]
        if torch.equal(alphas, torch.ones(500)):
            open_gates += 1
        else:
            assert len(alphas.unique()) > 490
            assert alphas.min() < -0.95
            assert alphas.max() > 0.95
            assert alphas.mean() == pytest.approx(0, abs=0.15)
    assert 12 <= open_gates <= 38


@pytest.mark.parametrize("gate", [0.0, 1.0])
def test_shakedrop_goes_back_through_beta_and_not_alpha(gate: float) -> None:
    x = torch.randn(6, 4, requires_grad=True)
    alpha, beta = torch.linspace(-1, 1, 6).view(6, 1), torch.linspace(0, 1, 6).view(6, 1)
    out = ShakeDrop.apply(x, torch.tensor(gate), alpha, beta)
    out.sum().backward()
    torch.testing.assert_close(out, x * (1.0 if gate else alpha))
    torch.testing.assert_close(x.grad, torch.ones_like(x) * (1.0 if gate else beta))


def test_survival_probabilities_fall_linearly_to_one_half() -> None:
    with torch.device("meta"):
        closing = [layer.p for layer in pyramidnet(10) if isinstance(layer, Bottleneck)]
    assert len(closing) == 90
    assert [1 - p for p in closing] == pytest.approx([1 - 0.5 * layer / 90 for layer in range(1, 91)])


def test_pyramidnet_learns_in_training_mode_with_its_gates() -> None:
    torch.manual_seed(0)
    network = pyramidnet(3, depth=29, alpha=12)
    x, y = torch.randn(12, 3, 16, 16), torch.arange(12) % 3
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for _ in range(40):
        loss = nn.functional.cross_entropy(network(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert sum(losses[-10:]) / 10 < 0.6 * sum(losses[:5]) / 5


def test_normalisation_sits_inside() -> None:
    torch.manual_seed(0)
    network = image_network("tiny").eval()
    x = torch.rand(4, 3, 32, 32)
    mean, std = torch.tensor(MEAN).view(1, 3, 1, 1), torch.tensor(STD).view(1, 3, 1, 1)
    torch.testing.assert_close(network(x), network.net((x - mean) / std))


@pytest.mark.parametrize(
    ("name", "side"), [("tiny", 28), ("small", 28), ("small", 64), ("resnet18", 96), ("resnet50", 64)]
)
def test_networks_take_the_sizes_they_are_meant_for(name: str, side: int) -> None:
    with torch.no_grad():
        assert image_network(name, K=7, side=side)(torch.rand(2, 3, side, side)).shape == (2, 7)


def test_the_same_seed_gives_the_same_weights() -> None:
    def weights() -> list[torch.Tensor]:
        torch.manual_seed(5)
        return list(image_network("small").state_dict().values())

    assert all(torch.equal(a, b) for a, b in zip(weights(), weights(), strict=True))


@pytest.mark.parametrize(("name", "K", "error"), [("tiny", 3, 0.03), ("small", 3, 0.03)])
def test_small_networks_learn_in_a_few_steps(name: str, K: int, error: float) -> None:
    """Stripes along rows, along columns, and none: learnt in 30 steps of 32."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)

    def batch(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.randint(K, (n,), generator=generator)
        x = 0.5 + 0.15 * torch.randn(n, 3, 16, 16, generator=generator)
        stripes = 0.15 * (2 * (torch.arange(16) % 4 < 2) - 1)
        x[y == 0] += stripes.view(1, 1, 16, 1)
        x[y == 1] += stripes.view(1, 1, 1, 16)
        return x, y

    network = image_network(name, K, side=16)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9, nesterov=True)
    for _ in range(30):
        x, y = batch(32)
        loss = nn.functional.cross_entropy(network(x), y)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    x, y = batch(300)
    with torch.no_grad():
        assert (network.eval()(x).argmax(1) != y).float().mean() <= error


def test_mlp_takes_features_and_images_do_not_fit_it() -> None:
    network = make_network("mlp", 4, shape=(20,), std=2.0)
    assert network(torch.randn(3, 20)).shape == (3, 4)
    with pytest.raises(UserError, match=r"mlp takes feature vectors, the data are 32×32 images\. Take small"):
        image_network("mlp")
    with pytest.raises(UserError, match=r"resnet50 takes images, the data are feature vectors of length 20\. Take mlp"):
        make_network("resnet50", 4, shape=(20,))


def test_a_network_given_the_labelled_images_normalises_by_their_mean_and_spread() -> None:
    x = np.random.default_rng(0).integers(0, 200, (50, 8, 8, 3), dtype=np.uint8)
    network = make_network("tiny", 4, x)
    assert isinstance(network, Normalised)
    pixels = torch.from_numpy(x).double().flatten(0, 2) / 255
    assert torch.allclose(network.mean.flatten().double(), pixels.mean(0))
    assert torch.allclose(network.std.flatten().double(), pixels.std(0, correction=0))
    features = np.full((7, 5), 3.0)
    network = make_network("mlp", 4, images=features)
    assert network.mean.tolist() == [[3.0] * 5] and network.std.tolist() == [[1.0] * 5]  # a feature that never changes


def test_a_network_for_no_rows_is_refused() -> None:
    with pytest.raises(UserError, match=r"mlp for what rows\? Give make_network the labelled images, or the shape"):
        make_network("mlp", 4)


def test_an_unknown_network_names_the_nearest() -> None:
    with pytest.raises(UserError, match=r"no network 'resnet5'\. Nearest: resnet50"):
        image_network("resnet5")


def test_a_size_a_network_does_not_take_is_refused_with_those_that_do() -> None:
    with pytest.raises(
        UserError,
        match=r"pyramidnet272 takes images of 16 to 64 pixels.*224×224.*Set data\.size .*resnet18 or resnet50",
    ):
        image_network("pyramidnet272", side=224)


def test_timm_is_used_where_it_imports_and_explained_where_not() -> None:
    try:
        import timm  # noqa: F401
    except Exception:
        with pytest.raises(UserError, match=r"timm:resnet18: needs timm.*pip install timm"):
            image_network("timm:resnet18")
    else:
        assert image_network("timm:resnet18")(torch.rand(2, 3, 32, 32)).shape == (2, 10)
        with pytest.raises(UserError, match=r"timm has no network .resnet1.\. Nearest: resnet18"):
            image_network("timm:resnet1")


FACTORIES = """
import torch
from torch import nn

def by_position(K):
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, K))

def by_keyword(width=4, num_classes=1000):
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, num_classes))

def only_keywords(**options):
    return by_keyword(**options)

def wrong_count(K):
    return by_position(K + 1)

def sized(K):
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 28 * 28, K))

def no_module(K):
    return {"classes": K}

def broken(K):
    raise RuntimeError("no weights\\nat hand")
"""


@pytest.fixture
def factories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "my_networks.py").write_text(FACTORIES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "my_networks", raising=False)
    return "my_networks"


@pytest.mark.parametrize("factory", ["by_position", "by_keyword", "only_keywords"])
def test_a_factory_in_the_working_directory_is_a_network(factories: str, factory: str) -> None:
    path = list(sys.path)
    network = image_network(f"{factories}:{factory}")
    assert network.training
    assert network(torch.rand(2, 3, 32, 32)).shape == (2, 10)
    assert sys.path == path


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("wrong_count", r"must return logits of shape \(batch, 10\), for a batch of 2 it returned shape \(2, 11\)"),
        ("sized", r"sized does not take 32×32 images \(RuntimeError: .*another network"),
        ("no_module", r"no_module returned a dict"),
        ("broken", r"broken does not give a network \(RuntimeError: no weights at hand\)"),
        ("absent", r"absent does not give a network \(AttributeError"),
    ],
)
def test_a_wrong_factory_is_one_line_that_names_what_came_back(factories: str, factory: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as raised:
        image_network(f"{factories}:{factory}")
    assert "\n" not in str(raised.value)


def test_a_missing_module_is_named() -> None:
    with pytest.raises(UserError, match=r"no_such_package.nets:make does not give a network \(ModuleNotFoundError"):
        image_network("no_such_package.nets:make")
