"""Table 1's split: the product is the preconditioner, and the parts are those printed."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given

from paper.components import COMPONENTS
from paper.theory import PRECONDITIONERS
from tests.diagnostics.test_theory import Toy, fair, toys


@fair
@given(toys())
def test_the_parts_multiply_to_the_preconditioner(toy: Toy) -> None:
    for name, parts in COMPONENTS.items():
        product = parts.convergence(toy.mean, toy.variance, toy.n) * parts.alignment(
            toy.mean, toy.variance, toy.n
        )
        torch.testing.assert_close(
            product, PRECONDITIONERS[name](toy.mean, toy.variance, toy.n), rtol=1e-9, atol=0
        )
        assert parts.product is PRECONDITIONERS[name]


@pytest.mark.parametrize(
    ("name", "convergence", "alignment"),
    [
        ("sgd", 1.0, 1.0),
        ("adam", 1 / 3, math.sqrt(1 / (1 / (4 * 4.5) + 1))),
        ("svag", 1.0, 18 / 19),
        ("genie", 1 / 9.5, 4.75),
    ],
)
def test_the_parts_by_hand(name: str, convergence: float, alignment: float) -> None:
    """Mean -3, variance 2, n = 4: the second moment is 9.5 and the GSNR 4.5."""
    mean, variance = torch.tensor([-3.0]), torch.tensor([2.0])
    parts = COMPONENTS[name]
    assert parts.convergence(mean, variance, 4).item() == pytest.approx(convergence)
    assert parts.alignment(mean, variance, 4).item() == pytest.approx(alignment)


def test_a_mean_of_zero_has_no_infinite_part() -> None:
    mean, variance = torch.tensor([0.0]), torch.tensor([2.0])
    assert COMPONENTS["adam"].convergence(mean, variance, 4).item() == 0
