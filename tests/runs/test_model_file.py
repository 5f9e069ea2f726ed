"""A file of weights is complete by itself, plain to torch, and the same bytes for the same contents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from genie_dg.runs.config import RunConfig
from genie_dg.runs.model_file import ModelFile
from genie_dg.runs.record import Record
from genie_dg.runs.tensors import DamagedFile, save_tensors

RECORD = Record(3, 0.5, float("nan"), 0.25, (None, 0.25), (1.0, 0.5))
MODEL = ModelFile(
    algorithm={"network.weight": torch.arange(6.0).reshape(2, 3), "n": torch.tensor(3)},
    config=RunConfig("digits", (1,), optimizer_settings={"lr": 0.1, "beta": 0.9}),
    classes=("a", "b"),
    domains=("x", "y"),
    sources=(0,),
    channels=3,
    size=32,
    pictures=True,
    mean=(0.5, 0.25, 0.125),
    std=(1.0, 2.0, 3.0),
    record=RECORD.to_json(),
    averaged=True,
    versions={"genie_dg": "1", "torch": "2"},
)


def test_a_model_comes_back(tmp_path: Path) -> None:
    MODEL.save(tmp_path / "model.pt")
    back = ModelFile.load(tmp_path / "model.pt")
    assert back.complete
    assert all(torch.equal(back.algorithm[name], x) for name, x in MODEL.algorithm.items())
    assert replace(back, algorithm={}, record={}) == replace(MODEL, algorithm={}, record={})
    assert repr(back.record) == repr(MODEL.record)  # NaN is not equal to itself


def test_torch_alone_reads_plain_types(tmp_path: Path) -> None:
    MODEL.save(tmp_path / "model.pt")
    state = torch.load(tmp_path / "model.pt", weights_only=True)
    assert type(state["algorithm"]) is dict
    assert state["config"]["test_domains"] == [1]
    assert state["classes"] == ["a", "b"]
    assert state["mean"] == [0.5, 0.25, 0.125]
    assert list(state) == [
        *("algorithm", "config", "classes", "domains", "sources", "channels", "size", "pictures"),
        *("mean", "std", "record", "averaged", "versions"),
    ]


def test_the_same_contents_are_the_same_bytes(tmp_path: Path) -> None:
    """However texts, lists, settings and tensors came to be: shared, copied, in another order or layout."""
    MODEL.save(tmp_path / "a.pt")
    wide = torch.arange(12.0).reshape(2, 6)
    name = "".join(["net", "work.weight"])
    other = replace(
        ModelFile.load(tmp_path / "a.pt"),
        config=replace(MODEL.config, optimizer_settings={"beta": 0.9, "lr": 0.1}),
        algorithm={name: wide[:, :3], "n": torch.tensor([3, 4])[0]},
        classes=tuple("ab"),
        domains=("".join("x"), "y"),
    )
    wide[:, :3] = MODEL.algorithm["network.weight"]
    other.save(tmp_path / "b.pt")
    replace(other, algorithm={k: x.clone().t().contiguous().t() for k, x in other.algorithm.items()}).save(
        tmp_path / "c.pt"
    )
    first, second, third = ((tmp_path / f"{letter}.pt").read_bytes() for letter in "abc")
    assert first == second == third


def test_files_of_before_are_read_and_others_refused(tmp_path: Path) -> None:
    from dataclasses import asdict

    torch.save({"algorithm": {"w": torch.zeros(1)}, "config": asdict(MODEL.config)}, tmp_path / "old.pt")
    old = ModelFile.load(tmp_path / "old.pt")
    assert not old.complete
    assert old.config == MODEL.config
    for k, state in enumerate(({"algorithm": {}}, {"config": {}}, {"config": {"x": 1}}, {"step": 3})):
        save_tensors(tmp_path / f"{k}.pt", state)
        with pytest.raises(DamagedFile, match=rf"{k}.pt is not a file of weights of a run \("):
            ModelFile.load(tmp_path / f"{k}.pt")
