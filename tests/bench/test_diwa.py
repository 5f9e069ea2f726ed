"""DiWA: the mean of finished runs is what it says, evaluated, stored, and shown as a row of its own."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from genie_dg.bench.assemble import assemble
from genie_dg.bench.diwa import average_runs, mean_weights
from genie_dg.bench.evaluate import score
from genie_dg.bench.options import RunOptions
from genie_dg.bench.train import train
from genie_dg.check import InputError
from genie_dg.data.domains import DomainSet
from genie_dg.results.frame import load
from genie_dg.runs.config import RunConfig
from genie_dg.runs.folder import MODEL, RECORDS, read_records
from genie_dg.runs.record import Record
from genie_dg.runs.tensors import load_tensors

BASE = RunConfig("digits", (2,), optimizer="adam", backbone="mlp", batch_size=16, steps=30, checkpoint_every=29)


@pytest.fixture(scope="module")
def trained(digits: DomainSet, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[RunConfig]]:
    """Three draws, the last one hopeless, and runs of another trial and length without partners."""
    folder = tmp_path_factory.mktemp("runs")
    rates = [3e-3, 1e-3, 1e-9]
    configs = [replace(BASE, hparams_seed=k, optimizer_settings={"lr": lr}) for k, lr in enumerate(rates)]
    for config in [*configs, replace(BASE, trial_seed=1), replace(BASE, steps=29)]:
        train(assemble(config, digits), folder / config.run_id)
    return folder, configs


def test_the_mean_is_the_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    states = [
        {"w": torch.randn(4, 3, generator=generator), "n": torch.tensor(k), "odd": torch.zeros(k + 1)}
        for k in range(3)
    ]
    mean = mean_weights(states)
    by_hand = sum(s["w"].double() for s in states) / 3
    torch.testing.assert_close(mean["w"].double(), by_hand, rtol=1e-6, atol=1e-7)
    assert mean["n"].item() == 0
    assert mean["odd"].shape == (1,)
    half = mean_weights([{"w": torch.tensor([3e38])}, {"w": torch.tensor([3e38])}])
    assert half["w"].item() == pytest.approx(3e38)  # the sum would not fit


def test_a_uniform_average_of_three_runs(
    trained: tuple[Path, list[RunConfig]], digits: DomainSet, tmp_path: Path
) -> None:
    folder, configs = trained
    seen: list[tuple[RunConfig, Record | None, int, int]] = []
    options = RunOptions(out=str(folder))
    assert average_runs(digits, options, "uniform", lambda *mean: seen.append(mean)) == []
    ((config, record, kept, of),) = seen
    assert (kept, of) == (3, 3)
    assert config.average_of == tuple(sorted(c.run_id for c in configs))
    assert record is not None

    states = [load_tensors(folder / c.run_id / MODEL)["algorithm"] for c in configs]
    parts = assemble(configs[0], digits)
    parts.algorithm.load_state_dict({k: sum(s[k] for s in states) / 3 for k in states[0]})
    for k in range(6):
        assert record.out_acc[k] == score(parts.algorithm, parts.evaluations[k, "out"]).accuracy
    stored = load_tensors(folder / config.run_id / MODEL)["algorithm"]
    for name, tensor in parts.algorithm.state_dict().items():
        torch.testing.assert_close(stored[name], tensor, rtol=1e-5, atol=1e-7)

    frame = load(folder)
    rows = frame.filter(frame["algorithm"] == "ERM+DiWA")
    assert rows["run"].to_list() == [config.run_id]
    assert len(frame) == 6
    again: list[Record | None] = []
    average_runs(digits, options, "uniform", lambda c, r, k, n: again.append(r))
    assert again == [None]


def test_a_greedy_average_leaves_out_what_does_not_help(
    trained: tuple[Path, list[RunConfig]], digits: DomainSet
) -> None:
    folder, configs = trained
    seen: list[tuple[RunConfig, Record | None, int, int]] = []
    average_runs(digits, RunOptions(out=str(folder)), "greedy", lambda *mean: seen.append(mean))
    ((config, record, kept, _),) = seen
    assert record is not None
    assert configs[2].run_id not in config.average_of
    assert kept == len(config.average_of)
    best = max(read_records(folder / c.run_id, 6)[-1].validation((2,)) for c in configs)
    assert record.validation((2,)) >= best


def test_runs_that_cannot_be_used_are_named(
    trained: tuple[Path, list[RunConfig]], digits: DomainSet, tmp_path: Path
) -> None:
    folder, configs = trained
    for config in configs:
        shutil.copytree(folder / config.run_id, tmp_path / config.run_id)
    (tmp_path / configs[0].run_id / MODEL).unlink()
    options = RunOptions(out=str(tmp_path))
    problems = average_runs(digits, options)
    assert len(problems) == 1
    assert "it is left out." in problems[0]
    (tmp_path / configs[1].run_id / RECORDS).write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="no two finished runs on digits"):
        average_runs(digits, options)
    with pytest.raises(InputError, match="got choice='best'"):
        average_runs(digits, options, "best")
