"""The command line as a user meets it: exit codes, sentences, and the demo from end to end."""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from importlib.metadata import entry_points

import pytest
import torch

from genie_dg import __version__
from genie_dg.cli import _demo_runs, _demo_table, demo, env
from genie_dg.cli._demo_runs import Outcome
from genie_dg.cli.main import VERBS, main
from genie_dg.data.digits import ANGLES, Domain, rotated_digits


def call(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``genie-dg`` in a process of its own."""
    command = [sys.executable, "-m", "genie_dg.cli.main", *words]
    surroundings = {**os.environ, "PYTHONIOENCODING": "utf-8", **variables}
    return subprocess.run(
        command, capture_output=True, text=True, encoding="utf-8", timeout=300, env=surroundings, check=False
    )


def one_sentence(text: str) -> bool:
    return text.startswith("genie-dg: ") and text.count("\n") == 1 and text.rstrip()[-1] in ".?"


def test_the_script_is_installed() -> None:
    (script,) = entry_points(group="console_scripts", name="genie-dg")
    assert script.value == "genie_dg.cli.main:main"


def test_version() -> None:
    done = call("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"genie-dg {__version__}\n", "")


def test_help_lists_every_verb(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    for verb in VERBS:
        assert re.search(rf"^\s+{verb}\s", printed, re.MULTILINE)


def test_env_names_what_matters() -> None:
    done = call("env")
    assert done.returncode == 0
    assert done.stderr == ""
    lines = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in done.stdout.splitlines())
    assert lines["genie-dg"] == __version__
    assert lines["torch"] == torch.__version__
    assert lines["devices"].startswith("cpu")
    assert int(lines["threads"]) >= 1
    assert "C++ compiler" in lines


def test_env_looks_for_the_compiler_named_by_cxx(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert env.find_compiler() is None
    monkeypatch.setenv("CXX", sys.executable)
    assert env.find_compiler() == sys.executable


def test_unknown_verb_names_the_verbs_and_the_nearest() -> None:
    done = call("dmeo")
    assert done.returncode == 2
    assert done.stdout == ""
    assert one_sentence(done.stderr)
    assert "'dmeo'" in done.stderr
    assert "did you mean 'demo'?" in done.stderr
    assert "demo, env" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "No verb was given"),
        (["quite-different"], "demo, env"),
        (["env", "--loud"], "--loud"),
        (["demo", "--steps", "0"], "at least 1"),
        (["demo", "--seeds", "two"], "'two'"),
        (["demo", "--held-out", "7"], "0, 15, 30, 45, 60, 75"),
        (["demo", "--held-out", ","], "The list of angles is empty"),
        (["demo", "--optimizers", "sgd,genei"], "did you mean 'genie'?"),
    ],
)
def test_user_errors_are_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert one_sentence(printed.err)
    assert said in printed.err


def test_interrupt_is_one_line_and_130(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(env, "run", interrupted)
    assert main(["env"]) == 130
    assert capsys.readouterr().err.strip() == "genie-dg: stopped by Ctrl-C."


@pytest.mark.parametrize(("module", "package"), [("sklearn", "scikit-learn"), ("rich", "rich")])
def test_a_missing_package_names_its_extra(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    assert main(["demo"]) == 2
    printed = capsys.readouterr().err
    assert one_sentence(printed)
    assert package in printed
    assert 'pip install "genie-dg[bench]"' in printed


def test_demo_runs_and_prints_the_three_optimizers() -> None:
    done = call("demo", "--steps", "5", "--seeds", "1", "--held-out", "0", PYTHONWARNINGS="error")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for label in ("SGD", "Adam", "GENIE"):
        assert re.search(rf"^\s*{label}\s+\d+\.\d\s+\d+\.\d\s+\d+\.\d\d\s*$", done.stdout, re.MULTILINE)
    assert "one seed" in done.stdout
    assert re.search(r"trust [\d.e-]+, live [\d.e-]+, top_1_percent [\d.e-]+", done.stdout)


def test_demo_takes_a_choice_of_optimizers(capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    assert main(["demo", "--steps", "2", "--seeds", "2", "--held-out", "15,60", "--optimizers", "adam"]) == 0
    printed = capsys.readouterr().out
    assert "SGD" not in printed
    assert "gauges" not in printed
    assert re.search(r"15°\s+60°\s+average\s+ms/step", printed)
    assert printed.count("±") == 4  # the title, two angles, the average
    assert torch.get_num_threads() == threads


def test_a_run_is_repeatable_and_leaves_the_global_generator_alone() -> None:
    data = _demo_runs.split(rotated_digits(), 30, 1)
    before = torch.get_rng_state()
    for recipe in _demo_runs.RECIPES.values():
        with _demo_runs.one_thread():
            first, second = (_demo_runs.train(data, recipe, recipe.rates[1], 30, 1, 20) for _ in range(2))
        assert first._replace(step_ms=0.0) == second._replace(step_ms=0.0)
    assert torch.equal(torch.get_rng_state(), before)


def numbered_domains() -> list[Domain]:
    """Six domains whose images are their own numbers, so that each can be told from every other."""
    numbers = torch.arange(1797)
    return [
        Domain(angle, source.float().reshape(-1, 1, 1, 1), source % 10, source)
        for angle, source in zip(ANGLES, numbers.tensor_split(6), strict=True)
    ]


def test_split_keeps_the_held_out_domain_and_the_validation_data_apart() -> None:
    domains = numbered_domains()
    data = _demo_runs.split(domains, 45, 0)
    assert torch.equal(data.held_out[0], domains[3].images)
    for (images, _), domain in zip(data.training, domains[:3] + domains[4:], strict=True):
        assert set(images.flatten().tolist()) < set(domain.source.tolist())
    assert len(data.validation[1]) == 300
    pairs = [*data.training, data.validation, data.held_out]
    numbers = torch.cat([images.flatten() for images, _ in pairs]).long()
    assert torch.equal(numbers.sort().values, torch.arange(1797))  # each image once, in one part
    assert torch.equal(numbers % 10, torch.cat([labels for _, labels in pairs]))


def test_batches_pass_over_every_image_before_repeating_one() -> None:
    order = _demo_runs.batch_order(40, 10, torch.Generator().manual_seed(0)).flatten()
    assert sorted(order[:40].tolist()) == list(range(40))
    assert sorted(order[40:].tolist()) == list(range(40))


def outcome(validation: float, held_out: float) -> Outcome:
    return Outcome(validation, held_out, 1.0, {})


def test_selection_looks_at_validation_only() -> None:
    candidates = {
        0.1: [outcome(80, 99), outcome(90, 99)],
        0.2: [outcome(86, 10), outcome(86, 20)],
        0.3: [outcome(86, 50), outcome(86, 60)],
    }
    chosen = _demo_table.select(candidates)
    assert chosen.rate == 0.2
    assert [run.held_out for run in chosen.runs] == [10, 20]


def test_table_cells_by_hand() -> None:
    by_angle = {
        0.0: _demo_table.Chosen(0.1, [outcome(0, 70), outcome(0, 80)]),
        75.0: _demo_table.Chosen(0.1, [outcome(0, 90), outcome(0, 92)]),
    }
    assert _demo_table.row("X", by_angle) == ["X", "75.0±5.0", "91.0±1.0", "83.0±3.0", "1.00"]


def test_the_defaults_are_in_the_tables() -> None:
    parser = argparse.ArgumentParser()
    demo.add_arguments(parser)
    chosen = parser.parse_args([])
    assert demo.pick("optimizer", chosen.optimizers, _demo_runs.RECIPES) == list(_demo_runs.RECIPES)
    assert len({len(recipe.rates) for recipe in _demo_runs.RECIPES.values()}) == 1
