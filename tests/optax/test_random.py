"""The same words, masks and normal numbers as in torch, and as in plain Python integers."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from genie_dg import _random as torch_random
from genie_dg.check import InputError
from genie_dg.optax import _random
from genie_dg.optim._local import words_at
from tests.oracle import genie as oracle

SEEDS = [0, 7, -5, 2**31 + 3, -(2**40), 2**63 - 1]


@pytest.mark.parametrize("shape", [(5, 7, 31), (3, 512)], ids=["odd", "whole rows"])
@pytest.mark.parametrize("seed", SEEDS)
def test_words_masks_and_normal_numbers_are_those_of_torch(seed: int, shape: tuple[int, ...]) -> None:
    number, step = 3, 1234
    base = torch_random.stream_base(seed, torch.tensor([number]), torch.tensor([0]))
    keys = torch_random.stream_key(base, step)
    index = torch.arange(math.prod(shape), dtype=torch.int32).view(shape)
    words = words_at(index, keys[0, 0], keys[1, 0])
    key = _random.leaf_keys(seed, number, jnp.int32(step))
    word = _random.leaf_words(shape, key)
    assert np.array_equal(np.asarray(word).view(np.int32), words.numpy())
    drop = _random.dropped(word, _random.leaf_threshold(0.4))
    assert np.array_equal(drop, torch_random.drop_mask(words, torch_random.drop_threshold(0.4)).numpy())
    theirs = torch_random.normal(words).numpy()
    np.testing.assert_allclose(_random.leaf_normal(word), theirs, rtol=1e-6)


def test_the_oracle() -> None:
    key = oracle.key(-5, 9, 2)
    word = _random.leaf_words((600,), _random.leaf_keys(-5, 2, jnp.int32(9)))
    assert word.tolist() == [oracle.bits(i, *key) for i in range(600)]
    kept = ~_random.dropped(word, _random.leaf_threshold(0.3))
    assert kept.tolist() == [oracle.keep(i, key, 0.3) for i in range(600)]


@pytest.mark.parametrize("p", [1e-12, 0.1, 0.4, 0.5, 0.9999999999])
def test_thresholds(p: float) -> None:
    assert int(_random.leaf_threshold(p)) == torch_random.drop_threshold(p)


def test_arrays_in_place_of_numbers() -> None:
    """What `optax.inject_hyperparams` passes: the same streams, and no drop at probability 0."""
    for seed in (5, -5):
        for dtype in (jnp.int32, jnp.int64):
            key = _random.leaf_keys(jnp.asarray(seed, dtype), 1, jnp.int32(2))
            assert np.array_equal(key, _random.leaf_keys(seed, 1, jnp.int32(2)))
    assert int(_random.leaf_threshold(jnp.asarray(0.5))) == int(_random.leaf_threshold(0.5))
    word = jnp.asarray([0, 1 << 31, (1 << 32) - 1], jnp.uint32)
    assert not _random.dropped(word, _random.leaf_threshold(jnp.asarray(0.0))).any()
    assert not _random.dropped(word, _random.leaf_threshold(0.0)).any()


def test_indices_of_every_shape() -> None:
    for shape in [(), (1,), (0, 3), (4,), (2, 3, 4), (3, 1, 2)]:
        expected = np.arange(np.prod(shape, dtype=int)).reshape(shape)
        assert np.array_equal(_random._element_indices(shape), expected)


def test_too_many_elements() -> None:
    with pytest.raises(InputError, match=r"got an array of shape \(65536, 65536\).*leaves of their own\."):
        jax.eval_shape(lambda: _random.leaf_words((1 << 16, 1 << 16), jnp.zeros(2, jnp.uint32)))
