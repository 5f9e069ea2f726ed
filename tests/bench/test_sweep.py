"""How long a sweep will take: what was timed, and what follows from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from genie_dg.bench.options import Job, RunOptions
from genie_dg.bench.sweep import Estimate, Pace, estimate_sweep, plan
from genie_dg.runs.config import RunConfig

SWEEP = """
name = "kinds"
protocol = "domainbed"
datasets = ["digits"]
algorithms = ["ERM", "IRM"]
optimizers = ["adam", "sam"]
test_domains = [[0], [5]]
hparams = [0]
trials = 1

[overrides]
steps = 10
checkpoint_every = 5
backbone = "mlp"
batch_size = 8
"""

CONFIG = RunConfig("digits", (5,), optimizer="adam", backbone="mlp", steps=10, checkpoint_every=5)


def test_a_run_is_its_start_its_steps_and_its_evaluations() -> None:
    pace = Pace("any", CONFIG, start=1.0, step=0.5, evaluation=2.0)
    assert pace.seconds(CONFIG) == 1 + 10 * 0.5 + 3 * 2  # evaluated at steps 0, 5 and 9
    assert pace.seconds(replace(CONFIG, swad=True)) == 1 + 10 * 0.5 + 4 * 2
    assert pace.seconds(replace(CONFIG, optimizer="sam")) == 1 + 10 * 0.5 * 2 + 3 * 2  # two passes


def test_runs_are_dealt_out_whole_and_wait_for_cores() -> None:
    made = Estimate([4.0] * 5, [])
    assert made.seconds(workers=1, threads=1, cores=2, start=3.0) == 3 + 20
    assert made.seconds(workers=2, threads=1, cores=2, start=3.0) == 3 + 12, "one worker has three of five"
    assert made.seconds(workers=4, threads=1, cores=2, start=3.0) == 3 + 8 * 2
    assert made.seconds(workers=2, threads=2, cores=2, start=3.0) == 3 + 12 * 2
    assert made.seconds(workers=9, threads=1, cores=0, start=3.0) == 3 + 4, "on graphics cards"
    assert Estimate([], []).seconds(workers=2, threads=1, cores=2, start=3.0) == 0


def test_each_shape_is_timed_once_and_other_optimizers_count_by_their_passes(tmp_path: Path) -> None:
    file = tmp_path / "kinds.toml"
    file.write_text(SWEEP)
    out = tmp_path / "away" / "runs"
    options = RunOptions(out=str(out))
    planned = plan(file, options, threads=1)
    (planned.jobs[0].folder).mkdir(parents=True)
    (planned.jobs[0].folder / "done").touch()
    estimate = estimate_sweep(planned, options)
    (pace,) = estimate.paces
    assert pace.kind == "digits, mlp, 8 a domain, adam"
    assert min(pace.start, pace.step, pace.evaluation) > 0
    assert estimate.runs == [pace.seconds(job.config) for job in planned.jobs[1:]], "one is done"
    assert [path.name for path in out.iterdir()] == [planned.jobs[0].config.run_id], "nothing is left"


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
