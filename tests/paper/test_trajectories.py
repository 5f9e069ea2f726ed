"""What is measured along training runs: against one backward for each sample, and by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from genie_dg import GENIE
from genie_dg.data.registry import open_data
from genie_dg.diagnostics import measure_osgr, preconditioner
from genie_dg.runs.config import RunConfig
from paper.claim_runs import SIZES, ClaimRuns
from paper.figure_setup import SMALL, cross_entropy
from paper.pac_bayes import kl_divergence
from paper.rules import GradientHistory, Half, SampleMoments, flatten
from paper.trajectories import run_numbers
from paper.trajectory_points import from_moments, measure_point, risk_bounds
from tests.diagnostics.test_updates import brute_gini
from tests.oracle import gradients as oracle

N = 4
Trained = tuple[nn.Module, GENIE, GradientHistory, tuple[Tensor, Tensor]]


@pytest.fixture(scope="module")
def trained() -> Trained:
    """A network in float64 after a few steps of GENIE, and a pool of samples that it has not seen."""
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    x, y = torch.randn(48, 5, dtype=torch.float64), torch.randint(0, 3, (48,))
    optimizer, history = GENIE(model.parameters(), lr=0.3), GradientHistory(model)
    for step in range(6):
        rows = slice(4 * step, 4 * step + 4)
        optimizer.zero_grad()
        cross_entropy(model, x[rows], y[rows]).backward()
        optimizer.step()
        history.add()
    return model, optimizer, history, (x[24:], y[24:])


def test_a_point_matches_the_slow_twins(trained: Trained) -> None:
    model, optimizer, history, pool = trained
    before = [p.detach().clone() for p in model.parameters()]
    point = measure_point(model, optimizer, history, pool, N, "genie")
    rows = oracle.sample_gradients(model, cross_entropy, pool)
    p = flatten(list(preconditioner(optimizer, model).values())).tolist()
    top, bottom = oracle.osgr_parts(rows, p, N)
    assert point.numbers["theorem/released"] == pytest.approx(top / bottom, rel=1e-8)
    top, bottom = oracle.osgr_parts(rows, [1.0] * len(p), N)
    assert point.numbers["theorem/SGD"] == pytest.approx(top / bottom, rel=1e-8)
    shares = [q * oracle.variance(c) for q, c in zip(p, oracle.columns(rows), strict=True)]
    assert point.numbers["gap/weight/own"] == pytest.approx(brute_gini(shares), rel=1e-8)
    assert point.numbers["gap/weight/released"] == pytest.approx(brute_gini(shares), rel=1e-8)
    osgr = measure_osgr(model, optimizer, cross_entropy, pool, N)
    assert point.gains["definition"].ratio == pytest.approx(osgr.gain_on_other / osgr.gain_on_d)
    assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before, strict=True))


def test_a_weight_that_never_had_a_gradient_does_not_count() -> None:
    """Its input was 0 in training; Adam would divide by its epsilon there."""
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    x, y = torch.randn(24, 3), torch.randint(0, 2, (24,))
    optimizer, history = torch.optim.Adam(model.parameters(), lr=0.01), GradientHistory(model)
    for _ in range(3):
        optimizer.zero_grad()
        cross_entropy(model, x * torch.tensor([1.0, 1.0, 0.0]), y).backward()
        optimizer.step()
        history.add()
    assert history.seen.tolist() == [True, True, False, True, True, False, True, True]
    point = measure_point(model, optimizer, history, (x, y), N, "adam")
    assert point.numbers["seen"] == 0.75
    assert point.numbers["gap/weight/Adam"] < 0.6  # 7/8 if one weight had everything


def test_conditions_of_the_proof_by_hand() -> None:
    """GSNR 9 and 1/10, n = 1: W is 10/21 and 11/21; (1 - W_max) r_max / (2 r') = 11/21 * 9 / 0.2."""
    half = Half(torch.tensor([3.0, 1.0]).double(), torch.tensor([1.0, 10.0]).double(), 10**12)
    numbers = from_moments(SampleMoments(half, half, half), 1)
    assert numbers["dominance"] == pytest.approx(math.log10(11 / 21 * 9 / 0.2))
    assert numbers["weights/sgd"] == pytest.approx(brute_gini([10.0, 11.0]))
    assert numbers["weights/adam"] == pytest.approx(brute_gini([math.sqrt(10), math.sqrt(11)]))
    assert numbers["correlation"] == pytest.approx(-1.0)
    assert numbers["measured/genie/product"] == pytest.approx(numbers["measured/eq. 5"])
    assert numbers["measured/eq. 5"] == pytest.approx(1 - 1 / (1 + 4.55))


def test_the_risk_bounds_are_those_of_the_formula(trained: Trained) -> None:
    """With q = 1 the divergence is sum g^2 / rho^2 / 2; the error rate lies between 0 and 1."""
    model, _, _, (x, y) = trained
    rows = oracle.columns(oracle.sample_gradients(model, cross_entropy, (x, y)))
    mean = torch.tensor([oracle.mean(c) for c in rows], dtype=torch.float64)
    variance = torch.tensor([oracle.variance(c) for c in rows], dtype=torch.float64)
    found = risk_bounds(model, (x, y))
    for name, q in {"plain": torch.ones_like(mean), "adapted": mean**2 / (mean**2 + variance / len(y))}.items():
        divergence = kl_divergence(-q * mean, 0 * mean, q, variance).item()
        complexity = math.sqrt((divergence + math.log(20)) / (2 * len(y)))
        error = found[f"risk/{name}"] - complexity
        assert -1e-9 <= error <= 1 + 1e-9
        assert (error * 5 * len(y)) == pytest.approx(round(error * 5 * len(y)), abs=1e-6)


def test_a_run_is_measured_once(tmp_path: Path) -> None:
    data = open_data("digits")
    config = RunConfig(data.name, (0,), backbone="mlp", batch_size=4, steps=4)
    runs = ClaimRuns(data, config, replace(SIZES["smoke"], seeds=1), tmp_path / "runs", {})
    (first,) = run_numbers(runs, SMALL[:1])
    (kept,) = (tmp_path / "measured").iterdir()
    written = kept.stat().st_mtime_ns
    (again,) = run_numbers(runs, SMALL[:1])
    assert again == first
    assert kept.stat().st_mtime_ns == written
    assert (first.label, first.seed) == ("SGD", 0)
    assert 0 <= first.numbers["accuracy"] <= 100
    assert first.numbers["moves/window/weight"] > 0


def test_runs_measured_side_by_side_have_the_same_numbers(tmp_path: Path) -> None:
    data = open_data("digits")
    config = RunConfig(data.name, (0,), backbone="mlp", batch_size=4, steps=4)
    found = []
    for workers in (1, 2):
        sizes, folder = replace(SIZES["smoke"], seeds=1), tmp_path / str(workers) / "runs"
        runs = ClaimRuns(data, config, sizes, folder, {}, workers=workers)
        found.append(run_numbers(runs, (SMALL[0], SMALL[3])))
    assert found[0] == found[1]
    assert [run.label for run in found[0]] == ["SGD", "GENIE"]
