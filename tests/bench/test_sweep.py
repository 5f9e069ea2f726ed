"""From a file to jobs: plugins, protocols, threads."""

from __future__ import annotations

from pathlib import Path

from genie_dg.bench.options import Job, RunOptions
from genie_dg.bench.sweep import plan

SWEEP = """
name = "kinds"
protocol = "domainbed"
datasets = ["digits"]
algorithms = ["ERM"]
optimizers = ["adam"]
test_domains = [[0], [5]]
hparams = [0]
trials = 1

[overrides]
steps = 10
checkpoint_every = 5
backbone = "mlp"
batch_size = 8
"""


def test_plugins_of_a_sweep_are_run_once(tmp_path: Path) -> None:
    (tmp_path / "rows.py").write_text(
        f"with open({str(tmp_path / 'log')!r}, 'a') as file:\n    file.write('x')\n"
    )
    file = tmp_path / "kinds.toml"
    file.write_text('plugins = ["rows.py"]\n' + SWEEP)
    for _ in range(2):
        assert plan(file, RunOptions()).jobs[0].options.plugin == (str(tmp_path / "rows.py"),)
    assert (tmp_path / "log").read_text() == "x"


def test_the_users_own_protocol_is_part_of_the_plan(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text('name = "mine"\nbase = "domainbed"\n')
    file = tmp_path / "kinds.toml"
    file.write_text(SWEEP)
    assert plan(file, RunOptions()).protocol is None
    file.write_text(SWEEP.replace('"domainbed"', '"mine.toml"'))
    assert plan(file, RunOptions()).protocol == tmp_path / "mine.toml"


def test_the_threads_of_the_command_line_win_over_those_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "kinds.toml"
    file.write_text("threads = 3\n" + SWEEP)

    def threads(jobs: tuple[Job, ...]) -> set[int]:
        return {job.config.threads for job in jobs}

    assert threads(plan(file, RunOptions()).jobs) == {3}
    assert threads(plan(file, RunOptions(), threads=2).jobs) == {2}
