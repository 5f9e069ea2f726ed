"""``genie-dg export`` as a person types it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import genie_dg
from genie_dg.cli.main import main
from tests.inference.conftest import PictureRun


def test_export_says_by_how_much_it_differs(
    picture_run: PictureRun, mixed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = mixed.parent / "m.safetensors"
    words = ["export", str(picture_run.folder), "--to", "safetensors", "--out", str(out)]
    assert main([*words, "--pictures", str(mixed / "a.jpg"), str(mixed / "b.png")]) == 0
    assert "difference of a logit from the original is 0, on 2 pictures." in capsys.readouterr().out
    assert torch.equal(
        genie_dg.load_model(out).probabilities([mixed / "a.jpg"]),
        genie_dg.load_model(picture_run.folder).probabilities([mixed / "a.jpg"]),
    )
    assert main(["export", str(picture_run.folder), "--to", "torchscript"]) == 0
    (made,) = picture_run.folder.glob("*.torchscript.pt")
    assert str(made) in capsys.readouterr().out
    made.unlink()
