"""The examples in docstrings."""

from __future__ import annotations

import doctest
import importlib

import pytest

MODULES = ("build", "checkpoint", "diwa", "evaluate", "fit", "parallel", "schedule", "step", "tracking")


@pytest.mark.parametrize("name", [*MODULES, "trackers.mlflow", "trackers.tensorboard"])
def test_docstring_examples(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"genie_dg.bench.{name}"))
    assert tried > 0
    assert failed == 0
