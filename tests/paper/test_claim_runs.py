"""Learning rates of the ledger: chosen by validation, for each algorithm and for one source by itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from genie_dg.data.registry import open_data
from genie_dg.runs.config import RunConfig
from paper.claim_runs import SIZES, TUNING_SEED, ClaimRuns
from paper.figure_setup import SMALL


@pytest.fixture
def runs(tmp_path: Path) -> ClaimRuns:
    data = open_data("digits")
    config = RunConfig(data.name, (0,), backbone="mlp", batch_size=2, steps=3, checkpoint_every=3)
    sizes = replace(SIZES["smoke"], lr_factors=(0.01, 1.0), tuning=1)
    return ClaimRuns(data, config, sizes, tmp_path, {one.label: one for one in SMALL})


@pytest.mark.parametrize(
    ("options", "name"),
    [({"algorithm": "CORAL"}, "SGD with CORAL"), ({"one_source": True}, "SGD with one source")],
)
def test_a_rate_is_chosen_by_validation_on_its_own_task(
    runs: ClaimRuns, options: dict[str, object], name: str
) -> None:
    tuned = runs.tuned("SGD", **options)  # type: ignore[arg-type]
    tried = {config.optimizer_settings["lr"]: config for config in runs.configs.values()}
    assert sorted(tried) == pytest.approx([0.001, 0.1])
    for config in tried.values():
        assert config.trial_seed == TUNING_SEED
        assert config.algorithm == options.get("algorithm", "ERM")
        assert len(config.test_domains) == (len(runs.data.domains) - 1 if "one_source" in options else 1)
    best = max(tried, key=lambda rate: runs.choices[tried[rate].run_id].value)
    assert runs.rates == {name: best}
    assert tuned.settings["lr"] == best
    assert runs.at_edge == {name}  # of two rates both are ends
