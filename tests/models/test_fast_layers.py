"""The layers in C against torch's own in float64, and the cases in which torch's own serve."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as F

from genie_dg.models import _fast_layers as fast
from genie_dg.models.classifier import build_network

pytestmark = pytest.mark.skipif(fast.layer_library() is None, reason="there is no C compiler")

LAST = torch.channels_last


class Middle(nn.Module):
    """The middle of a block with parameters of its own: of the clamp before, the convolution and its norm."""

    def __init__(self, channels: int, kernel: int, stride: int, seed: int = 0) -> None:
        super().__init__()
        random = torch.Generator().manual_seed(seed)
        self.convolution = nn.Conv2d(channels, channels, kernel, stride, groups=channels, bias=False)
        self.norm = nn.BatchNorm2d(channels, eps=1e-3).eval()
        self.shift = nn.Parameter(torch.zeros(channels))
        with torch.no_grad():
            self.norm.running_var.uniform_(0.1, 3, generator=random)  # type: ignore[union-attr]
            self.norm.running_mean.uniform_(-1, 3, generator=random)  # type: ignore[union-attr]
            for parameter in self.parameters():
                parameter.uniform_(-2, 3, generator=random)

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            return F.relu6(self.stages(x)[1])
        return fast.clamp_convolve_clamp(x, self.shift, self.convolution, self.norm)

    def stages(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """What each of the two clamps gets, by torch's own layers."""
        first = x + self.shift[:, None, None]
        padded = fast.padded_same(F.relu6(first), self.convolution.kernel_size[0], self.convolution.stride[0])
        return first, self.norm(self.convolution(padded))


class Outer(nn.Module):
    """A convolution over all channels and its norm."""

    def __init__(self, channels: int, kernel: int, stride: int) -> None:
        super().__init__()
        torch.manual_seed(channels)
        self.convolution, self.norm = nn.Conv2d(channels, 24, kernel, stride, bias=False), Middle(24, 1, 1).norm

    def forward(self, x: Tensor) -> Tensor:
        if x.dtype == torch.float64:
            x = fast.padded_same(x, self.convolution.kernel_size[0], self.convolution.stride[0])
            y: Tensor = self.norm(self.convolution(x))
            return y
        return fast.convolve(x, self.convolution, self.norm)


def pictures(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).contiguous(memory_format=LAST)


def with_gradients(layer: nn.Module, x: Tensor) -> list[Tensor]:
    """The output, and the gradients of the input and the parameters for a fixed gradient of the output."""
    x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
    y = layer(x)
    g = torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, [x, *layer.parameters()], g)]


def agree(layer: nn.Module, x: Tensor) -> None:
    """C in float32 against torch in float64, and C served."""
    assert fast.serves_layers(x, next(layer.parameters()))
    exact = with_gradients(copy.deepcopy(layer).double(), x.double())
    for got, expected in zip(with_gradients(layer, x), exact, strict=True):
        assert got.shape == expected.shape
        assert torch.allclose(got.double(), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([8, 16, 40, 72]),
    st.integers(1, 7),
    st.integers(1, 3),
    st.tuples(st.integers(1, 20), st.integers(1, 11), st.integers(1, 11)),
)
def test_middle_of_a_block(channels: int, kernel: int, stride: int, size: tuple[int, int, int]) -> None:
    layer, x = Middle(channels, kernel, stride), pictures(size[0], channels, *size[1:])
    with torch.no_grad():
        at_clamps = copy.deepcopy(layer).double().stages(x.double())
    # at an end of a clamp roundings decide whether a gradient passes
    assume(all(float((z - end).abs().min()) > 1e-5 for z in at_clamps for end in (0, 6)))
    agree(layer, x)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from([3, 8, 24]),
    st.sampled_from([(1, 1), (3, 1), (3, 2)]),
    st.tuples(st.integers(1, 5), st.integers(1, 9), st.integers(1, 9)),
)
def test_convolution_and_norm(channels: int, kernel: tuple[int, int], size: tuple[int, int, int]) -> None:
    agree(Outer(channels, *kernel), pictures(size[0], channels, *size[1:]))


def test_one_picture_and_one_at_a_time_differ_by_rounding_alone() -> None:
    layer, x = Middle(40, 3, 2), pictures(33, 40, 6, 6)
    assert torch.equal(torch.cat([layer(one[None]) for one in x]), layer(x))


@pytest.mark.parametrize("channels", [8, 12])
def test_what_is_too_much_for_c_is_torchs(channels: int) -> None:
    kernel = fast.LARGEST_KERNEL + 1 if channels == 8 else 3
    layer, x = Middle(channels, kernel, 1), pictures(1, channels, 20, 20)
    weight, bias = fast.folded(layer.convolution, layer.norm)
    assert torch.equal(layer(x), fast.plain_middle(x, layer.shift, weight, bias, 1))


def test_not_a_number_stays() -> None:
    x, layer = pictures(1, 8, 3, 4), Middle(8, 3, 1)
    x[0, 0, 0, 0], x[0, 1, 0, 0], x[0, 2, 0, 0] = float("nan"), float("inf"), float("-inf")
    weight, bias = fast.folded(layer.convolution, layer.norm)
    expected = fast.plain_middle(x, layer.shift, weight, bias, 1)
    assert torch.allclose(layer(x), expected, equal_nan=True, atol=1e-5)
    assert expected.isnan().sum() == 4


def test_any_number_of_threads_gives_the_same_bits() -> None:
    layer, x, threads = Middle(40, 5, 2), pictures(37, 40, 9, 9), torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            results.append(with_gradients(layer, x))
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_gradients_of_gradients() -> None:
    layer, x = Middle(8, 3, 1), pictures(2, 8, 4, 4)

    def twice(layer: nn.Module, x: Tensor) -> list[Tensor]:
        x = x.detach().clone(memory_format=torch.preserve_format).requires_grad_()
        (first,) = torch.autograd.grad(layer(x).square().sum(), x, create_graph=True)
        return list(torch.autograd.grad(first.square().sum(), [x, *layer.parameters()]))

    exact = twice(copy.deepcopy(layer).double(), x.double())
    for got, expected in zip(twice(layer, x), exact, strict=True):
        assert torch.allclose(got.double(), expected, rtol=1e-4, atol=1e-5 * float(expected.abs().max()))


@pytest.mark.parametrize("change", [lambda x: x.double(), lambda x: x[:0]], ids=["float64", "no pictures"])
def test_what_torch_serves(change: Callable[[Tensor], Tensor]) -> None:
    assert fast.serves_layers(pictures(2, 8, 4, 4), torch.ones(1))
    assert not fast.serves_layers(change(pictures(2, 8, 4, 4)), torch.ones(1))


@pytest.fixture(scope="module")
def network() -> nn.Module:
    torch.manual_seed(0)
    built = build_network("efficientnet_lite0", 7, 3, 32, pretrained=True)
    return built.to(memory_format=LAST).eval()


@torch.no_grad()
def classify(network: nn.Module, x: Tensor) -> Tensor:
    logits: Tensor = network.head(network.features(x))  # type: ignore[operator]
    return logits


def distance(got: list[Tensor], exact: list[Tensor]) -> float:
    """The largest of the relative distances, array by array."""
    return max(float((a - b).norm() / b.norm()) for a, b in zip(got, exact, strict=True))


class TestNetwork:
    def test_same_with_and_without_c(self, network: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
        x = pictures(4, 3, 32, 32)
        served = with_gradients(network.featurizer, x)  # type: ignore[arg-type]
        with monkeypatch.context() as patch:
            patch.setattr(fast, "layer_library", lambda: None)
            plain = with_gradients(network.featurizer, x)  # type: ignore[arg-type]
        exact = with_gradients(copy.deepcopy(network.featurizer).double(), x.double())  # type: ignore[arg-type]
        assert not torch.equal(served[0], plain[0])
        ours, torchs = distance(served, exact), distance(plain, exact)
        assert ours < 2 * torchs + 1e-6

    @pytest.mark.parametrize("hooked", [False, True])
    def test_a_hook_inside_a_block_is_called(self, network: nn.Module, hooked: bool) -> None:
        calls: list[nn.Module] = []
        inner = [m for m in network.modules() if isinstance(m, nn.Conv2d) and m.groups > 1]
        assert len(inner) == 16
        handle = inner[3].register_forward_hook(lambda module, *_: calls.append(module)) if hooked else None
        try:
            classify(network, pictures(1, 3, 32, 32))
        finally:
            if handle is not None:
                handle.remove()
        assert calls == (inner[3:4] if hooked else [])

    def test_a_layer_put_in_place_of_another_is_called(self, network: nn.Module) -> None:
        class Adapted(nn.Conv2d):
            def forward(self, x: Tensor) -> Tensor:
                return 0 * super().forward(x)

        x, other = pictures(1, 3, 32, 32), copy.deepcopy(network)
        block = other.get_submodule("featurizer.network._blocks.2")
        usual = block._project_conv
        adapted = Adapted(usual.in_channels, usual.out_channels, 1, bias=False)  # type: ignore[arg-type, union-attr]
        adapted.load_state_dict(usual.state_dict())  # type: ignore[union-attr]
        block._project_conv = adapted
        assert not torch.allclose(classify(other, x), classify(network, x), rtol=0.1)

    def test_any_layout_gives_the_same_bits(self, network: nn.Module) -> None:
        x = pictures(3, 3, 32, 32)
        results = [with_gradients(network.featurizer, one) for one in (x, x.contiguous())]  # type: ignore[arg-type]
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))

    def test_training_statistics_are_torchs(self, monkeypatch: pytest.MonkeyPatch) -> None:
        results = []
        for library in (fast.layer_library, lambda: None):
            monkeypatch.setattr(fast, "layer_library", library)
            torch.manual_seed(0)
            built = (
                build_network("efficientnet_lite0", 7, 3, 32, freeze_statistics=False)
                .to(memory_format=LAST)
                .train()
            )
            results.append([classify(built, pictures(4, 3, 32, 32)), *built.buffers()])
        assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))

    def test_random_weights_are_those_of_the_public_code(self) -> None:
        from efficientnet_lite_pytorch import EfficientNet

        from genie_dg.models._efficientnet import LiteNetwork

        states = []
        for kind in (EfficientNet, LiteNetwork):
            torch.manual_seed(3)
            states.append(kind.from_name("efficientnet-lite0").state_dict())
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
