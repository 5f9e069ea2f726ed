"""``genie-dg list``: the registries on the screen."""

from __future__ import annotations

import pytest

from genie_dg.cli.main import main


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("algorithms", ["ERM", "SagNet", "irm_lambda 100"]),
        ("backbones", ["efficientnet_lite0", "timm/NAME"]),
        ("", ["ERM", "genie", "resnet50", "digits"]),
    ],
)
def test_the_registries_are_listed(kind: str, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", *([kind] if kind else [])]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in names)


def test_an_unknown_kind_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "optimizer"]) == 2
    assert "did you mean 'optimizers'?" in capsys.readouterr().err
