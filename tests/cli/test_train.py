"""``genie-dg train`` as a person types it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import polars as pl
import pytest

from genie_dg.bench.options import options_from
from genie_dg.cli import train
from genie_dg.cli.main import build_parser, main
from genie_dg.data.registry import open_data
from genie_dg.results.frame import load
from genie_dg.runs.decode import read_launch
from tests.data.pictures import folder as write_folder


def typed(*words: str) -> int:
    with warnings.catch_warnings():
        return main(words)


TASK = ("train", "digits", "--test-domain", "0", "--backbone", "mlp")
SHORT = (*TASK, "--optimizer", "sgd", "--batch-size", "8")


def test_erm_with_genie_learns_the_rotated_digits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = typed(
        "train", "digits", "--test-domain", "30 degrees", "--backbone", "mlp", "--set", "lr=1",
        "--steps", "201", "--every", "50", "--out", str(tmp_path),
    )  # fmt: skip
    shown = capsys.readouterr().out
    assert code == 0
    chosen = re.search(r"Chosen by validation: step \d+, validation ([\d.]+) %, left out ([\d.]+) %", shown)
    assert chosen is not None
    assert float(chosen[1]) > 85
    assert float(chosen[2]) > 75
    assert re.search(r"30 degrees +left out", shown)


def test_the_same_command_again_reads_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [*SHORT, "--steps", "3", "--out", str(tmp_path)]
    assert typed(*words) == 0
    first = capsys.readouterr().out.splitlines()[-7:]
    assert typed(*words) == 0
    assert capsys.readouterr().out.splitlines()[-7:] == first
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(
    ("words", "network"),
    [
        ("FOLDER", ("efficientnet_lite0", True, 32)),
        ("FOLDER --image-size 40", ("efficientnet_lite0", True, 40)),
        ("FOLDER --backbone cnn", ("cnn", False, 224)),
        ("FOLDER --backbone efficientnet_lite0 --image-size 64", ("efficientnet_lite0", False, 64)),
        ("digits", ("cnn", False, 224)),
    ],
)
def test_pictures_start_from_imagenet_weights_unless_a_network_is_named(
    words: str, network: tuple[str, bool, int], tmp_path: Path
) -> None:
    """The pictures are 52 x 40 pixels."""
    folder = write_folder(tmp_path / "mine", domains=("photo", "scan"), each=6)
    typed_words = words.replace("FOLDER", str(folder)).split()
    arguments = build_parser().parse_args(["train", *typed_words, "--test-domain", "0", "--device", "cpu"])
    config = train.config_of(arguments, open_data(arguments.data), options_from(arguments))
    assert (config.backbone, config.pretrained, config.image_size) == network


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("--test-domain 80", "has no domain '80'"),
        ("--backbone resnet17", "did you mean 'resnet"),
        ("--set lrate=1", "has a setting 'lrate'"),
        ("--steps 0", "got steps=0; expected a whole number of at least 1"),
        ("--device tpu7", "'tpu7' cannot be used here"),
    ],
)
def test_a_wrong_request_is_one_sentence(
    words: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert typed("train", "digits", "--test-domain", "0", *words.split(), "--out", str(tmp_path)) == 2
    shown = capsys.readouterr()
    assert sentence in shown.err
    assert shown.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_training_settings_are_part_of_the_run(tmp_path: Path) -> None:
    words = ("--schedule", "cosine", "--warmup", "2", "--clip", "1", "--label-smoothing", "0.1",
             "--freeze", "1", "--class-weights", "balanced", "--early-stop", "9", "--lr", "0.1")  # fmt: skip
    assert typed(*SHORT, *words, "--steps", "3", "--out", str(tmp_path)) == 0
    (file,) = tmp_path.glob("*/config.json")
    config = json.loads(file.read_text())
    expected = {"schedule": "cosine", "warmup": 2, "clip": 1.0, "label_smoothing": 0.1, "freeze": 1,
                "class_weights": "balanced", "early_stop": 9, "optimizer_settings": {"lr": 0.1}}  # fmt: skip
    assert {name: config[name] for name in expected} == expected
    command = [*SHORT, *words, "--steps", "3", "--out", str(tmp_path)]
    assert list(read_launch(file.parent)) == ["genie-dg", *command]


def test_a_run_that_diverges_is_known_by_its_outcome(tmp_path: Path) -> None:
    words = ["train", "digits", "--test-domain", "0", "--backbone", "mlp", "--optimizer", "sgd", "--lr", "1e30"]
    assert main([*words, "--steps", "6", "--every", "3", "--quiet", "--out", str(tmp_path)]) == 1
    (run,) = load(tmp_path, problems=[]).select("outcome", "reason", "done").iter_rows()
    assert (run[0], run[2]) == ("diverged", False)
    assert run[1].startswith("NotFinite: The loss of step")


def test_lr_is_the_setting_of_that_name(tmp_path: Path) -> None:
    out = ("--steps", "2", "--out", str(tmp_path))
    for words in (["--lr", "0.1"], ["--set", "lr=0.1"], ["--set", "lr=0.2", "--lr", "1e-1"]):
        assert typed(*SHORT, *out, *words) == 0
    assert len(list(tmp_path.iterdir())) == 1


def test_several_trials_end_with_their_mean(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (*SHORT, "--lr", "0.1", "--steps", "21", "--every", "20", "--out", str(tmp_path))
    assert typed(*words, "--trial", "1", "--trials", "2") == 0
    seeds = [json.loads(path.read_text())["trial_seed"] for path in tmp_path.glob("*/config.json")]
    assert sorted(seeds) == [1, 2]
    assert re.search(r"^Mean of 2 trials, .*, left out [\d.]+ \+/- [\d.]+ %\.$", capsys.readouterr().out, re.M)


def test_the_standard_error_is_that_of_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [tmp_path / str(k) for k in range(3)]
    for folder in folders:
        folder.mkdir()
        (folder / "done").touch()
    values = [0.1, 0.2, 0.3]
    monkeypatch.setattr("genie_dg.results.frame.load", lambda *_: None)
    monkeypatch.setattr(
        "genie_dg.results.select.best_records", lambda _: pl.DataFrame({"value": values, "score": values})
    )
    assert train.over_trials(folders) == (
        "Mean of 3 trials, with standard error: validation 20.0 +/- 4.7 %, left out 20.0 +/- 4.7 %."
    )


def test_a_run_that_learned_nothing_or_exploded_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = (*SHORT, "--steps", "41", "--every", "20", "--out", str(tmp_path))
    assert typed(*words, "--lr", "1e-9") == 0
    assert "Nothing was learned: " in capsys.readouterr().out
    assert typed(*words, "--lr", "30", "--clip", "1") == 1
    assert capsys.readouterr().err.startswith("genie-dg: The loss exploded: ")
    assert typed(*words, "--lr", "1e30") == 1
    assert capsys.readouterr().err.startswith("genie-dg: The loss of step ")
    assert typed(*words, "--lr", "0.1") == 0
    learned = capsys.readouterr()
    assert "Nothing was learned" not in learned.out
    assert not learned.err


def test_more_steps_go_on_from_a_finished_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (*SHORT, "--lr", "0.1", "--every", "5", "--out", str(tmp_path))
    assert typed(*words, "--steps", "8") == 0
    capsys.readouterr()
    assert typed(*words, "--steps", "12") == 0
    shown = capsys.readouterr().out
    assert "it goes on from step 6." in shown
    assert re.findall(r"^step +(\d+) ", shown, re.M) == ["10", "11"]


LONG = (*TASK, "--steps", "100000", "--every", "2")


@contextmanager
def forked(out: Path, log: Path) -> Iterator[int]:
    """The command in a process of its own, forked so that it costs no imports; ended at the end."""
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        with log.open("w") as sys.stderr, Path(os.devnull).open("w") as sys.stdout:
            code = main([*LONG, "--out", str(out)])
        os._exit(code)
    try:
        yield pid
    finally:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(pid, 0)


def steps_in(out: Path) -> list[int]:
    lines = [line for file in out.glob("*/records.jsonl") for line in file.read_text().splitlines()]
    return [json.loads(line)["step"] for line in lines]


def wait_for_step(out: Path, step: int) -> None:
    deadline = time.monotonic() + 120
    while max(steps_in(out), default=0) < step:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def exit_code(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_a_run_whose_folder_is_removed_stops_and_does_not_disturb_the_next(tmp_path: Path) -> None:
    out, log, log2 = tmp_path / "runs", tmp_path / "log", tmp_path / "log2"
    with forked(out, log) as first:
        wait_for_step(out, 2)
        os.kill(first, signal.SIGSTOP)
        shutil.rmtree(out)
        with forked(out, log2) as second:
            wait_for_step(out, 6)
            os.kill(first, signal.SIGCONT)
            assert exit_code(first) == 2
            words = r"genie-dg: .* was removed while this process worked there; it stops here, and .*\n"
            assert re.fullmatch(words, log.read_text())
            wait_for_step(out, max(steps_in(out)) + 4)
            os.kill(second, signal.SIGKILL)
            assert exit_code(second) == -signal.SIGKILL
    steps = steps_in(out)
    assert steps == list(range(0, 2 * len(steps), 2)), "the first one's records are not among them"


def test_ctrl_c_is_one_line_and_loses_nothing_and_a_second_process_is_told_who_trains(tmp_path: Path) -> None:
    out, log = tmp_path / "runs", tmp_path / "log"
    with forked(out, log) as first:
        wait_for_step(out, 2)
        with forked(out, tmp_path / "log2") as second:
            assert exit_code(second) == 2
        words = rf"genie-dg: Another process \(process {first} on .*, since .*\) trains .* right now; wait "
        assert re.match(words, (tmp_path / "log2").read_text())
        os.kill(first, signal.SIGINT)
        assert exit_code(first) == 130
    assert log.read_text() == "\ngenie-dg: stopped by Ctrl-C.\n"
    reached = max(steps_in(out))
    with forked(out, log):
        wait_for_step(out, reached + 4)
    steps = steps_in(out)
    assert steps == list(range(0, 2 * len(steps), 2))
