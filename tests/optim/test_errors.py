"""Bad input gets one whole sentence and changes nothing."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn

from genie_dg import GENIE
from genie_dg.optim.msvag import MSVAG

SENTENCES: dict[str, tuple[dict[str, Any], type[Exception], str]] = {
    "negative lr": ({"lr": -1.0}, ValueError, "lr=-1.0"),
    "NaN lr": ({"lr": float("nan")}, ValueError, "lr=nan"),
    "infinite lr": ({"lr": float("inf")}, ValueError, "lr=inf; expected a number of at least 0"),
    "negative noise_std": ({"noise_std": -1.0}, ValueError, "noise_std=-1.0"),
    "lr of two elements": ({"lr": torch.ones(2)}, ValueError, "2 elements"),
    "lr as a word": ({"lr": "0.1"}, TypeError, "expected a number"),
    "beta of one": ({"beta": 1.0}, ValueError, "beta=1.0; expected .* at least 0 and below 1"),
    "dropout of one": ({"dropout": 1.0}, ValueError, "dropout=1.0; expected .* at least 0 and below 1"),
    "negative decay": ({"weight_decay": -0.1}, ValueError, "weight_decay"),
    "formulation misspelt": ({"formulation": "release"}, ValueError, "did you mean 'released'"),
    "two paths": ({"foreach": True, "fused": True}, ValueError, "at most one"),
    "seed with a fraction": ({"seed": 0.5}, TypeError, "whole number"),
    "noise as a word": ({"noise": "False"}, TypeError, "noise='False'; expected true or false"),
    "noise as a number": ({"noise": 0}, TypeError, "noise=0; expected true or false"),
    "no preconditioning as None": ({"precondition": None}, ValueError, "precondition=None; expected true or"),
    "decoupled as a number": ({"decoupled_weight_decay": 1.0}, TypeError, "decoupled_weight_decay=1.0"),
    "ascent as a word": ({"maximize": "no"}, TypeError, "maximize='no'"),
    "capturable as a tensor": ({"capturable": torch.tensor(True)}, TypeError, "capturable=tensor"),
    "foreach as a word": ({"foreach": "auto"}, TypeError, "foreach='auto'; expected true or false"),
    "fused as a number": ({"fused": 1}, TypeError, "fused=1; expected true or false"),
    "beta as a word": ({"beta": "0.9"}, TypeError, "beta='0.9'; expected a number"),
    "dropout as a boolean": ({"dropout": False}, TypeError, "dropout=False; expected a number"),
}


@pytest.mark.parametrize("case", SENTENCES)
def test_options(case: str) -> None:
    options, kind, words = SENTENCES[case]
    with pytest.raises(kind, match=words) as caught:
        GENIE([nn.Parameter(torch.zeros(2))], **options)
    text = str(caught.value)
    assert text.startswith("got ")
    assert text.endswith((".", "?"))


def test_a_bad_group_is_not_added() -> None:
    optimizer = GENIE([nn.Parameter(torch.zeros(2))])
    with pytest.raises(ValueError, match="dropout"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))], "dropout": 2.0})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("other", [torch.optim.Adam, torch.optim.SGD, torch.optim.RMSprop, MSVAG])
def test_the_state_of_another_optimizer(other: type[torch.optim.Optimizer]) -> None:
    """Adam's moments have the names of GENIE's and another decay, and its lr is for another step."""
    p = nn.Parameter(torch.ones(3))
    p.grad = torch.ones(3)
    theirs, ours = other([p], lr=1e-3), GENIE([p])
    theirs.step()
    ours.step()
    before = deepcopy(ours.state_dict())
    with pytest.raises(ValueError, match=r"state of another optimizer.* build GENIE anew"):
        ours.load_state_dict(theirs.state_dict())
    after = ours.state_dict()
    assert after["param_groups"] == before["param_groups"]
    assert all(torch.equal(after["state"][0][name], x) for name, x in before["state"][0].items())


def test_complex_integer_and_sparse() -> None:
    with pytest.raises(ValueError, match="view_as_real"):
        GENIE([nn.Parameter(torch.zeros(2, dtype=torch.complex64))])
    with pytest.raises(ValueError, match="floating-point"):
        GENIE([torch.zeros(2, dtype=torch.int64)])
    table = nn.Embedding(5, 3, sparse=True)
    optimizer = GENIE(table.parameters())
    table(torch.tensor([1])).sum().backward()
    with pytest.raises(RuntimeError, match="dense gradients"):
        optimizer.step()
    assert not optimizer.state
