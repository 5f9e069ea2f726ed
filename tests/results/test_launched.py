"""What the page shows under "Run it again": what was launched, as it was, and it gives the same runs."""

from __future__ import annotations

import html
import json
import shlex
from pathlib import Path

from genie_dg.bench.options import RunOptions
from genie_dg.bench.sweep import plan
from genie_dg.results import page
from genie_dg.results.frame import load
from genie_dg.results.page_data import page_data

from .build import Run, record, run, write

SWEEP = """# a sweep with training settings
name = "changed"
protocol = "domainbed"
datasets = ["digits"]
algorithms = ["ERM"]
optimizers = ["adam"]
test_domains = [[0], [5]]
hparams = 2
trials = 1

[overrides]
backbone = "mlp"
steps = 20
checkpoint_every = 10
schedule = "cosine"
warmup = 2
clip = 1.0
label_smoothing = 0.1
class_weights = "balanced"
freeze = 1
early_stop = 3
"""


def run_ids(file: Path) -> list[str]:
    return [job.config.run_id for job in plan(file, RunOptions(out="runs")).jobs]


def test_a_sweep_is_shown_as_it_was_launched_and_gives_the_same_runs(tmp_path: Path) -> None:
    """Training settings under ``[overrides]`` are part of it."""
    file, runs = tmp_path / "changed.toml", tmp_path / "runs"
    file.write_text(SWEEP)
    domains = tuple(f"{15 * k} degrees" for k in range(6))
    for job in plan(file, RunOptions(out=str(runs))).jobs:
        write(runs, Run(job.config, domains, (record(0, [0.5] * 6, [0.5] * 6),)))
    (runs / "sweeps").mkdir()
    for name, text in {"changed.json": "{}", "changed.toml": SWEEP}.items():
        (runs / "sweeps" / name).write_text(text)
    frame = load(runs)
    (sweep,) = page_data(frame).launched
    assert (sweep.title, sweep.commands, sweep.note) == (
        "Sweep changed",
        "genie-dg sweep changed.toml --out runs",
        "",
    )
    assert sweep.files == {"changed.toml": SWEEP}
    again = tmp_path / "again.toml"
    again.write_text(sweep.files["changed.toml"])
    assert sorted(run_ids(again)) == sorted(frame["run"])
    assert html.escape(SWEEP, quote=True).replace("&quot;", "&#34;") in page.report(frame)


def test_the_protocol_of_the_user_is_shown_beside_the_sweep(tmp_path: Path) -> None:
    write(tmp_path, run([0], [record(0, [0.5] * 4, [0.5] * 4)]))
    (tmp_path / "sweeps").mkdir()
    for name in ("mine.json", "mine.toml", "mine.protocol.toml"):
        (tmp_path / "sweeps" / name).write_text(f"# {name}")
    (sweep,) = page_data(load(tmp_path)).launched
    assert list(sweep.files.items()) == [
        ("mine.toml", "# mine.toml"),
        ("mine.protocol.toml", "# mine.protocol.toml"),
    ]


def test_commands_of_the_chosen_runs_by_hand(tmp_path: Path) -> None:
    """As they were typed; of what was not kept one sentence says so."""
    words = ["train", "my pictures", "--set", "lr=0.1", "--trial"]
    for draw, trial in ((0, 0), (1, 0), (0, 1)):
        one = run([0], [record(0, [0.5] * 4, [draw / 2] * 4)], trial, draw, protocol="custom")
        launch = write(tmp_path, one) / "launch.json"
        launch.write_text(json.dumps({"command": ["genie-dg", *words, str(trial)]}))
    write(tmp_path, run([1], [record(0, [0.5] * 4, [0.5] * 4)], protocol="custom"))
    by_hand, lost = page_data(load(tmp_path)).launched
    assert [shlex.split(line) for line in by_hand.commands.splitlines()] == [
        ["genie-dg", *words, "0"],
        ["genie-dg", *words, "1"],
    ]
    assert by_hand.note == "1 of 3 runs are left out."
    assert lost.note == "What launched 1 of these 4 runs was not kept, so it cannot be shown."
