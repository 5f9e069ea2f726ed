"""What the documents show is run: docstring examples and the README's code."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["genie_dg.optim.genie", "genie_dg._moments"])
def test_docstring_examples(name: str) -> None:
    module = importlib.import_module(name)
    failed, tried = doctest.testmod(module, extraglobs={"torch": torch})
    assert tried > 0
    assert failed == 0


def test_readme_code_runs() -> None:
    """Every python block, in order, in one namespace with a model and a loss."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.S)
    assert blocks
    model = torch.nn.Linear(4, 2)
    before = model.weight.detach().clone()
    space = {"model": model, "loss": model(torch.randn(3, 4)).square().mean()}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), space)
    assert not torch.equal(model.weight, before)


def test_readme_starts_with_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    first = text.index("make demo")
    assert first < text.index("make test") < 900


@pytest.mark.parametrize("file", ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md"])
def test_relative_links_lead_somewhere(file: str) -> None:
    here = ROOT / file
    for target in re.findall(r"\]\(([^)#]+)\)", here.read_text()):
        if "://" not in target:
            assert (here.parent / target).exists(), target
