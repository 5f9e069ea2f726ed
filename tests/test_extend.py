"""The five examples of the guide to extending: short, and trained with from the command line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import genie_dg.plugins
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.bench.trackers.tracker import TRACKERS
from genie_dg.cli.main import main
from genie_dg.data.registry import SETS
from genie_dg.models.backbones import BACKBONES
from genie_dg.optim.registry import OPTIMIZERS

ROOT = Path(__file__).parent.parent
BLOCKS = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "extend.md").read_text(), flags=re.S)
TRAINED_WITH = {
    "Focal": ["digits", "--test-domain", "5", "--algorithm", "Focal", "--set", "gamma=1"],
    "SignSGD": ["digits", "--test-domain", "5", "--optimizer", "signsgd", "--set", "lr=0.002"],
    "open_stripes": ["stripes", "--test-domain", "faint", "--optimizer", "adam", "--set", "lr=1e-3"],
    "Lines": ["digits", "--test-domain", "5", "--backbone", "mlp", "--set", "lr=1", "--track", "lines"],
    "build": ["digits", "--test-domain", "5", "--backbone", "two-convs", "--set", "lr=1"],
}


def block_with(word: str) -> str:
    return next(block for block in BLOCKS if re.search(rf"^(class|def) {word}\b", block, flags=re.M))


def test_there_are_five_and_they_are_short() -> None:
    assert len(BLOCKS) == len(TRAINED_WITH)
    for word in TRAINED_WITH:
        assert len(block_with(word).strip().splitlines()) < 30, word


@pytest.fixture
def registries_as_before() -> Iterator[None]:
    """What a plugin registers is gone after the test."""
    registries = (ALGORITHMS, BACKBONES, OPTIMIZERS, SETS, TRACKERS)
    before = [dict(registry._rows) for registry in registries]
    yield
    for registry, rows in zip(registries, before, strict=True):
        registry._rows = rows  # type: ignore[assignment]


@pytest.mark.parametrize("word", list(TRAINED_WITH))
@pytest.mark.usefixtures("registries_as_before")
def test_it_trains_from_the_command_line(word: str, tmp_path: Path) -> None:
    plugin = tmp_path / "own.py"
    plugin.write_text(block_with(word))
    words = ["train", *TRAINED_WITH[word], "--plugin", str(plugin)]
    words += ["--steps", "20", "--every", "19", "--batch-size", "8", "--out", str(tmp_path / "runs")]
    assert main(words) == 0
    (folder,) = (tmp_path / "runs").iterdir()
    first, last = (json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines())
    assert last["loss"] < first["loss"]
    assert (folder / "done").exists()
    if word == "Lines":
        lines = (folder / "curves.csv").read_text().splitlines()
        assert lines[0] == f"loss,0,{first['loss']}"
        assert len({line.rpartition(",")[0] for line in lines}) == len(lines) == 2 * 10


def test_everything_that_is_offered_is_there() -> None:
    for name in genie_dg.plugins.__all__:
        assert getattr(genie_dg.plugins, name) is not None
    with pytest.raises(AttributeError, match="it offers ALGORITHMS"):
        genie_dg.plugins.nothing  # noqa: B018
