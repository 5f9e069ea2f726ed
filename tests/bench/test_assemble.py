"""From a configuration to the parts of a run: what pairs share, what is refused, what names a run's data."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.bench.assemble import DegenerateWarning, Parts, assemble
from genie_dg.bench.options import RunOptions
from genie_dg.check import InputError
from genie_dg.data.domains import DomainSet

from .test_train import BASE


def test_optimizers_and_algorithms_share_weights_and_batches(digits: DomainSet) -> None:
    first = assemble(BASE, digits)
    others = [replace(BASE, optimizer="genie"), replace(BASE, algorithm="IRM"), replace(BASE, hparams_seed=3)]
    for config in others:
        other = assemble(config, digits)
        mine, its = first.algorithm.network.state_dict(), other.algorithm.network.state_dict()
        assert all(torch.equal(mine[name], its[name]) for name in mine)
        for (x, _), (y, _) in zip(first.training.at(3), other.training.at(3), strict=True):
            assert torch.equal(x, y)
    trial = assemble(replace(BASE, trial_seed=1), digits)
    assert not torch.equal(trial.training.at(3)[0][0], first.training.at(3)[0][0])
    assert not torch.equal(*(next(iter(p.algorithm.parameters())) for p in (trial, first)))


def test_the_test_domain_is_never_trained_on(digits: DomainSet) -> None:
    parts: Parts = assemble(replace(BASE, test_domains=(0, 2)), digits)
    assert parts.sources == (1, 3, 4, 5)
    for sampler, k in zip(parts.training.samplers, parts.sources, strict=True):
        held_back = set(parts.evaluations[k, "out"].positions.tolist())
        assert not held_back & set(sampler.positions.tolist())


@pytest.mark.parametrize(
    "algorithm", [row.name for row in ALGORITHMS.values() if row.one_source and row.name != "ARM"]
)
def test_a_degenerate_pair_speaks_up_once(
    algorithm: str, digits: DomainSet, recwarn: pytest.WarningsRecorder
) -> None:
    with pytest.warns(DegenerateWarning, match="one source") as caught:
        assemble(replace(BASE, algorithm=algorithm, test_domains=(1, 2, 3, 4, 5)), digits)
    assert len(caught) == 1
    assemble(replace(BASE, algorithm=algorithm), digits)


def test_data_and_weights_are_part_of_the_identity(digits: DomainSet, tmp_path: Path) -> None:
    named = replace(BASE, data_digest=digits.digest())
    assert named.run_id != BASE.run_id
    assemble(named, digits)
    other = DomainSet("digits", digits.classes, digits.domains[::-1])
    assert other.digest() != digits.digest()
    with pytest.raises(InputError, match="give it the files it was made for"):
        assemble(named, other)
    (tmp_path / "weights.pth").write_bytes(b"weights")
    with pytest.raises(InputError, match=r"weights .*with digest none"):
        assemble(BASE, digits, RunOptions(weights=str(tmp_path / "weights.pth")))
    with pytest.raises(InputError, match="cannot be read"):
        assemble(BASE, digits, RunOptions(weights=str(tmp_path / "nowhere.pth")))


def test_noise_of_a_wrapped_genie_depends_on_the_trial(digits: DomainSet) -> None:
    config = replace(BASE, optimizer="sam", optimizer_settings={"base": "genie"})
    one = assemble(config, digits).optimizers["main"].param_groups[0]
    two = assemble(replace(config, trial_seed=1), digits).optimizers["main"].param_groups[0]
    assert one["seed"] != two["seed"]
    assert one["lr"] == 0.015
