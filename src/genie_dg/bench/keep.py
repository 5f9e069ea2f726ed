"""Which weights a run keeps: of the record with the best validation, of the last one, of all, or none.

The best record is the one that training-domain selection takes: the first with the highest mean accuracy on the
held-back parts of the training domains. Its weights are written when the record is made, before the checkpoint
that counts it; a run that was killed in between makes the same record and the same file again.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from genie_dg import __version__
from genie_dg.data.place import is_normalised
from genie_dg.facts import IMAGENET_MEAN, IMAGENET_STD
from genie_dg.files import FileWarning
from genie_dg.runs import folder as files
from genie_dg.runs.config import RunConfig
from genie_dg.runs.model_file import ModelFile
from genie_dg.runs.record import Record
from genie_dg.runs.tensors import DamagedFile, intact

from .assemble import Parts


def model_file(
    parts: Parts,
    record: Record,
    weights: Mapping[str, Tensor] | None = None,
    config: RunConfig | None = None,
    averaged: bool = False,
) -> ModelFile:
    """The weights of a run, or others of the same network, with what must be known to use them."""
    table = None if parts.encoding is None else parts.encoding.to_json()
    normalised = is_normalised(parts.training.domains[0], parts.channels)
    return ModelFile(
        algorithm=parts.algorithm.state_dict() if weights is None else weights,
        config=parts.config if config is None else config,
        classes=parts.classes,
        domains=parts.domains,
        sources=parts.sources,
        channels=parts.channels,
        size=parts.size,
        pictures=parts.pictures,
        mean=tuple(IMAGENET_MEAN) if normalised else None,
        std=tuple(IMAGENET_STD) if normalised else None,
        record=record.to_json(),
        averaged=averaged,
        table=table,
        versions={"genie_dg": __version__, "torch": str(torch.__version__)},
    )


@dataclass
class Kept:
    """The files of weights of a run that is under way.

    Args:
        keep: one of `genie_dg.bench.options.KEEP`.
        steps: by name of file, the step of the record whose weights it holds.
    """

    keep: str
    steps: dict[str, int] = field(default_factory=dict)

    def add(self, parts: Parts, folder: Path, records: Sequence[Record]) -> None:
        """Keep the weights of the last record, where they are to be kept."""
        if self.keep == "all":
            self.write(files.model_of(records[-1].step), parts, folder, records[-1])
        if self.keep in ("best", "all") and self._is_best(parts, records):
            self.write(files.MODEL, parts, folder, records[-1])

    def _is_best(self, parts: Parts, records: Sequence[Record]) -> bool:
        """Whether the last record beats the one that is kept; at a tie the earlier one stays."""
        tested = parts.config.test_domains
        before = [record for record in records[:-1] if record.step == self.steps.get(files.MODEL)]
        return not before or records[-1].validation(tested) > before[0].validation(tested)

    def write(self, name: str, parts: Parts, folder: Path, record: Record) -> None:
        """Write the present weights under a name."""
        model_file(parts, record).save(folder / name)
        self.steps[name] = record.step

    def resume(self, folder: Path, state: Mapping[str, Any]) -> dict[str, int]:
        """What a checkpoint counts on; a file that is damaged or gone is refused with a `DamagedFile`.

        A file may hold a record from after the checkpoint, which the run will make again.
        """
        wanted = {
            name: int(step)
            for name, step in dict(state.get("kept", {})).items()
            if self.keep == "all" or (self.keep == "best" and name == files.MODEL)
        }
        for name, step in wanted.items():
            if name != files.MODEL and not intact(folder / name):
                raise DamagedFile(f"{folder / name} is damaged or gone")
            if name == files.MODEL:
                found = int(ModelFile.load(folder / name).record.get("step", -1))
                if found != step and found < int(state["step"]):
                    raise DamagedFile(f"{folder / name} holds step {found}, not step {step}")
        return wanted

    def finish(self, parts: Parts, folder: Path, record: Record) -> None:
        """Keep the last record where it is wanted, or where nothing is known of the best one."""
        if self.keep in ("best", "all") and files.MODEL not in self.steps:
            warnings.warn(
                f"{folder} was begun without keeping the best weights; {files.MODEL} holds those of the last "
                "record.",
                FileWarning,
                stacklevel=2,
            )
        if self.keep == "last" or (self.keep != "none" and files.MODEL not in self.steps):
            self.write(files.MODEL, parts, folder, record)

    def remove_others(self, folder: Path) -> None:
        """Remove files of weights that this run does not count on."""
        for path in folder.glob("model*.pt"):
            if files.is_model(path.name) and path.name not in self.steps:
                path.unlink()
