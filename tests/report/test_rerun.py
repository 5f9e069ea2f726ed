"""What "Run it again" says gives exactly the runs that it was made from, for every sweep of the corpus."""

from __future__ import annotations

import argparse
import doctest
import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from genie_dg.bench.options import RunOptions, options_from
from genie_dg.bench.sweep import plan, runs_of
from genie_dg.cli import train
from genie_dg.cli.report import typed_run
from genie_dg.data.registry import open_data
from genie_dg.report import rerun
from genie_dg.report.exact import Rules
from genie_dg.report.rerun import Again, again, sweep_text, toml_value, train_command
from genie_dg.results.frame import load
from genie_dg.runs.config import RunConfig, from_mapping
from tests.corpus.replay import unpack

from ..data.pictures import folder as pictures
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
    return sorted(config.run_id for config in configs)


def configs_of(frame: pl.DataFrame) -> list[RunConfig]:
    return [from_mapping(json.loads(text)) for text in frame["config"]]


RULES = Rules(runs_of, typed_run)
LOST = {"own-protocol": 8}
"""Runs that no file gives again: today the oracle's rule of the user's own protocol is part of its runs."""


def lost(listed: Iterable[Again]) -> int:
    """How many runs the page says cannot be made again."""
    told = [one for one in listed if not one.commands]
    assert all(one.note.startswith("The rules have changed since") and not one.files for one in told)
    return sum(int(re.findall(r"(\d+) of \d+ runs cannot be made again", one.title)[0]) for one in told)


@pytest.mark.parametrize("name", SWEEPS)
def test_a_sweep_gives_its_runs_again(name: str, corpus: Path, tmp_path: Path) -> None:
    """The files of a sweep give exactly its runs; those that today's rules cannot give are counted."""
    frame = load(corpus / name, problems=[])
    listed = again(frame, rules=RULES)
    shown = [one for one in listed if one.commands]
    found = [id_ for k, one in enumerate(shown) for id_ in ids(planned(one, tmp_path / str(k)))]
    sweeps = [json.loads(file.read_text())["runs"] for file in sorted((corpus / name / "sweeps").iterdir())]
    known = ids(from_mapping(run) for runs in sweeps for run in runs)
    assert lost(listed) == LOST.get(name, 0)
    assert len(found) == len(set(found)) == len(known) - LOST.get(name, 0)
    assert set(found) <= set(known)


@pytest.mark.parametrize("name", ["domainbed", "both", "swad", "own-protocol", "demo", "genie-paper"])
def test_runs_whose_sweep_is_forgotten_are_given_again(name: str, corpus: Path, tmp_path: Path) -> None:
    frame = load(corpus / name, problems=[])
    remembered = corpus / name / "sweeps"
    hidden = remembered.rename(corpus / f"{name}-hidden")
    try:
        listed = again(frame, rules=RULES)
    finally:
        hidden.rename(remembered)
    shown = [one for one in listed if one.commands]
    found = [id_ for k, one in enumerate(shown) for id_ in ids(planned(one, tmp_path / str(k)))]
    known = ids(configs_of(frame))
    assert set(found) <= set(known)
    assert len(found) == len(set(found)) == len(known) - lost(listed)
    assert (lost(listed) > 0) == (name in LOST)


def test_a_file_that_gives_other_runs_is_not_shown() -> None:
    with frame_of(sweep(("adam",), 1, 1)) as frame:
        listed = again(frame, rules=Rules(lambda files, domains: [], typed_run))
    assert [one.files for one in listed] == [{}]
    assert "cannot be made again" in listed[0].title
    assert listed[0].note.endswith("(other runs).")


def test_a_protocol_that_draws_something_else_is_said() -> None:
    """A protocol that is not changed has no way to say a dropout that it does not draw."""
    runs = sweep(("adam",), 1, 1, dropout=0.25)
    with frame_of(runs) as frame:
        listed = again(frame, rules=RULES)
    assert lost(listed) == len(runs)
    assert "dropout" in listed[0].note


def test_later_fields_are_carried(monkeypatch: pytest.MonkeyPatch) -> None:
    """A field that a run gets later is written where it is not as usual, whatever its name."""
    monkeypatch.setattr(rerun, "OVERRIDES", tuple(key for key in rerun.OVERRIDES if key != "precision"))
    configs = [one.config for one in sweep(("sam",), precision="bfloat16")]
    lines = sweep_text("x", configs, {"PACS": ("a", "b", "c", "d")}, "p").splitlines()
    assert lines.index('precision = "bfloat16"') < 10
    assert "fast = false" in lines


def test_runs_by_hand_have_commands(corpus: Path) -> None:
    frame = load(corpus / "by-hand", problems=[])
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    found = set()
    for one in again(frame, rules=RULES):
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
    assert one.commands.endswith("--trial 1 --exact")
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
    assert "fast = false" in changed
    assert "fast = true" in text(fast=True)
    assert "[overrides]" not in text()
    assert 'test_domains = [["photo"]]' in text(tests=[(2,)])
    assert "[optimizer_settings.sam]" in text(trials=1, draws=1, tests=[(0,)])


def test_an_unknown_protocol_is_named() -> None:
    with frame_of(sweep(("sam",), protocol="mine/changed")) as frame:
        (one,) = again(frame)
    assert one.note.startswith("It follows the protocol mine; where genie-dg list protocols does not show it")
    assert list(one.files) == ["again.toml"]


@pytest.mark.parametrize(
    ("said", "shown"), [("fast = true\n", "fast = true\n"), ("# mine\n", "fast = false\n# mine\n")]
)
def test_the_file_that_a_sweep_remembers_is_shown_with_the_engine_it_meant(said: str, shown: str) -> None:
    runs = sweep(("sam",), 1, 1)
    with frame_of(runs) as frame:
        folder = Path(frame["folder"][0]).parent / "sweeps"
        folder.mkdir()
        listed = [json.loads(text) for text in frame["config"]]
        (folder / "mine.json").write_text(json.dumps({"name": "mine", "runs": listed, "toml": said}))
        (one,) = again(frame)
    assert one.files == {"mine.toml": shown}


@pytest.mark.parametrize("fast", [True, False])
def test_pictures_in_files_are_run_again_by_the_same_engine(fast: bool, tmp_path: Path) -> None:
    data = open_data(str(pictures(tmp_path / "mine", domains=("ink", "oil", "wax"), each=5)))
    config = RunConfig(data.name, (1,), optimizer="sgd", data_digest=data.digest(), fast=fast)
    line = rerun.train_command(config, [domain.name for domain in data.domains])
    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    arguments = parser.parse_args(shlex.split(line)[2:])
    assert train.config_of(arguments, data, options_from(arguments)) == config
    changed = replace(config, protocol="domainbed/changed", backbone="cnn", steps=9)
    runs = [replace(changed, test_domains=(k,)) for k in range(3)]
    text = sweep_text("x", runs, {data.name: [d.name for d in data.domains]}, "domainbed")
    file = tmp_path / "x.toml"
    file.write_text(text.replace('["mine"]', json.dumps([str(tmp_path / "mine")])))
    assert {job.config.fast for job in plan(file, RunOptions()).jobs} == {fast}


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
