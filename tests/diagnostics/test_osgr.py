"""The theorem's OSGR: against the twin, against the closed form, and the formula as published."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from genie_dg.diagnostics import MeasurementError, gradient_moments, measure_osgr
from genie_dg.diagnostics.osgr import osgr_as_published, osgr_of_batch, osgr_of_moments, ratio_of_means
from genie_dg.statistics import t_quantile
from paper import theory
from tests.diagnostics.models import CASES, loss, mlp
from tests.oracle import gradients as oracle


def some_preconditioner(model: nn.Module) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(7)
    return {
        name: torch.rand(p.shape, generator=generator, dtype=p.dtype) + 0.1
        for name, p in model.named_parameters()
        if p.requires_grad
    }


def flat(parts: dict[str, Tensor]) -> list[float]:
    return torch.cat([p.flatten() for p in parts.values()]).tolist()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("n", [3, 12, 40])
def test_value_and_weights(name: str, n: int) -> None:
    model, data = CASES[name]()
    p = some_preconditioner(model)
    result = osgr_of_moments(gradient_moments(model, loss, data), p, n)
    rows = oracle.sample_gradients(model, loss, data)
    top, bottom = oracle.osgr_parts(rows, flat(p), n)
    assert result.value == pytest.approx(top / bottom, rel=1e-9)
    assert flat(result.weights) == pytest.approx(oracle.osgr_weights(rows, flat(p), n), rel=1e-8, abs=1e-14)
    assert sum(flat(result.weights)) == pytest.approx(1.0)
    assert (result.n, result.axis) == (n, "sample")
    assert math.isnan(result.low)


@pytest.mark.parametrize("name", CASES)
def test_interval(name: str) -> None:
    model, data = CASES[name]()
    p = some_preconditioner(model)
    result = osgr_of_batch(model, loss, data, p, n=8, level=0.9, chunk=5)
    pairs = oracle.jackknife_pairs(oracle.sample_gradients(model, loss, data), flat(p), 8)
    wanted = oracle.fieller(pairs, float(stats.t.ppf(0.95, len(pairs) - 1)))
    assert (result.value, result.low, result.high) == pytest.approx(wanted, rel=1e-4)
    assert result.value == pytest.approx(osgr_of_moments(gradient_moments(model, loss, data), p, 8).value)


def test_fieller_against_the_twin() -> None:
    generator = torch.Generator().manual_seed(3)
    for scale in (0.1, 1.0, 4.0):
        b = 2 + scale * torch.randn(15, generator=generator, dtype=torch.float64)
        a = 0.5 * b + scale * torch.randn(15, generator=generator, dtype=torch.float64)
        result = ratio_of_means(a, b, 0.95)
        wanted = oracle.fieller(list(zip(a.tolist(), b.tolist(), strict=True)), t_quantile(0.95, 14))
        assert (result.value, result.low, result.high) == pytest.approx(wanted, rel=1e-6, abs=1e-9)
    wide = ratio_of_means(torch.tensor([1.0, -1.0, 0.5]), torch.tensor([1.0, -1.0, 0.1]))
    assert (wide.low, wide.high) == (-math.inf, math.inf)
    exact = ratio_of_means(torch.tensor([1.0, 3.0, 2.0]), torch.full((3,), 4.0))  # a constant denominator
    assert exact.value == 0.5
    assert exact.high - 0.5 == pytest.approx(float(stats.t.ppf(0.975, 2)) / math.sqrt(3) / 4)


class Toy:
    """A loss linear in the weights, so that the gradient of a sample is the sample: N(mean, variance)."""

    def __init__(self, mean: Tensor, variance: Tensor) -> None:
        self.mean, self.variance = mean.double(), variance.double()
        self.model = nn.Linear(len(mean), 1, bias=False).double()

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        noise = torch.randn(count, len(self.mean), generator=generator, dtype=torch.float64)
        return self.mean + self.variance.sqrt() * noise

    def osgr(self, p: Tensor, n: float) -> float:
        """In closed form: sum p mean^2 / sum p (mean^2 + variance / n)."""
        p, square = p.double(), self.mean.square()
        return float((p * square).sum() / (p * (square + self.variance / n)).sum())


def linear(model: nn.Module, x: Tensor) -> Tensor:
    return model(x).mean()


REPEATS, LEVEL, N = 200, 0.9, 16
SIGNAL = Toy(torch.linspace(0.0, 0.6, 30), torch.linspace(0.5, 2.0, 30))
LOW, HIGH = stats.binom.ppf([0.0005, 0.9995], REPEATS, LEVEL)
"""How often 200 intervals of 90 % may hold the truth; a right method leaves this range once in a thousand
times.
"""


def given_preconditioners() -> dict[str, Tensor]:
    return {name: rule(SIGNAL.mean, SIGNAL.variance, N) for name, rule in theory.PRECONDITIONERS.items()}


@pytest.mark.parametrize("name", theory.PRECONDITIONERS)
def test_coverage_of_the_theorem_form(name: str) -> None:
    p = given_preconditioners()[name]
    truth, hits, values = SIGNAL.osgr(p, N), 0, []
    assert theory.osgr(SIGNAL.mean, SIGNAL.variance, theory.PRECONDITIONERS[name], N) == pytest.approx(truth)
    for seed in range(REPEATS):
        x = SIGNAL.draw(100, torch.Generator().manual_seed(seed))
        result = osgr_of_batch(SIGNAL.model, linear, (x,), {"weight": p[None]}, n=N, level=LEVEL)
        hits += result.low <= truth <= result.high
        values.append(result.value)
    assert LOW <= hits <= HIGH, (name, hits)
    spread = torch.tensor(values).std() / math.sqrt(REPEATS)
    assert abs(sum(values) / REPEATS - truth) < 5 * float(spread) + 0.01


def draw_pairs(toy: Toy) -> Any:
    return lambda generator: ((toy.draw(N, generator),), (toy.draw(N, generator),))


def test_coverage_of_the_measured_form() -> None:
    """SGD on the linear toy: loss changes are exactly their first-order parts, and R has a closed form."""
    truth, hits = SIGNAL.osgr(torch.ones(30), N), 0
    optimizer = torch.optim.SGD(SIGNAL.model.parameters(), lr=0.1)
    for seed in range(REPEATS):
        result = measure_osgr(
            SIGNAL.model, optimizer, linear, draw_pairs(SIGNAL), N, draws=12, level=LEVEL, seed=seed
        )
        hits += result.by_loss.low <= truth <= result.by_loss.high
        assert result.first_order.value == pytest.approx(result.by_loss.value, rel=1e-6)
    assert LOW <= hits <= HIGH, hits


NOISE = Toy(torch.zeros(400), torch.ones(400))


@pytest.mark.parametrize("n", [8, 32, 128])
def test_on_pure_noise_the_published_formula_says_almost_one_and_the_truth_is_zero(n: int) -> None:
    """The regression test of the published curve: 1 - 1/n for large gradients without any signal."""
    x = NOISE.draw(n, torch.Generator().manual_seed(n))
    published = osgr_as_published({"weight": x.mean(0)}, n)
    assert published == pytest.approx(1 - 1 / n, abs=0.02 / n)  # its square is 1/n, far above 1e-7
    optimizer = torch.optim.SGD(NOISE.model.parameters(), lr=0.1)

    def pairs(generator: torch.Generator) -> Any:
        return (NOISE.draw(n, generator),), (NOISE.draw(n, generator),)

    measured = measure_osgr(NOISE.model, optimizer, linear, pairs, n, draws=40, level=0.99)
    assert measured.by_loss.low < 0 < measured.by_loss.high < 0.1
    theorem = osgr_of_batch(
        NOISE.model, linear, (NOISE.draw(64, torch.Generator().manual_seed(1)),), n=n, level=0.99
    )
    assert theorem.low < 0 < theorem.high


def test_intervals_are_not_too_narrow_without_signal() -> None:
    hits = 0
    for seed in range(REPEATS):
        x = NOISE.draw(40, torch.Generator().manual_seed(seed))
        result = osgr_of_batch(NOISE.model, linear, (x,), n=N, level=LEVEL)
        hits += result.low <= 0 <= result.high
    assert hits >= LOW


@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e-4, 1e-6, 0.0])
def test_as_published_is_the_formula_with_its_added_number(scale: float) -> None:
    """Slow twin: the variance over entries by hand; the added 1e-7 decides where gradients are small."""
    g = scale * torch.randn(50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    values = g.tolist()
    middle = math.fsum(values) / 50
    spread = math.fsum((x - middle) ** 2 for x in values) / 49
    wanted = 1 - spread / (16 * math.fsum(x * x for x in values) / 50 + 1e-7)
    assert osgr_as_published({"a": g[:20], "b": g[20:].reshape(5, 6)}, 16) == pytest.approx(wanted, rel=1e-12)


def test_as_published_rises_when_gradients_vanish_and_only_the_batch_matters_before() -> None:
    g = torch.randn(20_000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    g = (g - g.mean()) / g.std()
    large = {n: osgr_as_published({"w": 0.1 * g}, n) for n in (39, 96, 114)}
    assert all(value == pytest.approx(1 - 1 / n, abs=1e-5) for n, value in large.items())
    assert osgr_as_published({"w": (1e-7 / 96) ** 0.5 * g}, 96) == pytest.approx(1 - 1 / 192, abs=1e-6)
    assert osgr_as_published({"w": 1e-6 * g}, 39) > 0.9999 > large[114]  # small gradients beat a large batch


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda m: osgr_of_moments(m, n=0), "got n=0; expected a number above 0"),
        (lambda m: osgr_of_moments(m, {"x": torch.ones(1)}), "name different parameters"),
        (lambda m: osgr_of_moments(m, {k: v * 0 for k, v in m.mean.items()}), "zero everywhere"),
        (lambda m: osgr_as_published(m.mean, 0), "got batch_size=0; expected a whole number"),
        (lambda m: ratio_of_means(torch.ones(1), torch.ones(1)), "Got 1 draw"),
        (lambda m: ratio_of_means(torch.ones(3), torch.ones(3), 95), "got level=95; expected"),
    ],
)
def test_bad_input_gets_one_sentence(call: Any, sentence: str) -> None:
    model, data = mlp()
    moments = gradient_moments(model, loss, data)
    with pytest.raises(MeasurementError, match=sentence):
        call(moments)


def test_three_samples_are_too_few_for_an_interval() -> None:
    model, (x, y) = mlp()
    with pytest.raises(MeasurementError, match="expected four or more for a jackknife interval"):
        osgr_of_batch(model, loss, (x[:3], y[:3]))


def test_floats_for_logs() -> None:
    model, data = mlp()
    result = osgr_of_batch(model, loss, data, some_preconditioner(model))
    floats = result.as_floats()
    assert floats["osgr"] == result.value
    assert 0 <= floats["w_gini"] <= 1
    assert 0 < floats["w_effective"] <= 1
