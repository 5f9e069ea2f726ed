"""The table of engines and their flags."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from genie_dg.bench.engines.engine import EngineOptions
from genie_dg.bench.engines.here import HereEngine
from genie_dg.bench.engines.registry import ENGINES, EngineRow, add_engine_flags, build_engine, engine_flags
from genie_dg.check import InputError
from genie_dg.registry import UnknownName


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_engine_flags(parser)
    return parser.parse_args(words)


def test_an_engine_gets_the_flags_that_were_given() -> None:
    words = parsed("--gpus", "2", "--slurm", "mem=8G", "--slurm", "exclusive", "--array-parallelism", "3")
    expected: dict[str, Any] = {"gpus": 2.0, "array-parallelism": 3, "slurm": ["mem=8G", "exclusive"]}
    assert engine_flags(words, "slurm") == expected
    assert engine_flags(parsed(), "local") == {}


@pytest.mark.parametrize(
    ("words", "engine", "message"),
    [
        (
            ["--partition", "gpu"],
            "ray",
            "--partition is for --engine slurm; give that with it, or leave it out",
        ),
        (["--address", "h:1"], "local", "--address is for --engine ray;"),
    ],
)
def test_a_flag_of_another_engine_is_refused(words: list[str], engine: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        engine_flags(parsed(*words), engine)


def test_a_row_adds_an_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ENGINES, "_rows", dict(ENGINES._rows))
    ENGINES.register(EngineRow("mine", "genie_dg.bench.engines.here:HereEngine"))
    assert isinstance(build_engine("mine", EngineOptions()), HereEngine)
    with pytest.raises(UnknownName, match="There is no engine 'cloud'; the choice is local, ray, slurm, here"):
        build_engine("cloud", EngineOptions())
