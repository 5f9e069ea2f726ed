"""What the authors did, as sweeps: held to what their logs say."""

from __future__ import annotations

from pathlib import Path

import pytest

from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.data.published.catalog import PUBLISHED as SETS
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.protocols.registry import find_protocol
from genie_dg.protocols.sweep import Facts, expand, load_sweep
from genie_dg.runs.config import RunConfig
from paper.logged import committed
from paper.published import PUBLISHED

FOLDER = Path(__file__).parents[2] / "experiments" / "as-done"
FACTS = Facts({name: row.domains for name, row in SETS.items()}, ALGORITHMS, OPTIMIZERS)


def runs_of(experiment: str) -> list[RunConfig]:
    """The runs of the files whose names start so, read as `genie-dg sweep` reads them."""
    sweeps = map(load_sweep, FOLDER.glob(f"{experiment}-*.toml"))
    return [run for s in sweeps for run in expand(s, find_protocol(s.protocol, FOLDER), FACTS)]


def logged_runs(variants: tuple[str, ...], steps: str) -> set[tuple[str, ...]]:
    """Data set, domain, batch, rate, beta, p and dropout of logged runs of GENIE with one domain left out."""
    return {
        (run["dataset"], run["domain"], run["batch"], *(f"{float(run[k]):.5g}" for k in KEYS if run[k]))
        for run in committed().runs
        if run["optimizer"] == "GENIE" and run["one_source"] == "0" and run["network"] == "resnet50"
        if run["steps"] == steps and run["variant"] in variants and run["dataset"] != "TerraIncognita"
    }


KEYS = ("lr", "beta", "p", "dropout")


def planned(run: RunConfig) -> tuple[str, ...]:
    """The same of a run that is planned."""
    domain = PUBLISHED["optimizers", run.dataset].columns[run.test_domains[0]]
    settings = run.optimizer_settings
    numbers = (settings["lr"], settings["beta"], settings["dropout"], run.dropout)
    return run.dataset, domain, str(run.batch_size), *(f"{float(number):.5g}" for number in numbers)


def test_the_draws_of_the_table_of_times_are_those_of_the_logs() -> None:
    """Batch, step size, beta, p and dropout of all twelve runs, drawn anew from the seeds."""
    runs = [run for run in runs_of("iterations") if run.optimizer == "genie"]
    done = {one for one in logged_runs(("",), "15001") if one[0] != "DomainNet"}
    assert {planned(run) for run in runs} == done
    assert len(runs) == 12
    assert {run.steps for run in runs} == {15001}


@pytest.mark.parametrize("variant", ["precondition", "precondition+noise", "precondition+mask"])
def test_the_ablation_has_the_draws_of_the_full_rule(variant: str) -> None:
    file = variant.replace("+", "-and-") if "+" in variant else f"only-{variant}"
    runs = runs_of(f"ablation-{file}")
    assert {planned(run) for run in runs} == logged_runs((variant,), "5001")
    assert len(runs) == 4


def test_the_grid_of_p_and_beta_is_that_of_the_logs() -> None:
    variants = tuple({run["variant"] for run in committed().runs if "=" in run["variant"]})
    assert {planned(run) for run in runs_of("sensitivity")} == logged_runs(variants, "5001")
    assert sorted(variants) == [
        *(f"beta={beta}" for beta in (0.9, 0.95, 0.99, 0.995, 0.999)),
        *(f"p={p}" for p in (0.0, 0.2, 0.4, 0.6, 0.8)),
    ]
