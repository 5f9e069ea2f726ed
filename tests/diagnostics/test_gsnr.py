"""GSNR against the twin, its bias, and its summaries."""

from __future__ import annotations

import math
import statistics

import pytest
import torch

from genie_dg.diagnostics import GradientMoments, MeasurementError, gradient_moments, gsnr
from tests.diagnostics.models import CASES, loss
from tests.oracle import gradients as oracle


def flat(parts: dict[str, torch.Tensor]) -> list[float]:
    return torch.cat([p.flatten() for p in parts.values()]).tolist()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("corrected", [True, False])
def test_every_parameter(name: str, corrected: bool) -> None:
    model, data = CASES[name]()
    ratios = gsnr(gradient_moments(model, loss, data), corrected)
    wanted = oracle.gsnr(oracle.sample_gradients(model, loss, data), corrected)
    # The bias of an attention's keys has no effect at all: its gradients are rounding, and so is their ratio.
    columns = oracle.columns(oracle.sample_gradients(model, loss, data))
    real = [i for i, column in enumerate(columns) if max(map(abs, column)) > 1e-12]
    assert len(real) > 0.7 * len(wanted)
    values = flat(ratios.values)
    assert [values[i] for i in real] == pytest.approx([wanted[i] for i in real], rel=1e-9, abs=1e-12)
    assert (ratios.axis, ratios.count, ratios.corrected) == ("sample", 12, corrected)


@pytest.mark.parametrize("name", CASES)
def test_summaries(name: str) -> None:
    model, data = CASES[name]()
    ratios = gsnr(gradient_moments(model, loss, data))
    rows = oracle.sample_gradients(model, loss, data)
    columns, values = oracle.columns(rows), flat(ratios.values)
    alive = [v for v, c in zip(values, columns, strict=True) if oracle.variance(c) > 0]
    noise = math.fsum(oracle.variance(c) for c in columns)
    signal = math.fsum(oracle.mean(c) ** 2 for c in columns) - noise / len(rows)
    whole = ratios.overall()
    assert whole.mean == pytest.approx(statistics.fmean(alive), rel=1e-8)
    assert whole.median == pytest.approx(statistics.median_low(alive), rel=1e-8)
    assert whole.pooled == pytest.approx(signal / noise, rel=1e-9)
    assert whole.size == len(values)
    layers = ratios.by_layer()
    assert sum(s.size for s in layers.values()) == whole.size
    assert all(f"{layer}." in " ".join(ratios.values) for layer in layers if layer)
    assert set(ratios.as_floats()) == {"mean", "median", "pooled", "dead"}


def test_the_correction_takes_the_bias_out() -> None:
    """Gaussian gradients of known GSNR, 12 at a time, over many parameters: the average estimate is the
    truth.
    """
    generator = torch.Generator().manual_seed(0)
    true = torch.tensor([0.0, 0.1, 1.0], dtype=torch.float64).repeat(60_000)
    g = true.sqrt() + torch.randn(12, len(true), generator=generator, dtype=torch.float64)
    mean = g.mean(0)
    moments = GradientMoments("sample", 1, 12, {"w": mean}, {"w": (g - mean).square().sum(0)})
    for corrected, off in ((True, 0.0), (False, None)):
        values = gsnr(moments, corrected).values["w"]
        for level in (0.0, 0.1, 1.0):
            error = values[true == level] - level
            standard = float(error.std() / math.sqrt(len(error)))
            bias = float(error.mean())
            if off is not None:
                assert abs(bias) < 4 * standard
            else:  # the plain estimate: (N-1)/(N-3) (r + 1/N) - r
                wanted = 11 / 9 * (level + 1 / 12) - level
                assert abs(bias - wanted) < 4 * standard
                assert bias > 10 * standard


def test_parameters_without_variance() -> None:
    moments = GradientMoments(
        "sample", 1, 5, {"w": torch.tensor([0.0, 2.0, 1.0])}, {"w": torch.tensor([0.0, 0.0, 4.0])}
    )
    ratios = gsnr(moments, corrected=False)
    assert ratios.values["w"].tolist() == [0.0, math.inf, 1.0]
    whole = ratios.overall()
    assert (whole.mean, whole.median, whole.dead, whole.size) == (1.0, 1.0, 1, 3)
    assert whole.pooled == 5.0


def test_too_few_gradients_to_correct() -> None:
    moments = GradientMoments("domain", 1, 3, {"w": torch.ones(1)}, {"w": torch.ones(1)})
    with pytest.raises(MeasurementError, match="Got 3 gradients along the axis 'domain'; expected 4 or more"):
        gsnr(moments)
    assert gsnr(moments, corrected=False).values["w"].item() == 2.0
