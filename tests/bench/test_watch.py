"""Watching a run: what is written, and that the run stays the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from genie_dg.bench.assemble import assemble
from genie_dg.bench.train import train
from genie_dg.bench.watch import GROUPS, check_watches, watching
from genie_dg.check import InputError
from genie_dg.data.registry import open_data
from genie_dg.runs.folder import WATCH
from genie_dg.runs.record import RunConfig

CONFIG = RunConfig(
    "digits", (5,), backbone="mlp", batch_size=4, steps=7, checkpoint_every=3, optimizer_settings={"lr": 0.3}
)


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / WATCH).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("optimizer", ["genie", "sam", "adahessian"])
def test_a_watched_run_is_the_same_to_the_bit(optimizer: str, tmp_path: Path) -> None:
    config = replace(CONFIG, optimizer=optimizer, optimizer_settings={})
    plain, seen = (assemble(config, open_data("digits")) for _ in range(2))
    records = train(plain, tmp_path / "plain")
    watched = train(seen, tmp_path / "seen", watching(seen, tmp_path / "seen", ("updates", "osgr")))
    assert watched == records
    for a, b in zip(plain.algorithm.parameters(), seen.algorithm.parameters(), strict=True):
        assert torch.equal(a, b)
    written = lines(tmp_path / "seen")
    assert [line["step"] for line in written] == [0, 3, 6]
    for line in written:
        assert "problem" not in line
        assert line["osgr_n"] == 20
        assert line["osgr_low"] <= line["osgr"] <= line["osgr_high"]  # type: ignore[operator]
        assert 0 <= line["update_gini"] <= 1  # type: ignore[operator]
        assert len(line["heat"]) == GROUPS  # type: ignore[arg-type]


def test_the_movement_is_that_of_the_weights(tmp_path: Path) -> None:
    parts = assemble(replace(CONFIG, steps=1), open_data("digits"))
    before = [p.detach().clone() for p in parts.algorithm.network.parameters()]
    train(parts, tmp_path, watching(parts, tmp_path, ("updates",)))
    moved = torch.cat(
        [(a - b).flatten() for a, b in zip(parts.algorithm.network.parameters(), before, strict=True)]
    )
    (line,) = lines(tmp_path)
    assert line["update_norm"] == pytest.approx(moved.norm().item(), rel=1e-4)
    assert "osgr" not in line


def test_a_run_that_goes_on_has_every_line_once(tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(done: int, record: object) -> None:
        if done == 5:
            raise Stop

    parts = assemble(CONFIG, open_data("digits"))
    with pytest.raises(Stop):
        train(parts, tmp_path, watching(parts, tmp_path, ("updates",), stop))
    parts = assemble(CONFIG, open_data("digits"))
    train(parts, tmp_path, watching(parts, tmp_path, ("updates",)))
    assert [line["step"] for line in lines(tmp_path)] == [0, 3, 6]


def test_names_are_checked() -> None:
    assert check_watches(("updates", "osgr")) == ("updates", "osgr")
    with pytest.raises(InputError, match="got watch='ogsr'; expected updates or osgr; did you mean 'osgr'"):
        check_watches(["ogsr"])
