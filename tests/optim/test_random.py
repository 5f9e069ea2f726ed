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


def words(index: Tensor, key0: Tensor, key1: Tensor) -> Tensor:
    lanes = _random.lane_words(index.device)[(index % _random.LANES).long()]
    return _random.element_words(_random.row_words(index // _random.LANES, key0, key1), lanes)


def mask(seed: int = 0, step: int = 1, index: int = 0, p: float = 0.4, n: int = N) -> Tensor:
    where = torch.arange(n, dtype=torch.int32)
    return (~_random.drop_mask(words(where, *keys(seed, step, index)), _random.drop_threshold(p))).double()


def noise(seed: int = 0, step: int = 1, index: int = 0, n: int = N) -> Tensor:
    return _random.normal(words(torch.arange(n, dtype=torch.int32), *keys(seed, step, index))).double()


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
        word = words(index, k0, k1)
        assert word.tolist() == [oracle.signed(oracle.bits(i, *expected)) for i in index.tolist()]
        kept = ~_random.drop_mask(word, _random.drop_threshold(0.4))
        assert kept.tolist() == [oracle.keep(i, expected, 0.4) for i in index.tolist()]
        uniform = torch.tensor([oracle.uniform(i, expected) for i in index.tolist()], dtype=torch.float64)
        wanted = torch.erfinv(uniform) * math.sqrt(2)
        torch.testing.assert_close(_random.normal(word).double(), wanted, rtol=1e-5, atol=1e-6)


def test_in_place_forms_equal_the_plain_ones() -> None:
    k0, k1 = keys(3, 4, 5)
    threshold = _random.drop_threshold(0.3)
    row = _random.row_words(torch.arange(7, dtype=torch.int32), k0, k1).unsqueeze(1)
    lanes = _random.lane_words(row.device)
    plain = _random.element_words(row, lanes)
    word = _random.element_words_(row, lanes, torch.empty_like(plain), torch.empty_like(plain))
    assert torch.equal(word, plain)
    values = torch.randn(plain.shape)
    expected = values * ~_random.drop_mask(plain, threshold)
    assert torch.equal(_random.zero_dropped_(values, word, threshold), expected)


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
    correlations = []
    for draw in (mask, noise, lambda **k: noise(**k).square()):
        here = draw()
        correlations += [correlation(here[:-lag], here[lag:]) for lag in (1, 2, 3, 64, 1024, 65536)]
        correlations += [correlation(here, draw(step=t)) for t in (2, 3, 17, 1025)]
        correlations += [correlation(here, draw(index=i)) for i in (1, 2, 50)]
        correlations += [correlation(here, draw(seed=s)) for s in (1, 2, 2**32)]
        correlations += [correlation(here, draw(step=2, index=1)), correlation(draw(step=2), draw(index=1))]
        correlations += [correlation(here[:-1], draw(step=2)[1:]), correlation(here[1:], draw(step=2)[:-1])]
    z = torch.tensor(correlations)
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


def test_lanes_of_a_row_are_independent() -> None:
    """Two lanes see the same row word: every pair of 40 lanes, over many rows, in sign and in mask."""
    rows = torch.arange(1 << 15, dtype=torch.int32).unsqueeze(1)
    word = _random.element_words(_random.row_words(rows, *keys(0, 1, 0)), _random.lane_words(rows.device)[:40])
    for values in (
        _random.drop_mask(word, _random.drop_threshold(0.4)).double(),
        _random.normal(word).double(),
    ):
        centred = (values - values.mean(0)) / values.std(0)
        z = (centred.T @ centred)[torch.triu_indices(40, 40, 1).unbind()] / math.sqrt(len(values))
        assert z.abs().max() < 5
        assert 0.85 < float(z.square().mean()) < 1.15


def test_high_bits_are_fair_and_avalanche() -> None:
    index = torch.arange(1 << 14, dtype=torch.int32)
    k0, k1 = keys(0, 1, 0)
    word = words(index, k0, k1)
    error = 0.5 / math.sqrt(len(index))
    for bit in range(8, 32):
        assert abs(float(((word >> bit) & 1).double().mean()) - 0.5) < 4.5 * error

    def flipped(other: Tensor) -> float:
        changed = word ^ other
        return float(sum(((changed >> bit) & 1).double() for bit in range(16, 32)).mean())  # type: ignore[union-attr]

    for flip in (1, 1 << 5, 1 << 8, 1 << 13, 1 << 20):
        assert abs(flipped(words(index ^ flip, k0, k1)) - 8) < 0.3
    for key in ((k0 ^ 1, k1), (k0, k1 ^ 1)):
        assert abs(flipped(words(index, *key)) - 8) < 0.5


def test_keys_of_many_steps_and_parameters_do_not_repeat() -> None:
    base = _random.stream_base(0, torch.arange(500), torch.zeros(500, dtype=torch.int64))
    keys = torch.cat([_random.stream_key(base, t).long() for t in range(1, 400)], dim=1)
    assert len(torch.unique(keys[0] * 2**32 + keys[1])) == keys.shape[1]
