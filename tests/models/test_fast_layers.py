"""The layers in C against torch's own in float64, and the cases in which torch's own serve."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from genie_dg.models import _fast_layers as fast
from genie_dg.models.classifier import build_network

pytestmark = pytest.mark.skipif(fast.library() is None, reason="there is no C compiler")

LAST = torch.channels_last


def convolution(channels: int, kernel: int, stride: int, seed: int = 0) -> fast.DepthwiseConvolution:
    torch.manual_seed(seed)
    return fast.DepthwiseConvolution(nn.Conv2d(channels, channels, kernel, stride, groups=channels, bias=False))


def norm(channels: int, bounded: bool, seed: int = 0) -> fast.NormAndClamp:
    generator = torch.Generator().manual_seed(seed)
    layer = fast.NormAndClamp(nn.BatchNorm2d(channels, eps=1e-3), bounded).eval()
    with torch.no_grad():
        for tensor, low in (
            (layer.weight, -2),
            (layer.bias, -1),
            (layer.running_mean, -1),
            (layer.running_var, 0.1),
        ):
            assert tensor is not None
            tensor.uniform_(low, 3, generator=generator)
    return layer


def pictures(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).contiguous(memory_format=LAST)


def with_gradients(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """The output, and the gradients of the input and the parameters for a fixed gradient of the output."""
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    y = layer(x)
    g = pictures(*y.shape, seed=2).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, [x, *layer.parameters()], g)]


def agree(layer: nn.Module, x: Tensor) -> None:
    """C in float32 against torch in float64, and C served."""
    assert fast.can_serve(x, next(layer.parameters()))
    exact = with_gradients(copy.deepcopy(layer).double(), x.double())
    for got, expected in zip(with_gradients(layer, x), exact, strict=True):
        assert got.shape == expected.shape
        assert torch.allclose(got.double(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([8, 16, 40, 72]),
    st.integers(1, 7),
    st.integers(1, 3),
    st.tuples(st.integers(1, 4), st.integers(1, 11), st.integers(1, 11)),
)
def test_depthwise_convolution(channels: int, kernel: int, stride: int, size: tuple[int, int, int]) -> None:
    agree(convolution(channels, kernel, stride), pictures(size[0], channels, *size[1:]))


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([8, 24, 64]),
    st.booleans(),
    st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(1, 9)),
)
def test_norm_with_fixed_statistics(channels: int, bounded: bool, size: tuple[int, int, int]) -> None:
    agree(norm(channels, bounded), pictures(size[0], channels, *size[1:]))


def test_a_kernel_too_large_for_c_is_torchs() -> None:
    layer, x = convolution(8, fast.LARGEST_KERNEL + 1, 1), pictures(1, 8, 20, 20)
    assert torch.equal(layer(x), fast.plain_depthwise(x, layer.weight, 1))


def test_not_a_number_stays() -> None:
    x = pictures(1, 8, 1, 2)
    x[0, 0, 0, 0], x[0, 1, 0, 0], x[0, 2, 0, 0] = float("nan"), float("inf"), float("-inf")
    layer = norm(8, bounded=True)
    expected = fast.plain_norm(
        x,
        layer.weight,
        layer.bias,
        layer.running_mean,
        layer.running_var,
        layer.eps,
        True,  # type: ignore[arg-type]
    )
    assert torch.allclose(layer(x), expected, equal_nan=True, atol=1e-5)
    assert expected.isnan().sum() == 1


@pytest.mark.parametrize("layer", [convolution(40, 5, 2), norm(40, bounded=True)], ids=["convolution", "norm"])
def test_any_number_of_threads_gives_the_same_bits(layer: nn.Module) -> None:
    x, threads = pictures(7, 40, 9, 9), torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(with_gradients(layer, x))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


@pytest.mark.parametrize("layer", [convolution(8, 3, 1), norm(8, bounded=True)], ids=["convolution", "norm"])
def test_gradients_of_gradients(layer: nn.Module) -> None:
    x = pictures(2, 8, 4, 4)

    def twice(layer: nn.Module, x: Tensor) -> list[Tensor]:
        x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        return list(torch.autograd.grad(first.square().sum(), [x, *layer.parameters()]))

    exact = twice(copy.deepcopy(layer).double(), x.double())
    for got, expected in zip(twice(layer, x), exact, strict=True):
        assert torch.allclose(got.double(), expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.contiguous(),
        lambda x: x.double(),
        lambda x: x[:, :7].contiguous(memory_format=LAST),
        lambda x: x[:0],
    ],
    ids=["channels first", "float64", "seven channels", "no pictures"],
)
def test_what_torch_serves(change: Callable[[Tensor], Tensor]) -> None:
    assert not fast.can_serve(change(pictures(2, 8, 4, 4)), torch.ones(1))


def test_training_statistics_are_torchs() -> None:
    x, layer = pictures(4, 8, 3, 3), norm(8, bounded=True).train()
    plain = nn.BatchNorm2d(8, eps=1e-3)
    plain.load_state_dict(layer.state_dict())
    assert torch.equal(layer(x), F.relu6(plain(x)))
    assert all(torch.equal(a, b) for a, b in zip(layer.buffers(), plain.buffers(), strict=True))


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    built = build_network("efficientnet_lite0", 7, 3, 32, pretrained=True)
    return built.to(memory_format=LAST).eval()


@torch.no_grad()
def classify(network: nn.Module, x: Tensor) -> Tensor:
    logits: Tensor = network.head(network.features(x))  # type: ignore[operator]
    return logits


class TestNetwork:
    def test_same_with_and_without_c(self, network: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
        x = pictures(4, 3, 32, 32)
        served = classify(network, x)
        calls = [module for module in network.modules() if isinstance(module, fast.DepthwiseConvolution)]
        assert len(calls) == 16
        monkeypatch.setattr(fast, "library", lambda: None)
        plain = classify(network, x)
        assert not torch.equal(served, plain)
        assert torch.allclose(served, plain, rtol=1e-3, atol=1e-4 * float(plain.abs().max()))

    def test_random_weights_are_those_of_the_public_code(self, monkeypatch: pytest.MonkeyPatch) -> None:
        states = []
        for replace in (fast.replace_layers, lambda network: None):
            monkeypatch.setattr("genie_dg.models.efficientnet_lite.replace_layers", replace)
            torch.manual_seed(3)
            states.append(build_network("efficientnet_lite0", 7, 3, 32).state_dict())
        assert states[0].keys() == states[1].keys()
        assert all(torch.equal(a, b) for a, b in zip(states[0].values(), states[1].values(), strict=True))

    def test_per_sample_gradients(self, network: nn.Module) -> None:
        x = pictures(2, 3, 32, 32)
        parameters = {n: p.detach() for n, p in network.featurizer.named_parameters()}  # type: ignore[union-attr]

        def of_sample(values: dict[str, Tensor], sample: Tensor) -> Tensor:
            features = torch.func.functional_call(network.featurizer, values, (sample[None],))  # type: ignore[arg-type]
            total: Tensor = features.square().mean()
            return total

        gradients = torch.func.vmap(torch.func.grad(of_sample), in_dims=(None, 0))(parameters, x)
        total = network.featurizer(x).square().mean(1).sum()  # type: ignore[operator]
        together = torch.autograd.grad(total, list(network.featurizer.parameters()))  # type: ignore[union-attr]
        for each, whole in zip(gradients.values(), together, strict=True):
            assert torch.allclose(each.sum(0), whole, rtol=1e-2, atol=1e-3 * float(whole.abs().max()))

    def test_export_holds_torchs_operations(self, network: nn.Module) -> None:
        x = pictures(1, 3, 32, 32)
        exported = torch.export.export(network.featurizer, (x,))  # type: ignore[arg-type]
        assert torch.allclose(exported.module()(x), network.featurizer(x), rtol=1e-3, atol=1e-3)  # type: ignore[operator]
        targets = {str(node.target) for node in exported.graph.nodes if node.op == "call_function"}
        assert targets
        assert all(target.startswith("aten.") or "getitem" in target for target in targets)

    def test_bfloat16(self, network: nn.Module) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            assert classify(network, pictures(2, 3, 32, 32)).isfinite().all()

    def test_deep_copy_and_state(self, network: nn.Module) -> None:
        x = pictures(2, 3, 32, 32)
        assert torch.equal(classify(copy.deepcopy(network), x), classify(network, x))
