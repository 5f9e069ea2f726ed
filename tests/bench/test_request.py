"""What a person types: domains, settings, configurations, identities."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from genie_dg.bench.request import domain_index, load_plugin, sort_settings
from genie_dg.check import InputError
from genie_dg.data.registry import open_data
from genie_dg.registry import PluginError
from genie_dg.runs.record import RunConfig, canonical, from_mapping


def test_domains_by_name_and_index() -> None:
    shapes = open_data("styleshapes")
    assert domain_index(shapes, "sketch") == 3
    assert domain_index(shapes, "Sketch") == 3
    assert domain_index(shapes, "2") == 2
    with pytest.raises(
        InputError, match=r"no domain 'sketsch'; its domains are 0 \(art\).*did you mean 'sketch'\?"
    ):
        domain_index(shapes, "sketsch")
    with pytest.raises(InputError, match="no domain '4'"):
        domain_index(shapes, "4")


def test_settings_find_their_owner() -> None:
    assert sort_settings(["irm_lambda=1e2", "lr=0.1"], "IRM", "genie") == ({"irm_lambda": 100.0}, {"lr": 0.1})
    assert sort_settings(["base=sgd"], "ERM", "sam") == ({}, {"base": "sgd"})
    with pytest.raises(InputError, match=r"DANN and adam both have a setting 'beta1'; write algorithm\.beta1"):
        sort_settings(["beta1=0.5"], "DANN", "adam")
    both = sort_settings(["algorithm.beta1=0.5", "optimizer.beta1=0.8"], "DANN", "adam")
    assert both == ({"beta1": 0.5}, {"beta1": 0.8})
    with pytest.raises(InputError, match=r"Neither ERM nor adam has a setting 'lrr'.*did you mean 'lr'\?"):
        sort_settings(["lrr=1"], "ERM", "adam")
    with pytest.raises(InputError, match="'lr' is no setting; write it as NAME=VALUE"):
        sort_settings(["lr"], "ERM", "adam")


def test_plugins_from_files(tmp_path: Path) -> None:
    with pytest.raises(PluginError, match="is no file"):
        load_plugin(tmp_path / "none.py")
    (tmp_path / "bad.py").write_text("1 / 0")
    with pytest.raises(PluginError, match=r"cannot be run \(ZeroDivisionError"):
        load_plugin(tmp_path / "bad.py")


def test_a_run_is_named_by_its_science() -> None:
    config = RunConfig("digits", (0,), optimizer_settings={"lr": 0.1, "beta": 0.9})
    same = RunConfig("digits", (0,), optimizer_settings={"beta": 0.9, "lr": 0.1})
    assert config.run_id == same.run_id
    assert len(config.run_id) == 16
    ids = {config.run_id}
    for change in (
        {"dataset": "PACS"},
        {"test_domains": (1,)},
        {"steps": 7},
        {"swad": True},
        {"protocol": "x"},
    ):
        ids.add(replace(config, **change).run_id)  # type: ignore[arg-type]
    assert len(ids) == 6
    assert from_mapping(json.loads(canonical(config))) == config
    with pytest.raises(InputError, match="A run has no 'optimiser'; its keys are"):
        from_mapping({"dataset": "digits", "test_domains": [0], "optimiser": "adam"})
