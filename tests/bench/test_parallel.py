"""One run on two real processes gives the records of one process, to float tolerance."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

from genie_dg.algorithms.algorithm import AlgorithmRow
from genie_dg.algorithms.erm import ERM
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.bench.assemble import assemble
from genie_dg.bench.parallel import World
from genie_dg.check import InputError
from genie_dg.data.registry import open_data
from genie_dg.runs.config import RunConfig

WORDS = ["train", "digits", "--test-domain", "5", "--backbone", "mlp", "--batch-size", "8", "--steps", "13"]
WORDS += ["--every", "4", "--device", "cpu"]
COMMAND = [sys.executable, "-m", "genie_dg.cli.main"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--master-port=0", "--rdzv-backend=c10d"]
TORCHRUN += ["--rdzv-endpoint=localhost:0"]


def run(out: Path, *more: str, processes: int = 1) -> tuple[list[dict[str, Any]], dict[str, torch.Tensor]]:
    command = COMMAND if processes == 1 else [*TORCHRUN, f"--nproc-per-node={processes}", *COMMAND[1:]]
    done = subprocess.run(
        [*command, *WORDS, *more, "--out", str(out)], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("Chosen by validation") == 1, "one process speaks"
    (folder,) = out.iterdir()
    records = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    return records, torch.load(folder / "model.pt", weights_only=True)["algorithm"]


def test_two_processes_give_the_records_of_one(tmp_path: Path) -> None:
    more = "--algorithm CORAL --optimizer sam --set base=genie --batch-size 7 --dropout 0.2"
    (alone, weights), (together, shared) = (run(tmp_path / str(k), *more.split(), processes=k) for k in (1, 2))
    assert len(alone) == len(together) == 4
    for one, two in zip(alone, together, strict=True):
        assert two["loss"] == pytest.approx(one["loss"], rel=1e-5)
        assert two["validation_loss"] == pytest.approx(one["validation_loss"], rel=1e-5)
        assert two["in_acc"] == pytest.approx(one["in_acc"], abs=0.005)
    for name, value in weights.items():
        torch.testing.assert_close(shared[name], value, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_processes_whose_launcher_was_killed_are_named_and_end_with_a_sentence(tmp_path: Path) -> None:
    """They train on, a second run is told who holds the lock, and without its partner a process says so."""
    words = [*WORDS, "--out", str(tmp_path / "out"), "--steps", "1000000"]
    errors = (tmp_path / "errors").open("w+")
    launcher = subprocess.Popen(
        [*TORCHRUN, "--nproc-per-node=2", *COMMAND[1:], *words],
        stdout=subprocess.DEVNULL,
        stderr=errors,
        start_new_session=True,
    )
    try:
        until(lambda: bool(list(tmp_path.glob("out/*/records.jsonl"))))
        (holder,) = tmp_path.glob("out/*/lock.holder")
        first = json.loads(holder.read_text())["pid"]
        launcher.kill()
        launcher.wait()
        again = subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=120)
        assert again.returncode == 2
        assert f"Another process (process {first} on " in again.stderr
        os.kill(first, signal.SIGKILL)
        until(lambda: "lost another one of its run" in (tmp_path / "errors").read_text())
        said = (tmp_path / "errors").read_text()
        assert "start the run again, and it goes on from its last checkpoint." in said
        assert "Traceback" not in said
    finally:
        with suppress(ProcessLookupError):
            os.killpg(launcher.pid, signal.SIGKILL)
        errors.close()


def until(happened: Callable[[], bool]) -> None:
    for _ in range(600):
        if happened():
            return
        time.sleep(0.2)
    raise AssertionError("it did not happen in two minutes")


def test_what_cannot_be_shared_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ALGORITHMS, "_rows", dict(ALGORITHMS._rows))
    ALGORITHMS.register(AlgorithmRow("Own", ERM, "none", one_process="it counts its calls"))
    digits = open_data("digits")
    with pytest.raises(InputError, match=r"2 processes for Own, but it counts its calls; "):
        assemble(RunConfig("digits", (5,), algorithm="Own", backbone="mlp"), digits, world=World(0, 2))
    with pytest.raises(InputError, match="got batch_size=3 for 4 processes; expected 4 or more"):
        assemble(RunConfig("digits", (5,), backbone="mlp", batch_size=3), digits, world=World(0, 4))
