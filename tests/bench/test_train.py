"""The loop: records, restarts that continue bit for bit, averaging, precision, locks."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from msgspec import structs

from genie_dg.bench.assemble import assemble
from genie_dg.bench.options import RunOptions
from genie_dg.bench.train import NotFinite, train
from genie_dg.data.domains import DomainSet
from genie_dg.data.registry import open_data
from genie_dg.files import Busy, FileError, FileWarning
from genie_dg.results.frame import load
from genie_dg.runs.config import RunConfig
from genie_dg.runs.folder import alone
from genie_dg.runs.outcome import Ending, outcome_of

from ..data.pictures import folder

BASE = RunConfig(
    "digits", (5,), optimizer="adam", backbone="mlp", optimizer_settings={"lr": 1e-3},
    batch_size=6, dropout=0.2, steps=9, checkpoint_every=4,
)  # fmt: skip


class Stop(Exception):
    """Stands for whatever ends a process."""


def stop_after(steps: int) -> Any:
    def report(done: int, record: object) -> None:
        if done == steps:
            raise Stop

    return report


def files(of_run: Path) -> dict[str, bytes]:
    """All that must be the same to the byte; ``done`` without the digest of the times."""
    contents = {p.name: p.read_bytes() for p in of_run.iterdir() if p.name != "timings.jsonl"}
    sealed = json.loads(contents["done"])["files"]
    assert sealed.keys() == contents.keys() - {"lock", "done"} | {"timings.jsonl"}
    del sealed["timings.jsonl"]
    return {**contents, "done": json.dumps(sealed).encode()}


def weights(folder: Path) -> dict[str, torch.Tensor]:
    loaded: dict[str, torch.Tensor] = torch.load(folder / "model.pt", weights_only=True)["algorithm"]
    return loaded


def test_records_are_made_at_the_first_step_every_so_often_and_at_the_last(
    digits: DomainSet, tmp_path: Path
) -> None:
    records = train(assemble(BASE, digits), tmp_path)
    assert [record.step for record in records] == [0, 4, 8]
    lines = (tmp_path / "records.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [record.to_json() for record in records]
    for record in records:
        assert len(record.in_acc) == len(record.out_acc) == 6
        measured = [value for value in record.in_acc if value is not None]
        assert len(measured) == len(BASE.test_domains)
        assert all(0 <= value <= 1 for value in [*measured, *record.out_acc])
    assert records[1].epoch == pytest.approx(4 * 6 / 240)
    assert (tmp_path / "done").exists()
    assert not (tmp_path / "checkpoint.pt").exists()
    meta = json.loads((tmp_path / "meta.json").read_text())
    assert meta["domains"][5] == "75 degrees"


@pytest.mark.parametrize("optimizer", ["adam", "genie", "adahessian"])
@pytest.mark.parametrize("algorithm", ["ERM", "DANN"])
@pytest.mark.parametrize("stopped", [[3], [5, 8], [9]])
def test_a_stopped_run_goes_on_bit_for_bit(
    optimizer: str, algorithm: str, stopped: list[int], digits: DomainSet, tmp_path: Path
) -> None:
    config = replace(BASE, optimizer=optimizer, algorithm=algorithm)
    expected = train(assemble(config, digits), tmp_path / "whole")
    for steps in stopped:
        with pytest.raises(Stop):
            train(assemble(config, digits), tmp_path / "parts", stop_after(steps))
    assert train(assemble(config, digits), tmp_path / "parts") == expected
    assert files(tmp_path / "parts") == files(tmp_path / "whole")
    whole, parts = weights(tmp_path / "whole"), weights(tmp_path / "parts")
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


@pytest.mark.parametrize("optimizer", ["adam", "sam", "genie"])
@pytest.mark.parametrize("precision", ["bfloat16", "float16"])
def test_mixed_precision_trains_and_goes_on(
    optimizer: str, precision: str, digits: DomainSet, tmp_path: Path
) -> None:
    config = replace(BASE, precision=precision, optimizer=optimizer)
    expected = train(assemble(config, digits), tmp_path / "whole")
    full = train(assemble(replace(config, precision="float32"), digits), tmp_path / "full")
    assert expected[-1].loss == pytest.approx(full[-1].loss, rel=0.05)
    assert expected[-1].loss != full[-1].loss
    with pytest.raises(Stop):
        train(assemble(config, digits), tmp_path / "parts", stop_after(6))
    assert train(assemble(config, digits), tmp_path / "parts") == expected


def test_a_loss_that_is_not_a_number_stops_the_run(digits: DomainSet, tmp_path: Path) -> None:
    config = replace(BASE, optimizer="sgd", optimizer_settings={"lr": 1e30}, steps=50)
    for every in (50, 1):  # with the record of the lost weights, too
        run = tmp_path / str(every)
        with pytest.raises(
            NotFinite, match=r"The loss of step . is .*lower the learning rate of sgd"
        ) as caught:
            train(assemble(replace(config, checkpoint_every=every), digits), run)
        assert outcome_of(caught.value).ending is Ending.diverged
        assert not (run / "done").exists()


def flipped(path: Path, bit: int) -> None:
    """Change one bit of a file."""
    data = bytearray(path.read_bytes())
    data[bit // 8 % len(data)] ^= 1 << bit % 8
    path.write_bytes(data)


@pytest.mark.parametrize("swad", [False, True])
def test_a_damaged_checkpoint_is_named_and_the_one_before_is_used(
    swad: bool, digits: DomainSet, tmp_path: Path
) -> None:
    """Single bits anywhere in the newest checkpoint, and a run that ends as if nothing had happened."""
    config, stopped = replace(BASE, swad=swad), tmp_path / "stopped"
    train(assemble(config, digits), tmp_path / "whole")
    with pytest.raises(Stop):
        train(assemble(config, digits), stopped, stop_after(7))
    for k, bit in enumerate(Random(0).sample(range(8 * (stopped / "checkpoint.pt").stat().st_size), 3)):
        run, steps = tmp_path / f"run {k}", list[int]()
        shutil.copytree(stopped, run)
        flipped(run / "checkpoint.pt", bit)
        with pytest.warns(FileWarning, match="so the run goes on from the checkpoint before") as caught:
            train(assemble(config, digits), run, lambda done, _, steps=steps: steps.append(done))  # type: ignore[misc]
        assert len(caught) == 1
        assert steps[0] == 2  # after the checkpoint of step 0
        assert files(run) == files(tmp_path / "whole")


@pytest.mark.parametrize("damage", ["0.", "lost", "model"])
def test_what_a_checkpoint_counts_on_is_checked(damage: str, digits: DomainSet, tmp_path: Path) -> None:
    """A changed number or a lost line of the records, and weights of the best record that were changed."""
    train(assemble(BASE, digits), tmp_path / "whole")
    with pytest.raises(Stop):
        train(assemble(BASE, digits), tmp_path / "parts", stop_after(7))
    path = tmp_path / "parts" / "records.jsonl"
    if damage == "model":
        flipped(tmp_path / "parts" / "model.pt", 54321)
    else:
        text = path.read_text()
        path.write_text(text.replace("0.", "0.1", 1) if damage == "0." else text.partition("\n")[2])
    with pytest.warns(FileWarning, match="model.pt cannot be read" if damage == "model" else "records.jsonl"):
        train(assemble(BASE, digits), tmp_path / "parts")
    assert files(tmp_path / "parts") == files(tmp_path / "whole")


def test_a_finished_run_that_was_changed_is_refused(digits: DomainSet, tmp_path: Path) -> None:
    train(assemble(BASE, digits), tmp_path)
    path = tmp_path / "records.jsonl"
    path.write_text(path.read_text().partition("\n")[2])
    with pytest.raises(FileError, match=r"records.jsonl was changed after the run was finished; remove its"):
        train(assemble(BASE, digits), tmp_path)


def test_a_run_is_trained_by_one_process_at_a_time(digits: DomainSet, tmp_path: Path) -> None:
    with alone(tmp_path), pytest.raises(Busy, match=r"Another process \(.*\) trains"):
        train(assemble(BASE, digits), tmp_path)


def test_what_a_killed_process_leaves_is_cleared(digits: DomainSet, tmp_path: Path) -> None:
    """Killed while a file was written, between two files, and right after the mark of completion."""
    with pytest.raises(Stop):
        train(assemble(BASE, digits), tmp_path, stop_after(3))
    (tmp_path / "checkpoint.pt.123.part").write_bytes(b"half")
    (tmp_path / "meta.json").unlink()
    train(assemble(BASE, digits), tmp_path)
    assert not list(tmp_path.glob("*.part"))
    assert (tmp_path / "meta.json").exists()
    (tmp_path / "checkpoint.pt").write_bytes(b"left")
    train(assemble(BASE, digits), tmp_path)
    assert not (tmp_path / "checkpoint.pt").exists()


def test_what_is_evaluated_changes_nothing_that_is_measured(digits: DomainSet, tmp_path: Path) -> None:
    """The 80 % parts of training domains are left out by default; all else is the same to the bit."""
    used = train(assemble(BASE, digits), tmp_path / "used")
    every = train(assemble(BASE, digits, RunOptions(evaluate="all")), tmp_path / "all")
    for some, whole in zip(used, every, strict=True):
        assert None not in whole.in_acc
        for k, (mine, theirs) in enumerate(zip(some.in_acc, whole.in_acc, strict=True)):
            assert mine == (theirs if k in BASE.test_domains else None)
        assert structs.replace(some, in_acc=whole.in_acc) == whole
    ours, theirs_too = weights(tmp_path / "used"), weights(tmp_path / "all")
    assert all(torch.equal(tensor, theirs_too[key]) for key, tensor in ours.items())
    frames = [load(tmp_path / name) for name in ("used", "all")]
    for column in ("validation", "test", "out_acc", "step"):
        assert frames[0][column].to_list() == frames[1][column].to_list()


def test_fast_runs_have_an_identity_of_their_own_and_repeat_to_the_bit(tmp_path: Path) -> None:
    data = open_data(str(folder(tmp_path / "set", domains=("ink", "oil", "wax"), each=10)))
    exact = replace(BASE, dataset=data.name, test_domains=(0,), backbone="cnn", image_size=32, batch_size=4)
    fast = replace(exact, fast=True)
    assert fast.run_id != exact.run_id
    records = train(assemble(fast, data), tmp_path / "a")
    train(assemble(exact, data), tmp_path / "b")
    with pytest.raises(Stop):
        train(assemble(fast, data), tmp_path / "c", stop_after(6))
    assert train(assemble(fast, data), tmp_path / "c") == records
    first, other, resumed = (weights(tmp_path / name) for name in "abc")
    assert all(torch.equal(first[key], resumed[key]) for key in first)
    assert any(not torch.equal(first[key], other[key]) for key in first)  # another engine, other roundings
    assert all((first[key] - other[key]).abs().max() < 0.1 for key in first)
