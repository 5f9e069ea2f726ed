"""From a job to a finished run: what the options ask for happens, and what was opened stays open."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from genie_dg.bench import jobs as module
from genie_dg.bench.jobs import OpenSets, run_job
from genie_dg.bench.options import Job, RunOptions
from genie_dg.bench.watch import HEAT_GROUPS
from genie_dg.check import InputError
from genie_dg.cli.main import main
from genie_dg.data.columns import Columns
from genie_dg.runs.config import RunConfig
from genie_dg.runs.folder import WATCH
from genie_dg.runs.outcome import Ending, read_outcomes

CONFIG = RunConfig(
    "digits", (5,), backbone="mlp", batch_size=4, steps=7, checkpoint_every=3, optimizer_settings={"lr": 0.3}
)


def job_in(out: Path, **options: object) -> Job:
    return Job(replace(CONFIG, steps=1), "digits", RunOptions(out=str(out), **options))  # type: ignore[arg-type]


def test_a_set_is_opened_once_for_each_root_and_a_plugin_is_run_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[object, ...]] = []
    real = module.open_data
    monkeypatch.setattr(module, "open_data", lambda *words: asked.append(words) or real(*words))
    plugin = tmp_path / "plugin.py"
    plugin.write_text(f"with open({str(tmp_path / 'log')!r}, 'a') as file:\n    file.write('x')\n")
    opened = OpenSets()
    for k in range(2):
        job = job_in(tmp_path / "runs", plugin=(str(plugin),))
        run_job(replace(job, config=replace(job.config, trial_seed=k)), opened)
    assert opened.open("digits", RunOptions()) is opened.open("digits", RunOptions(out="elsewhere"))
    opened.open("digits", RunOptions(root="elsewhere"))
    assert asked == [("digits", None, Columns()), ("digits", "elsewhere", Columns())]
    assert (tmp_path / "log").read_text() == "x"


@pytest.mark.parametrize("threads", [1, 3])
def test_the_threads_are_those_of_the_run_and_afterwards_as_before(threads: int, tmp_path: Path) -> None:
    before, job, seen = torch.get_num_threads(), job_in(tmp_path), set()
    torch.set_num_threads(2)
    try:
        job = replace(job, config=replace(job.config, threads=threads))
        run_job(job, OpenSets(), lambda *_: seen.add(torch.get_num_threads()))
        assert seen == {threads}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_what_no_run_can_do_is_refused_before_it_is_an_attempt(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="got watch='ogsr'; expected updates or osgr"):
        run_job(job_in(tmp_path / "runs", watch="updates,ogsr"), OpenSets())
    assert not (tmp_path / "runs").exists()


def test_an_attempt_that_fails_before_its_first_step_is_noted(tmp_path: Path) -> None:
    job = job_in(tmp_path, weights=str(tmp_path / "w.pth"))
    with pytest.raises(InputError, match=r"w\.pth cannot be read"):
        run_job(job, OpenSets())
    assert [(one.ending, one.error) for one in read_outcomes(job.folder)] == [(Ending.failed, "InputError")]


def test_a_job_is_watched_and_the_report_shows_it(tmp_path: Path) -> None:
    out, page = tmp_path / "runs", tmp_path / "report.html"
    job = pickle.loads(pickle.dumps(Job(CONFIG, "digits", RunOptions(out=str(out), watch="updates,osgr"))))
    run_job(job, OpenSets())
    lines = [json.loads(line) for line in (job.folder / WATCH).read_text().splitlines()]
    assert [len(line["heat"]) for line in lines] == 3 * [HEAT_GROUPS]
    assert main(["report", str(out), "-o", str(page)]) == 0
    text = page.read_text(encoding="utf-8")
    assert "OSGR by its definition" in text
    assert "Gini coefficient of the updates" in text
    (job.folder / WATCH).unlink()
    assert main(["report", str(out), "-o", str(page)]) == 0
