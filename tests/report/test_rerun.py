"""What "Run it again" says gives exactly the runs that it was made from, for every sweep of the corpus."""

from __future__ import annotations

import argparse
import doctest
import json
import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from genie_dg.bench.options import RunOptions, options_from
from genie_dg.bench.sweep import plan
from genie_dg.cli import train
from genie_dg.data.registry import open_data
from genie_dg.report import rerun
from genie_dg.report.rerun import Again, again, sweep_text, toml_value, train_command
from genie_dg.results.frame import load
from genie_dg.runs.record import RunConfig, from_mapping
from tests.corpus.replay import unpack

from .page_runs import frame_of, run, sweep

SWEEPS = (
    "domainbed",
    "genie-paper",
    "single-source",
    "both",
    "pairs",
    "swad",
    "watched",
    "demo",
    "own-protocol",
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("corpus")
    unpack(root)
    return root


def planned(one: Again, folder: Path) -> list[RunConfig]:
    """The runs that the files stand for."""
    folder.mkdir()
    for name, text in one.files.items():
        (folder / name).write_text(text)
    *_, file, _, _ = shlex.split(one.commands)
    return [job.config for job in plan(folder / file, RunOptions()).jobs]


def ids(configs: Iterable[RunConfig]) -> list[str]:
    """Identities without what protocols have come to say since.

    That is: the oracle's rule, which sets are small, and that these have no dropout.
    """
    return sorted(_as_then(config).run_id for config in configs)


def _as_then(config: RunConfig) -> RunConfig:
    config = replace(config, oracle="", dropout=0.0)
    if config.dataset != "ColouredDigits":
        return config
    settings = {**config.optimizer_settings, "weight_decay": 0.0}
    return replace(config, batch_size=1, optimizer_settings=settings)


def configs_of(frame: pl.DataFrame) -> list[RunConfig]:
    return [from_mapping(json.loads(text)) for text in frame["config"]]


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_gives_its_runs_again(name: str, corpus: Path, tmp_path: Path) -> None:
    frame = load(corpus / name, problems=[])
    listed = again(frame)
    assert listed
    found: set[str] = set()
    for k, one in enumerate(listed):
        new = ids(planned(one, tmp_path / str(k)))
        file = corpus / name / "sweeps" / f"{one.title.removeprefix('Sweep ')}.json"
        assert new == ids(map(from_mapping, json.loads(file.read_text())["runs"]))
        found |= set(new)
    assert found >= set(ids(configs_of(frame)))


@pytest.mark.parametrize("name", ["domainbed", "both", "swad", "own-protocol", "demo", "genie-paper"])
def test_runs_whose_sweep_is_forgotten_are_given_again(name: str, corpus: Path, tmp_path: Path) -> None:
    frame = load(corpus / name, problems=[])
    remembered = corpus / name / "sweeps"
    hidden = remembered.rename(corpus / f"{name}-hidden")
    try:
        listed = again(frame)
    finally:
        hidden.rename(remembered)
    found = [id_ for k, one in enumerate(listed) for id_ in ids(planned(one, tmp_path / str(k)))]
    assert sorted(found) == ids(configs_of(frame))


def test_runs_by_hand_have_commands(corpus: Path) -> None:
    frame = load(corpus / "by-hand", problems=[])
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    found = set()
    for one in again(frame):
        for line in one.commands.splitlines():
            program, verb, *words = shlex.split(line)
            assert (program, verb) == ("genie-dg", "train")
            arguments = parser.parse_args(words)
            found.add(train.config_of(arguments, open_data(arguments.data), options_from(arguments)).run_id)
    assert found == set(frame["run"])


def test_the_chosen_runs_by_hand_are_shown() -> None:
    runs = [run([1], [], trial, optimizer="sam", protocol="custom") for trial in range(3)]
    with frame_of(runs) as frame:
        (all_,), (one,) = again(frame), again(frame, [runs[1].config.run_id])
    assert len(all_.commands.splitlines()) == 3
    assert one.commands.startswith("genie-dg train PACS --test-domain cartoon --algorithm ERM --optimizer sam")
    assert one.commands.endswith("--trial 1")
    assert one.note == "2 of 3 runs, not chosen, are left out."


def test_weights_of_a_file_are_asked_for() -> None:
    with frame_of([run([1], [], protocol="custom", pretrained=True, weights_digest="abc")]) as frame:
        (one,) = again(frame)
    assert "--weights FILE" in one.commands
    assert "--pretrained" not in one.commands
    assert one.note == "For FILE name your file of weights."


def test_a_sweep_file_says_what_changed() -> None:
    domains = {"PACS": ("art_painting", "cartoon", "photo", "sketch")}

    def text(**more: object) -> list[str]:
        return sweep_text("x", [one.config for one in sweep(("sam",), **more)], domains, "p.toml").splitlines()

    changed = text(
        protocol="p/changed", precision="bfloat16", dropout=0.5, freeze_statistics=True, image_size=64
    )
    for line in (
        *('protocol = "p.toml"', 'test_domains = "leave-one-out"', "hparams = [0, 1]", "[overrides]"),
        *('precision = "bfloat16"', "dropout = 0.5", "freeze_statistics = true", "image_size = 64"),
    ):
        assert line in changed
    assert not {"swad = false", "augment = true"} & set(changed)
    assert "[overrides]" not in text()
    assert 'test_domains = [["photo"]]' in text(tests=[(2,)])
    assert "[optimizer_settings.sam]" in text(trials=1, draws=1, tests=[(0,)])


def test_an_unknown_protocol_is_named() -> None:
    with frame_of(sweep(("sam",), protocol="mine/changed")) as frame:
        (one,) = again(frame)
    assert one.note.startswith("It follows the protocol mine; where genie-dg list protocols does not show it")
    assert list(one.files) == ["again.toml"]


def test_the_file_that_a_sweep_remembers_is_shown_as_it_is(tmp_path: Path) -> None:
    runs = sweep(("sam",), 1, 1)
    with frame_of(runs) as frame:
        folder = Path(frame["folder"][0]).parent / "sweeps"
        folder.mkdir()
        listed = [json.loads(text) for text in frame["config"]]
        (folder / "mine.json").write_text(json.dumps({"name": "mine", "runs": listed, "toml": "# mine\n"}))
        (one,) = again(frame)
    assert one.files == {"mine.toml": "# mine\n"}


def test_values_are_toml() -> None:
    assert toml_value('a "b"') == '"a \\"b\\""'
    assert toml_value([[1, 2.5e-7], [True]]) == "[[1, 2.5e-07], [true]]"
    failed, tried = doctest.testmod(rerun)
    assert (failed, tried > 1) == (0, True)


def test_the_threads_of_runs_are_carried_over() -> None:
    config = RunConfig("digits", (1,), backbone="mlp", optimizer="sam", threads=2)
    assert " --threads 2" in train_command(config, ("0 degrees", "15 degrees"))
    assert "--threads" not in train_command(replace(config, threads=1), ("0 degrees", "15 degrees"))
    with frame_of([*sweep(("sam",), 2, 1, threads=2), *sweep(("sam",), 1, 1)]) as frame:
        listed = again(frame)
    texts = sorted(text for one in listed for text in one.files.values())
    assert sorted("threads = 2" in text for text in texts) == [False, True], "two kinds of runs, two sweeps"
