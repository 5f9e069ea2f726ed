"""More steps: what a longer run takes over, and when it starts anew."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from genie_dg.bench.assemble import assemble
from genie_dg.bench.checkpoint import go_on
from genie_dg.bench.train import train
from genie_dg.data.domains import DomainSet
from genie_dg.runs.config import RunConfig

from .test_train import BASE, Stop, stop_after


def trained(config: RunConfig, data: DomainSet, runs: Path, keep: str = "best", more: bool = True) -> Path:
    folder = runs / config.run_id
    train(assemble(config, data), folder, keep=keep, more=more)
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """All that must be the same to the byte: no times, nor what holds a digest of them, nor checkpoints."""
    left_out = ("lock", "done", "timings.jsonl", "continue.pt")
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name not in left_out}


def steps_of_timings(folder: Path) -> list[int]:
    return [json.loads(line)["step"] for line in (folder / "timings.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("keep", ["best", "all"])
@pytest.mark.parametrize(("fewer", "start"), [(5, 5), (7, 5)])
def test_a_longer_run_goes_on_and_ends_as_one_that_was_undisturbed(
    fewer: int, start: int, keep: str, digits: DomainSet, tmp_path: Path
) -> None:
    longer = replace(BASE, steps=11, optimizer="adam", optimizer_settings={"lr": 3e-3})
    whole = trained(longer, digits, tmp_path / "whole", keep)
    shorter = trained(replace(longer, steps=fewer), digits, tmp_path / "parts", keep)
    before = contents(shorter)
    folder = tmp_path / "parts" / longer.run_id
    assert go_on(longer, folder, keep) == (
        f"{shorter} holds {fewer} steps of this run; it goes on from step {start}."
    )
    steps = []
    train(assemble(longer, digits), folder, lambda done, record: steps.append(done), keep, more=True)
    assert steps == list(range(start + 1, 12))
    assert contents(folder) == contents(whole)
    assert steps_of_timings(folder) == [0, 4, 8, 10]
    assert contents(shorter) == before
    assert go_on(longer, folder, keep) == ""  # done


def test_the_longest_is_chosen_and_a_third_goes_on_from_the_second(digits: DomainSet, tmp_path: Path) -> None:
    for steps in (3, 6):
        trained(replace(BASE, steps=steps), digits, tmp_path)
    for steps, start in ((11, 5), (14, 9)):
        config = replace(BASE, steps=steps)
        assert go_on(config, tmp_path / config.run_id, "best").endswith(f"goes on from step {start}.")
        trained(config, digits, tmp_path)
    assert contents(tmp_path / config.run_id) == contents(trained(config, digits, tmp_path / "whole"))


def test_unfinished_runs_and_other_runs_are_left_alone(digits: DomainSet, tmp_path: Path) -> None:
    trained(replace(BASE, steps=5, trial_seed=1), digits, tmp_path)
    unfinished = replace(BASE, steps=7)
    with pytest.raises(Stop):
        train(assemble(unfinished, digits), tmp_path / unfinished.run_id, stop_after(6), more=True)
    assert go_on(BASE, tmp_path / BASE.run_id, "best") == ""


@pytest.mark.parametrize("changes", [{"schedule": "cosine"}, {"early_stop": 2}, {"swad": True}])
def test_where_the_number_of_steps_decides_a_run_starts_anew(
    changes: dict[str, Any], digits: DomainSet, tmp_path: Path
) -> None:
    shorter = trained(replace(BASE, steps=5, **changes), digits, tmp_path)
    assert not list(shorter.glob("continue*"))
    assert go_on(replace(BASE, **changes), tmp_path / "longer", "best") == ""


def test_what_a_shorter_run_did_not_keep_makes_it_start_anew(digits: DomainSet, tmp_path: Path) -> None:
    folder = tmp_path / BASE.run_id
    trained(replace(BASE, steps=5), digits, tmp_path, more=False)
    assert "but it did not keep what is needed, so it starts anew" in go_on(BASE, folder, "best")
    path = trained(replace(BASE, steps=6), digits, tmp_path, keep="last") / "continue.pt"
    assert "but it did not keep what is needed, so it starts anew" in go_on(BASE, folder, "best")
    path.write_bytes(path.read_bytes()[:-9])
    assert "cannot be read" in go_on(BASE, folder, "last")
    assert not (folder / "checkpoint.pt").exists()
