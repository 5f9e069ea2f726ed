"""``genie-dg sweep --engine slurm`` as typed, on a real Slurm: stopped, started twice, disturbed."""

from __future__ import annotations

import csv
import io
import os
import shlex
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from genie_dg.cli.main import main
from genie_dg.files import held_by
from genie_dg.runs.submissions import last_jobs, place_of, read_submissions
from tests.slurm import Slurm, bytes_of, until_warned, wait_for

SWEEP = """
name = "mine"
protocol = "domainbed"
datasets = ["digits"]
algorithms = ["ERM"]
optimizers = {optimizers}
test_domains = [[0], [5]]
hparams = {hparams}
trials = {trials}

[overrides]
steps = {steps}
checkpoint_every = {every}
backbone = "mlp"
batch_size = 8
"""


def sweep_words(folder: Path, out: str, **values: object) -> list[str]:
    file = folder / "mine.toml"
    file.write_text(SWEEP.format(**values))
    return ["sweep", str(file), "--out", str(folder / out), "--device", "cpu"]


def start(words: list[str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "genie_dg.cli.main", *words, "--engine", "slurm"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_ctrl_c_leaves_the_jobs_and_the_same_command_finds_them(
    cluster: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then a launcher that is killed before it could write down the id of what it has submitted."""
    values = {"optimizers": ["adam", "genie"], "hparams": [0], "trials": 1, "steps": 1000, "every": 50}
    words, out = sweep_words(tmp_path, "runs", **values), tmp_path / "runs"
    with start(words) as launcher:
        wait_for(lambda: list(out.glob("*/checkpoint.pt")))
        launcher.send_signal(signal.SIGINT)
        text, errors = launcher.communicate(timeout=60)
    assert (launcher.returncode, errors.strip()) == (130, "genie-dg: stopped by Ctrl-C.")
    (made,) = read_submissions(out, "mine")
    assert f"4 runs are still in the queue: scancel {made.job} cancels them, and the same command" in text
    assert main(["status", str(out), "--all"]) == 0
    shown = capsys.readouterr().out
    assert "submitted" in shown
    assert f": Slurm job {made.job}_" in shown
    book = place_of(out, "mine")
    book.write_text(book.read_text().splitlines()[0] + "\n")
    assert main([*words, "--engine", "slurm"]) == 0
    shown = capsys.readouterr().out
    assert f"already in the queue, in Slurm job {made.job}; squeue" in shown
    assert "4 of 4 runs are done, 0 failed." in shown
    assert read_submissions(out, "mine") == [made], "nothing was submitted twice"
    assert main([*sweep_words(tmp_path, "here", **values), "--engine", "here"]) == 0
    assert bytes_of(out) == bytes_of(tmp_path / "here")


@pytest.mark.slow
def test_two_launchers_submit_no_run_twice(cluster: Slurm, tmp_path: Path) -> None:
    values = {"optimizers": ["adam"], "hparams": [0], "trials": 1, "steps": 20, "every": 10}
    words = sweep_words(tmp_path, "runs", **values)
    with start(words) as first, start(words) as second:
        texts = [one.communicate(timeout=300) for one in (first, second)]
    assert (first.returncode, second.returncode) == (0, 0), texts
    assert len(read_submissions(tmp_path / "runs", "mine")) == 1


@pytest.mark.slow
def test_a_launcher_in_a_job_of_its_own_waits_for_a_controller_that_is_away(
    cluster: Slurm, tmp_path: Path
) -> None:
    values = {"optimizers": ["adam"], "hparams": [0], "trials": 1, "steps": 20, "every": 10}
    words = [*sweep_words(tmp_path, "runs", **values), "--engine", "slurm", "--array-parallelism", "1"]
    command = shlex.join([sys.executable, "-m", "genie_dg.cli.main", *words])
    log = tmp_path / "launcher.log"
    cluster.ask("sbatch", "--mem=100M", "--ntasks=1", f"--output={log}", f"--wrap={command}")
    wait_for(lambda: last_jobs(read_submissions(tmp_path / "runs", "mine")))
    cluster.without_controller(15)
    wait_for(lambda: "2 of 2 runs are done, 0 failed." in log.read_text())
    assert "Unable to contact slurm controller" in log.read_text()
    assert log.read_text().count("waiting, and jobs that were submitted go on.") == 1
    assert len(read_submissions(tmp_path / "runs", "mine")) == 1


def caught_in(out: Path, but: int = 0) -> int:
    """A process, but for one, that trains a run of a folder and has written a checkpoint; it is stopped."""

    def caught() -> int:
        for path in out.glob("*/checkpoint.pt"):
            if (holder := held_by(path.parent / "lock")) and holder.pid != but:
                with suppress(ProcessLookupError):
                    os.kill(holder.pid, signal.SIGSTOP)
                    if path.exists() and held_by(path.parent / "lock") == holder:
                        return holder.pid
                    os.kill(holder.pid, signal.SIGCONT)
        return 0

    pid = wait_for(caught)
    assert isinstance(pid, int)
    return pid


def without_times(text: str) -> list[dict[str, str]]:
    """The rows of a table without the column that is never the same twice."""
    rows = list(csv.DictReader(io.StringIO(text)))
    return [{key: value for key, value in row.items() if key != "seconds_per_step"} for row in rows]


@pytest.mark.slow
def test_a_sweep_of_24_runs_with_a_kill_and_a_time_limit_gives_the_table_of_the_local_engine(
    cluster: Slurm, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In two arrays, because this cluster allows no more than 21 jobs in one."""
    values = {"optimizers": ["adam", "sgd", "genie"], "hparams": 2, "trials": 2, "steps": 200, "every": 10}
    words, out = sweep_words(tmp_path, "slurm", **values), tmp_path / "slurm"
    with start([*words, "--time", "4"]) as launcher:
        killed = caught_in(out)
        os.kill(killed, signal.SIGKILL)
        until_warned(caught_in(out, killed))
        text, errors = launcher.communicate(timeout=3600)
    assert (launcher.returncode, errors) == (0, "")
    assert "24 of 24 runs are done, 0 failed." in text
    made = read_submissions(out, "mine")
    assert [len(one.runs) for one in made] == [24, 12, 12, 1]
    assert [bool(one.job) for one in made] == [False, True, True, True], "the first array was too large"
    logs = [path.read_text() for path in out.glob("*/slurm-*.log")]
    assert len(logs) == 25
    assert any("Caught signal SIGUSR2" in log and "Requeued job" in log for log in logs)
    assert main(sweep_words(tmp_path, "local", **values)) == 0
    assert bytes_of(out) == bytes_of(tmp_path / "local")
    assert len(bytes_of(out)) == 48
    tables = []
    for name in ("slurm", "local"):
        capsys.readouterr()
        assert main(["table", str(tmp_path / name), "--format", "csv"]) == 0
        tables.append(without_times(capsys.readouterr().out))
    assert tables[0] == tables[1]
    assert len(tables[0]) > 6
