"""What a run asks Slurm for, and what is refused before anything is submitted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from genie_dg.bench.engines import _slurm_cluster, slurm
from genie_dg.bench.engines._slurm_cluster import Resources, minutes_of, more_options, outside_job
from genie_dg.bench.engines.engine import ClusterError, EngineOptions
from genie_dg.bench.engines.slurm import SlurmEngine


@pytest.mark.parametrize(
    ("text", "minutes"),
    [("1", 1), ("90", 90), ("0:01", 1), ("60:30", 61), ("1:00:00", 60), ("1-0", 1440), ("2-03:04:05", 3065)],
)
def test_times_are_read_as_slurm_reads_them(text: str, minutes: int) -> None:
    assert minutes_of(text) == minutes


@pytest.mark.parametrize("text", ["", "0", "0:00", "-5", "1h", "1:2:3:4", "1.5", "infinite", "1-"])
def test_what_is_not_a_time_is_refused(text: str) -> None:
    with pytest.raises(ClusterError, match=r"got --time .*; expected .*such as 4:00:00\."):
        minutes_of(text)


@pytest.mark.parametrize("word", ["mem=", "a b=1", "mem;rm=1", "--time=5", "job_name=x", "ntasks-per-node=2"])
def test_options_that_would_break_a_sweep_are_refused(word: str) -> None:
    with pytest.raises(ClusterError, match=r"expected an option of sbatch that a sweep does not set itself"):
        more_options([word])


def test_a_warning_comes_early_enough_and_not_at_once() -> None:
    """Submitit's own 90 seconds are more than a job of one minute has."""
    assert [Resources(minutes=m).delay for m in (1, 5, 60, 1440)] == [12, 60, 90, 90]


def test_without_submitit_or_slurm_one_sentence_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(slurm.importlib.util, "find_spec", lambda name: None)
        with pytest.raises(ClusterError, match=r'run pip install "genie-dg\[slurm\]" and try again\.'):
            SlurmEngine(EngineOptions())
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ClusterError, match=r"needs sbatch and srun and .*, not found here; start it on"):
        SlurmEngine(EngineOptions())


def test_the_job_in_which_a_launcher_runs_is_hidden_from_the_jobs_that_it_submits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SLURM_CONF", "/there/slurm.conf")
    monkeypatch.setenv("SLURM_CPU_BIND", "none")  # set by a user, outside of a job
    monkeypatch.setenv("SBATCH_ACCOUNT", "mine")
    with outside_job():
        assert os.environ["SLURM_CPU_BIND"] == "none"
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "4")
    with outside_job():
        left = {name: value for name, value in os.environ.items() if name.startswith(("SLURM", "SBATCH"))}
    assert left == {"SLURM_CONF": "/there/slurm.conf", "SBATCH_ACCOUNT": "mine"}
    assert os.environ["SLURM_CPUS_PER_TASK"] == "4"


def test_commands_that_fail_are_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that does not reach its cluster: the words of Slurm, once, and no traceback."""
    if shutil.which("squeue") is None:
        pytest.skip("There is no squeue here; make slurm installs Debian's Slurm.")
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=gone\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort=1\n")
    monkeypatch.setenv("SLURM_CONF", str(conf))
    said = r"^squeue failed \(.*Unable to contact slurm controller.*\); is this a login node of a cluster\?$"
    with pytest.raises(ClusterError, match=said):
        _slurm_cluster.queued_jobs(["x"])
