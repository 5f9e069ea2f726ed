"""Gradients by sample, micro-batch and domain against one backward for each."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from genie_dg.diagnostics import MeasurementError, gradient_moments, per_sample_gradients
from genie_dg.diagnostics._fast_conv import fast_convolutions
from tests.diagnostics.models import CASES, Case, cnn, loss, mlp
from tests.oracle import gradients as oracle


def flat(parts: dict[str, Tensor]) -> list[float]:
    return torch.cat([p.flatten() for p in parts.values()]).tolist()


def assert_moments(moments: Any, gradients: list[oracle.Gradient], tolerance: float) -> None:
    columns = oracle.columns(gradients)
    assert moments.count == len(gradients)
    assert flat(moments.mean) == pytest.approx([oracle.mean(c) for c in columns], rel=tolerance, abs=tolerance)
    assert flat(moments.variance) == pytest.approx(
        [oracle.variance(c) for c in columns], rel=tolerance, abs=tolerance
    )


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("chunk", [None, 1, 5])
def test_samples(name: str, chunk: int | None) -> None:
    model, data = CASES[name]()
    moments = gradient_moments(model, loss, data, chunk=chunk)
    assert (moments.axis, moments.unit, moments.label) == ("sample", 1, "sample")
    assert_moments(moments, oracle.sample_gradients(model, loss, data), 1e-12)


@pytest.mark.parametrize("name", CASES)
def test_samples_in_float32(name: str) -> None:
    model, data = CASES[name]()
    wanted = oracle.sample_gradients(model, loss, data)
    low = Case(copy.deepcopy(model).float(), tuple(t.float() if t.is_floating_point() else t for t in data))
    assert_moments(gradient_moments(low.model, loss, low.data), wanted, 2e-6)


@pytest.mark.parametrize("name", CASES)
def test_micro_batches(name: str) -> None:
    model, data = CASES[name]()
    moments = gradient_moments(model, loss, data, axis="micro-batch", micro_batch=5)
    assert (moments.axis, moments.unit, moments.label) == ("micro-batch", 5, "micro-batch of 5")
    assert_moments(moments, oracle.sample_gradients(model, loss, data, 5), 1e-12)  # two are left over


@pytest.mark.parametrize("name", CASES)
def test_domains(name: str) -> None:
    model, data = CASES[name]()
    domains = {"a": slice(0, 5), "b": slice(5, 9), "c": slice(9, 12)}
    batches = {k: tuple(t[s] for t in data) for k, s in domains.items()}
    moments = gradient_moments(model, loss, batches, axis="domain")
    assert (moments.axis, moments.unit) == ("domain", 1)
    assert_moments(moments, [oracle.flat_gradient(model, loss, b) for b in batches.values()], 1e-12)


@pytest.mark.parametrize("name", CASES)
def test_the_whole_matrix(name: str) -> None:
    model, data = CASES[name]()
    matrix = per_sample_gradients(model, loss, data, chunk=7)
    rows = torch.cat([g.flatten(1) for g in matrix.values()], 1).tolist()
    for row, wanted in zip(rows, oracle.sample_gradients(model, loss, data), strict=True):
        assert row == pytest.approx(wanted, rel=1e-12, abs=1e-13)


def test_a_large_mean_does_not_swallow_the_variance() -> None:
    """Signal 1000 times the noise in float32: a sum of squares would keep one digit."""
    x = 1000 + torch.randn(400, 3, generator=torch.Generator().manual_seed(0))
    line = nn.Linear(3, 1, bias=False)
    variance = gradient_moments(line, lambda model, x: model(x).mean(), (x,)).variance["weight"]
    torch.testing.assert_close(variance[0], x.double().var(0).float(), rtol=1e-4, atol=0)


def test_half_precision_is_accumulated_in_float32() -> None:
    line = nn.Linear(2, 1, bias=False).to(torch.bfloat16)
    x = torch.randn(300, 2, generator=torch.Generator().manual_seed(0)).to(torch.bfloat16)
    moments = gradient_moments(line, lambda model, x: model(x).mean(), (x,))
    assert moments.mean["weight"].dtype == torch.float32
    torch.testing.assert_close(moments.variance["weight"][0], x.float().var(0), rtol=1e-5, atol=0)


def test_dropout_gives_each_sample_its_own_mask() -> None:
    model, (x, y) = mlp()
    same = (x[:1].expand(40, -1), y[:1].expand(40))
    still = gradient_moments(model, loss, same)
    noisy = gradient_moments(model, loss, same, mode="dropout")
    assert max(v.max() for v in still.variance.values()) < 1e-25
    assert float(noisy.variance["head.weight"].mean()) > 1e-4
    again = gradient_moments(model, loss, same, mode="dropout")
    other = gradient_moments(model, loss, same, mode="dropout", seed=1)
    assert torch.equal(noisy.mean["head.weight"], again.mean["head.weight"])
    assert not torch.equal(noisy.mean["head.weight"], other.mean["head.weight"])


def test_dropout_mode_keeps_batch_norm_statistics() -> None:
    model, data = cnn()
    for mode in ("eval", "dropout"):  # this network has no dropout, so both are the same
        assert_moments(
            gradient_moments(model, loss, data, mode=mode), oracle.sample_gradients(model, loss, data), 1e-12
        )


def test_train_mode_is_the_gradient_of_training() -> None:
    model, data = cnn()
    moments = gradient_moments(model, loss, data, axis="micro-batch", micro_batch=4, mode="train")
    twin = copy.deepcopy(model).train()
    rows = []
    for i in range(3):
        twin.zero_grad()
        loss(twin, *(t[4 * i : 4 * i + 4] for t in data)).backward()
        rows.append(torch.cat([p.grad.flatten() for p in twin.parameters() if p.grad is not None]).tolist())
    assert_moments(moments, rows, 1e-12)


class Branching(nn.Module):
    """Looks at a value to decide what to do, which vmap cannot follow."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.a(x) if x.sum().item() > 0 else self.b(x)
        return out


def test_a_model_that_cannot_be_vmapped_gets_micro_batches() -> None:
    torch.manual_seed(0)
    model, data = Branching().double(), (torch.randn(9, 3, dtype=torch.float64), torch.arange(9) % 2)
    with pytest.warns(UserWarning, match=r"Branching cannot be vmapped \(.*\), so gradients were taken by"):
        moments = gradient_moments(model, loss, data)
    assert moments.label == "micro-batch of 1"
    assert_moments(moments, oracle.sample_gradients(model, loss, data), 1e-12)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gradient_moments(model, loss, data, micro_batch=3)


def test_an_error_of_the_model_itself_comes_through() -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        gradient_moments(nn.Linear(3, 2), loss, (torch.randn(4, 5), torch.zeros(4, dtype=torch.long)))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"stride": 2, "padding": 1},
        {"padding": (2, 0), "dilation": (1, 2), "kernel_size": (3, 2)},
        {"groups": 2, "bias": False},
        {"kernel_size": 1, "stride": 2},
        {"padding": "same"},
        {"padding_mode": "reflect", "padding": 1},
    ],
)
def test_fast_convolutions_equal_torch(options: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = nn.Conv2d(4, 6, **{"kernel_size": 3, **options}).double()
    x, y = torch.randn(5, 4, 8, 7, dtype=torch.float64), torch.arange(5) % 3

    def head(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(model(x).sin().mean((2, 3)), y)

    rows = per_sample_gradients(layer, head, (x, y))
    for i in range(5):
        wanted = torch.autograd.grad(head(layer, x[i : i + 1], y[i : i + 1]), list(layer.parameters()))
        for g, w in zip(rows.values(), wanted, strict=True):
            torch.testing.assert_close(g[i], w, rtol=1e-12, atol=1e-14)


def test_fast_convolutions_are_used_and_plain_calls_stay_right() -> None:
    x, w, b = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3, requires_grad=True), torch.randn(4)
    with fast_convolutions():
        y = F.conv2d(x, w, b, padding=1)
    assert "Convolution" in type(y.grad_fn.next_functions[0][0]).__name__
    torch.testing.assert_close(y, F.conv2d(x, w, b, padding=1))
    torch.testing.assert_close(
        torch.autograd.grad(y.square().sum(), w)[0],
        torch.autograd.grad(F.conv2d(x, w, b, padding=1).square().sum(), w)[0],
        rtol=1e-4, atol=1e-4,
    )  # fmt: skip


def independent(model: nn.Module, x: Tensor) -> Tensor:
    return x.mean()


def detached(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).detach().mean()


@pytest.mark.parametrize("bad", [independent, detached])
@pytest.mark.parametrize("axis", ["sample", "micro-batch"])
def test_a_loss_that_does_not_depend_on_the_parameters(bad: Any, axis: Any) -> None:
    with pytest.raises(MeasurementError, match="does not depend on any of the 2 trainable tensors"):
        gradient_moments(nn.Linear(2, 1), bad, (torch.randn(5, 2),), axis=axis)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"batch": (torch.full((5, 6), torch.nan), torch.zeros(5, dtype=torch.long))}, "are not finite"),
        ({"batch": ("abc",)}, "first dimension counts the same samples"),
        ({"axis": "batch"}, "got axis='batch'; expected sample, micro-batch or domain"),
        ({"mode": "train"}, "batch norm mixes the samples"),
        ({"micro_batch": 0}, "got micro_batch=0; expected a whole number of at least 1"),
        ({"loss": lambda model, x, y: model(x)}, "returned shape"),
    ],
)
def test_bad_input_gets_one_sentence(change: dict[str, Any], sentence: str) -> None:
    model, data = mlp(torch.float32)
    given = {"loss": loss, "batch": data, **change}
    with pytest.raises(MeasurementError, match=sentence) as caught:
        gradient_moments(model, given.pop("loss"), given.pop("batch"), **given)
    text = str(caught.value)
    assert text.endswith((".", "?"))
    assert "\n" not in text
