"""The numbers of `_random`: equal to the integer twin, and random enough in every direction."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from genie_dg import _random
from tests.oracle import genie as oracle

N = 1 << 18


def keys(seed: int, step: int, index: int) -> tuple[Tensor, Tensor]:
    base = _random.stream_base(seed, torch.tensor([index]), torch.tensor([0]))
    key = _random.stream_key(base, step)
    return key[0, 0], key[1, 0]


def mask(seed: int = 0, step: int = 1, index: int = 0, p: float = 0.4, n: int = N) -> Tensor:
    where = torch.arange(n, dtype=torch.int32)
    return _random.keep_mask(where, *keys(seed, step, index), _random.drop_threshold(p)).double()


def noise(seed: int = 0, step: int = 1, index: int = 0, n: int = N) -> Tensor:
    return _random.normal(torch.arange(n, dtype=torch.int32), *keys(seed, step, index)).double()


def correlation(a: Tensor, b: Tensor) -> float:
    """In standard errors: about N(0, 1) for independent samples."""
    a, b = (a - a.mean()) / a.std(), (b - b.mean()) / b.std()
    return float((a * b).mean() * math.sqrt(len(a)))


@pytest.mark.parametrize("seed", [0, 1, -7, 2**40 + 3])
def test_equal_to_the_integer_twin(seed: int) -> None:
    index = torch.tensor([0, 1, 2**31 - 1, 123456789], dtype=torch.int32)
    for step, parameter in ((1, 0), (2, 5), (10_000_000, 160)):
        k0, k1 = keys(seed, step, parameter)
        expected = oracle.key(seed, step, parameter)
        assert [int(k0) & oracle.M32, int(k1) & oracle.M32] == list(expected)
        found = _random.bits(index, k0, k1).tolist()
        assert found == [oracle.signed(oracle.bits(i, *expected)) for i in index.tolist()]
        kept = _random.keep_mask(index, k0, k1, _random.drop_threshold(0.4)).tolist()
        assert kept == [oracle.keep(i, expected, 0.4) for i in index.tolist()]
        uniform = torch.tensor([oracle.uniform(i, expected) for i in index.tolist()], dtype=torch.float64)
        wanted = torch.erfinv(uniform) * math.sqrt(2)
        torch.testing.assert_close(_random.normal(index, k0, k1).double(), wanted, rtol=1e-5, atol=1e-6)


def test_in_place_forms_equal_the_plain_ones() -> None:
    index = torch.arange(1000, dtype=torch.int32)
    k0, k1 = keys(3, 4, 5)
    threshold = _random.drop_threshold(0.3)
    word = _random.bits_(index.clone(), k0, k1, torch.empty_like(index))
    assert torch.equal(word, _random.bits(index, k0, k1))
    values = torch.randn(1000)
    expected = values * _random.keep_mask(index, k0, k1, threshold)
    assert torch.equal(_random.zero_dropped_(values, word, threshold), expected + 0.0)


def test_inverse_normal_is_accurate_to_the_ends() -> None:
    k = torch.cat([torch.arange(-(2**23), -(2**23) + 1000), torch.arange(-(2**23), 2**23, 997)])
    x = ((k.float() + 0.5) * 2.0**-23).clamp(-1 + 2.0**-24, 1 - 2.0**-24)
    exact = torch.erfinv(x.double()) * math.sqrt(2)
    torch.testing.assert_close(_random.inverse_normal(x).double(), exact, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize("p", [0.1, 0.4, 0.8, 1e-3])
def test_mask_rate(p: float) -> None:
    rates = torch.stack([mask(step=t, index=i, p=p).mean() for t in range(1, 6) for i in range(5)])
    error = math.sqrt(p * (1 - p) / N)
    z = (rates - (1 - p)) / error
    assert z.abs().max() < 4.5
    assert 0.5 < float(z.square().mean()) < 1.9  # chi-square / 25: not too good either


def test_threshold_ends() -> None:
    assert _random.drop_threshold(1e-30) == -(2**31) + 1
    assert _random.drop_threshold(0.5) == 0
    assert _random.drop_threshold(1 - 1e-15) == 2**31 - 1


def test_noise_moments() -> None:
    x = torch.cat([noise(step=t, index=i) for t in range(1, 4) for i in range(4)])
    n = len(x)
    for power, mean, spread in ((1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)):
        assert abs(float((x**power).mean()) - mean) < 4.5 * math.sqrt(spread / n), power
    for bound, tail in ((1.0, 0.3173105), (2.0, 0.0455003), (3.0, 0.0026998), (4.0, 6.334e-5)):
        share = float((x.abs() > bound).double().mean())
        assert abs(share - tail) < 4.5 * math.sqrt(tail / n), bound


def test_neighbouring_addresses_are_independent() -> None:
    """Across elements (several lags), steps, parameters and seeds; mask, noise and their squares."""
    found = []
    for draw in (mask, noise, lambda **k: noise(**k).square()):
        here = draw()
        found += [correlation(here[:-lag], here[lag:]) for lag in (1, 2, 3, 64, 1024, 65536)]
        found += [correlation(here, draw(step=t)) for t in (2, 3, 17, 1025)]
        found += [correlation(here, draw(index=i)) for i in (1, 2, 50)]
        found += [correlation(here, draw(seed=s)) for s in (1, 2, 2**32)]
        found += [correlation(here, draw(step=2, index=1)), correlation(draw(step=2), draw(index=1))]
        found += [correlation(here[:-1], draw(step=2)[1:]), correlation(here[1:], draw(step=2)[:-1])]
    z = torch.tensor(found)
    assert z.abs().max() < 4.5
    assert 0.5 < float(z.square().mean()) < 1.8


def test_mask_and_noise_of_one_address_are_independent() -> None:
    z = torch.tensor(
        [
            correlation(mask(step=t), f(noise(step=t)))
            for t in range(1, 9)
            for f in (torch.abs, torch.sign, torch.exp)
        ]
    )
    assert z.abs().max() < 4.5


def test_every_bit_is_fair_and_flips_half_the_others() -> None:
    index = torch.arange(1 << 14, dtype=torch.int32)
    k0, k1 = keys(0, 1, 0)
    word = _random.bits(index, k0, k1)
    error = 0.5 / math.sqrt(len(index))
    for bit in range(32):
        assert abs(float(((word >> bit) & 1).double().mean()) - 0.5) < 4.5 * error
    for flip in (1, 1 << 5, 1 << 13, 1 << 20):  # avalanche in the index
        changed = word ^ _random.bits(index ^ flip, k0, k1)
        count = sum(((changed >> bit) & 1).double() for bit in range(32))
        assert abs(float(count.mean()) - 16) < 0.25
    for words in ((k0 ^ 1, k1), (k0, k1 ^ 1)):  # and in the key
        changed = word ^ _random.bits(index, *words)
        count = sum(((changed >> bit) & 1).double() for bit in range(32))
        assert abs(float(count.mean()) - 16) < 0.6


def test_keys_of_many_steps_and_parameters_do_not_repeat() -> None:
    base = _random.stream_base(0, torch.arange(500), torch.zeros(500, dtype=torch.int64))
    found = torch.cat([_random.stream_key(base, t).long() for t in range(1, 400)], dim=1)
    assert len(torch.unique(found[0] * 2**32 + found[1])) == found.shape[1]
