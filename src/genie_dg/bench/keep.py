"""Which weights a run keeps: of the record with the best validation, of the last one, of all, or none.

The best record is the one that training-domain selection takes: the first with the highest mean accuracy on the
held-back parts of the training domains. Its weights are written when the record is made, before the checkpoint
that counts it; a run that was killed in between makes the same record and the same file again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from genie_dg import __version__
from genie_dg.data.place import is_normalised
from genie_dg.facts import IMAGENET_MEAN, IMAGENET_STD
from genie_dg.runs.folder import MODEL, is_model, model_of
from genie_dg.runs.model_file import ModelFile
from genie_dg.runs.record import Record
from genie_dg.runs.tensors import DamagedFile, intact

from .assemble import Parts


def model_file(parts: Parts, record: Record) -> ModelFile:
    """The weights of a run as they are now, with what must be known to use them."""
    normalised = is_normalised(parts.training.domains[0], parts.channels)
    names = ("config", "classes", "domains", "sources", "channels", "size", "pictures")
    return ModelFile(
        algorithm=parts.algorithm.state_dict(),
        **{name: getattr(parts, name) for name in names},
        mean=IMAGENET_MEAN if normalised else None,
        std=IMAGENET_STD if normalised else None,
        record=record.to_json(),
        table=None if parts.encoding is None else parts.encoding.to_json(),
        versions={"genie_dg": __version__, "torch": str(torch.__version__)},
    )


@dataclass
class Kept:
    """The files of weights of a run that is under way.

    Args:
        parts: of the run.
        folder: of the run.
        keep: one of `genie_dg.bench.options.KEEP`.
        steps: by name of file, the step of the record whose weights it holds.
    """

    parts: Parts
    folder: Path
    keep: str
    steps: dict[str, int] = field(default_factory=dict)

    def add(self, records: Sequence[Record]) -> None:
        """Keep the weights of the last record, where they are to be kept."""
        if self.keep == "all":
            self._write(model_of(records[-1].step), records[-1])
        if self.keep in ("best", "all") and self.is_best(records):
            self._write(MODEL, records[-1])

    def is_best(self, records: Sequence[Record]) -> bool:
        """Whether the last record beats the one that is kept; at a tie the earlier one stays."""
        tested = self.parts.config.test_domains
        before = [record for record in records[:-1] if record.step == self.steps.get(MODEL)]
        return not before or records[-1].validation(tested) > before[0].validation(tested)

    def _write(self, name: str, record: Record) -> None:
        model_file(self.parts, record).save(self.folder / name)
        self.steps[name] = record.step

    def check(self, state: Mapping[str, Any]) -> dict[str, int]:
        """What a checkpoint counts on; a file that is damaged or gone is refused with a `DamagedFile`.

        A file may hold a record from after the checkpoint, which the run will make again.
        """
        names = {"all": list(state["kept"]), "best": [MODEL]}.get(self.keep, [])
        wanted = {name: int(step) for name, step in state["kept"].items() if name in names}
        for name, step in wanted.items():
            path = self.folder / name
            whole = name == MODEL or intact(path)
            here = int(ModelFile.load(path).record.get("step", -1)) if name == MODEL else step
            if not whole or (here != step and here < int(state["step"])):
                raise DamagedFile(f"{path} is damaged, gone or not of step {step}")
        return wanted

    def finish(self, record: Record) -> None:
        """Keep the last record where it is wanted, or where nothing is known of the best one."""
        if self.keep == "last" or (self.keep != "none" and MODEL not in self.steps):
            self._write(MODEL, record)

    def remove_others(self) -> None:
        """Remove files of weights that this run does not count on."""
        for path in self.folder.glob("model*.pt"):
            if is_model(path.name) and path.name not in self.steps:
                path.unlink()
