"""One run on two real processes gives the records of one process, to float tolerance."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from genie_dg.bench.assemble import assemble
from genie_dg.bench.parallel import World
from genie_dg.check import InputError
from genie_dg.data.registry import open_data
from genie_dg.runs.record import RunConfig

WORDS = ["train", "digits", "--test-domain", "5", "--backbone", "mlp", "--batch-size", "8", "--steps", "13"]
WORDS += ["--every", "4", "--device", "cpu"]


def run(out: Path, *more: str, processes: int = 1) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    command = [sys.executable, "-m", "genie_dg.cli.main"]
    if processes > 1:
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={processes}"]
        command += [
            "--master-port=0",
            "--rdzv-backend=c10d",
            "--rdzv-endpoint=localhost:0",
            "-m",
            "genie_dg.cli.main",
        ]
    done = subprocess.run(
        [*command, *WORDS, *more, "--out", str(out)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("Chosen by validation") == 1, "one process speaks"
    (folder,) = out.iterdir()
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return records, torch.load(folder / "model.pt", weights_only=True)["algorithm"]


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(["--optimizer", "adam", "--set", "lr=1e-3"], marks=pytest.mark.slow),
        ["--optimizer", "sam", "--set", "base=genie"],
    ],
)
def test_two_processes_give_the_records_of_one(more: list[str], tmp_path: Path) -> None:
    (alone, weights), (together, shared) = run(tmp_path / "a", *more), run(tmp_path / "b", *more, processes=2)
    assert len(alone) == len(together) == 4
    for one, two in zip(alone, together, strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-5)
        assert two["validation_loss"] == pytest.approx(one["validation_loss"], rel=1e-5)
        assert two["in_acc"] == pytest.approx(one["in_acc"], abs=0.005)
    for name, value in weights.items():
        torch.testing.assert_close(shared[name], value, rtol=1e-4, atol=1e-5)


def test_what_cannot_be_shared_is_refused() -> None:
    digits = open_data("digits")
    with pytest.raises(InputError, match=r"got 2 processes for CORAL.*train it with one process"):
        assemble(RunConfig("digits", (5,), algorithm="CORAL", backbone="mlp"), digits, world=World(0, 2))
    with pytest.raises(InputError, match="must be divisible among them"):
        assemble(RunConfig("digits", (5,), backbone="mlp", batch_size=7), digits, world=World(0, 2))
