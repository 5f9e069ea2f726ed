"""``genie_dg.load_model``: from a path to a model."""

from __future__ import annotations

from pathlib import Path

import torch

from ._file import read_model_file
from .best import choose
from .model import Model


def load_model(path: str | Path, device: torch.device | str = "cpu") -> Model:
    """A trained model, ready to predict.

    Args:
        path: a model file (``model.pt``, ``swad.pt``, ``*.safetensors``); the folder of a run, of which the
            record that training-domain selection chooses is taken; or a folder of runs that all compete for one
            cell of a table, of which the selected one is taken.
        device: where it computes. On a CPU, predictions equal the evaluation during training to the bit.
    """
    path = Path(path)
    file = choose(path) if path.is_dir() else path
    return Model(read_model_file(file), file, device)
