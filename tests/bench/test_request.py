"""What a person types: names, settings, plugins."""

from __future__ import annotations

from pathlib import Path

import pytest

from genie_dg.bench.request import load_plugin, sort_settings
from genie_dg.check import InputError
from genie_dg.registry import PluginError


def test_settings_find_their_owner() -> None:
    assert sort_settings(["irm_lambda=1e2", "lr=0.1"], "IRM", "genie") == ({"irm_lambda": 100.0}, {"lr": 0.1})
    assert sort_settings(["base=sgd"], "ERM", "sam") == ({}, {"base": "sgd"})
    with pytest.raises(InputError, match=r"DANN and adam both have a setting 'beta1'; write algorithm\.beta1"):
        sort_settings(["beta1=0.5"], "DANN", "adam")
    both = sort_settings(["algorithm.beta1=0.5", "optimizer.beta1=0.8"], "DANN", "adam")
    assert both == ({"beta1": 0.5}, {"beta1": 0.8})
    with pytest.raises(InputError, match=r"Neither ERM nor adam has a setting 'lrr'.*did you mean 'lr'\?"):
        sort_settings(["lrr=1"], "ERM", "adam")
    with pytest.raises(InputError, match="'lr' is not a setting; write it as NAME=VALUE"):
        sort_settings(["lr"], "ERM", "adam")


def test_plugins_from_files(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="is not a file"):
        load_plugin(tmp_path / "none.py")
    (tmp_path / "bad.py").write_text("1 / 0")
    with pytest.raises(PluginError, match=r"cannot be run \(ZeroDivisionError"):
        load_plugin(tmp_path / "bad.py")


def test_settings_are_of_the_kind_that_their_row_wants() -> None:
    words = ["precondition=False", "noise=off", "seed=1e3", "lr=.5", "formulation=released"]
    _, found = sort_settings(words, "ERM", "genie")
    assert found == {"precondition": False, "noise": False, "seed": 1000, "lr": 0.5, "formulation": "released"}
    assert [type(value) for value in found.values()] == [bool, bool, int, float, str]
    with pytest.raises(InputError, match=r"^got genie\.precondition='maybe'; expected true or false\.$"):
        sort_settings(["precondition=maybe"], "ERM", "genie")
    with pytest.raises(InputError, match=r"^got DANN\.mlp_depth='3\.5'; expected a whole number\.$"):
        sort_settings(["mlp_depth=3.5"], "DANN", "adam")
    with pytest.raises(InputError, match=r"^got adam\.lr='nan'; expected a finite number\.$"):
        sort_settings(["lr=nan"], "ERM", "adam")
