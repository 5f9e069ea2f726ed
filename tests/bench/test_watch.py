"""Watching a run: what is written, and that the run stays the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from genie_dg.bench.assemble import assemble
from genie_dg.bench.train import train
from genie_dg.bench.watch import HEAT_GROUPS, Watcher
from genie_dg.data.registry import open_data
from genie_dg.runs.config import RunConfig
from genie_dg.runs.folder import WATCH
from genie_dg.runs.record import Record

from .test_train import Stop, stop_after

CONFIG = RunConfig(
    "digits", (5,), backbone="mlp", batch_size=4, steps=7, checkpoint_every=3, optimizer_settings={"lr": 0.3}
)


def lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / WATCH).read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("optimizer", ["genie", "adahessian"])
def test_a_watched_run_is_the_same_to_the_bit(optimizer: str, tmp_path: Path) -> None:
    config = replace(CONFIG, optimizer=optimizer, optimizer_settings={})
    plain, seen = (assemble(config, open_data("digits")) for _ in range(2))
    records = train(plain, tmp_path / "plain")
    watched = train(seen, tmp_path / "seen", watcher=Watcher(seen, tmp_path / "seen", ("updates", "osgr")))
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
        assert len(line["heat"]) == HEAT_GROUPS  # type: ignore[arg-type]


def test_the_movement_is_that_of_the_weights(tmp_path: Path) -> None:
    parts = assemble(replace(CONFIG, steps=1), open_data("digits"))
    before = [p.detach().clone() for p in parts.algorithm.network.parameters()]
    train(parts, tmp_path, watcher=Watcher(parts, tmp_path, ("updates",)))
    moved = torch.cat(
        [(a - b).flatten() for a, b in zip(parts.algorithm.network.parameters(), before, strict=True)]
    )
    (line,) = lines(tmp_path)
    assert line["update_norm"] == pytest.approx(moved.norm().item(), rel=1e-4)
    assert "osgr" not in line


def interrupted(folder: Path, moment: str) -> None:
    """Train until the record of step 3: to its checkpoint and a step further, or to its line and no further."""
    parts = assemble(CONFIG, open_data("digits"))

    class Stopping(Watcher):
        def add(self, record: Record) -> None:
            super().add(record)
            if moment == "line" and record.step == 3:
                raise Stop

    with pytest.raises(Stop):
        train(parts, folder, stop_after(5), watcher=Stopping(parts, folder, ("updates", "osgr")))


@pytest.mark.parametrize("moment", ["checkpoint", "line", "torn"])
def test_a_run_that_goes_on_leaves_the_lines_of_an_undisturbed_one(moment: str, tmp_path: Path) -> None:
    whole = assemble(CONFIG, open_data("digits"))
    train(whole, tmp_path / "whole", watcher=Watcher(whole, tmp_path / "whole", ("updates", "osgr")))
    folder = tmp_path / "stopped"
    interrupted(folder, moment)
    assert [line["step"] for line in lines(folder)] == [0, 3]
    if moment == "torn":
        with (folder / WATCH).open("a") as file:
            file.write('{"step": 6, "upd')
    parts = assemble(CONFIG, open_data("digits"))
    train(parts, folder, watcher=Watcher(parts, folder, ("updates", "osgr")))
    assert (folder / WATCH).read_bytes() == (tmp_path / "whole" / WATCH).read_bytes()
