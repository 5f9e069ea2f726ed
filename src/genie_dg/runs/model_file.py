"""A file of weights that is complete by itself: the network can be built, fed and named from it alone.

``model.pt``, ``model-<step>.pt`` and ``swad.pt`` hold the fields of `ModelFile` as plain numbers, text, lists
and tensors, so ``torch.load(file, weights_only=True)`` reads them, here and elsewhere. No time stands in them:
the same training writes the same bytes, whether it was stopped on its way or not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .config import RunConfig, from_mapping
from .record import Record, record_from
from .tensors import DamagedFile, load_tensors, save_tensors

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class ModelFile:
    """Weights, and all that must be known to use them.

    Args:
        algorithm: ``state_dict`` of the algorithm, the network in it.
        config: of the run.
        classes: names, in the order of the outputs.
        domains: names of all domains, in order.
        sources: indices of the domains that were trained on.
        channels, size: of what the network sees; height and width are the same.
        pictures: files were decoded to RGB and resized to ``size`` by ``size``, bilinear; otherwise samples are
            tensors in memory.
        mean, std: what the channels, from 0 to 1, were normalised with; ``None`` for no normalisation.
        record: the evaluation of these weights, as in ``records.jsonl``; empty in files of before.
        averaged: the weights are a mean (SWAD, DiWA).
        versions: of this package and of torch.
        table: how rows of a table become inputs (`genie_dg.data.encoding.Encoding`); ``None`` for pictures.
    """

    algorithm: Mapping[str, Tensor] = field(repr=False)
    config: RunConfig
    classes: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    sources: tuple[int, ...] = ()
    channels: int = 0
    size: int = 0
    pictures: bool = False
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    record: Mapping[str, Any] = field(default_factory=dict)
    averaged: bool = False
    versions: Mapping[str, str] = field(default_factory=dict)
    table: Mapping[str, Any] | None = None

    @property
    def complete(self) -> bool:
        """Whether the file says how the network is fed; one from before version 1 of the format does not."""
        return bool(self.classes)

    def save(self, path: Path) -> None:
        """Write the file whole."""
        import torch

        weights = {
            name: tensor.detach().to("cpu", copy=True).contiguous()
            if isinstance(tensor, torch.Tensor)
            else tensor
            for name, tensor in self.algorithm.items()
        }
        facts = self.facts()
        save_tensors(path, _uniform({"algorithm": weights, "config": facts.pop("config"), **facts}))

    def facts(self) -> dict[str, Any]:
        """All but the weights, as plain data with the names of the file."""
        known = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "algorithm"}
        if self.table is None:  # files of pictures stay as they were before there were tables
            del known["table"]
        # a worker has its settings from sorted text, a run in the process of the sweep as they were drawn
        config = json.loads(json.dumps(asdict(self.config), sort_keys=True))
        plain: dict[str, Any] = _plain({**known, "config": config})
        return plain

    def evaluation(self) -> Record:
        """The evaluation of these weights."""
        return record_from(dict(self.record), len(self.domains))

    @classmethod
    def load(cls, path: Path) -> ModelFile:
        """Read a file; one that is damaged or holds something else is refused with a `DamagedFile`."""
        return cls.from_state(path, load_tensors(path))

    @classmethod
    def from_state(cls, path: Path, contents: Mapping[str, Any]) -> ModelFile:
        """The same from what was read; ``path`` is for messages."""
        state = dict(contents)
        try:
            config = from_mapping(state.pop("config"))
            lists = ("classes", "domains", "sources", "mean", "std")
            values: dict[str, Any] = {
                k: tuple(x) if k in lists and x is not None else x for k, x in state.items()
            }
            if not isinstance(values.get("algorithm"), Mapping):
                raise ValueError("it has no weights")
            return cls(config=config, **values)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedFile(f"{path} is not a file of weights of a run ({error})") from error


def _plain(data: Any) -> Any:
    """Tuples become lists, subclasses of text become text."""
    return json.loads(json.dumps(data))


def _uniform(data: Any) -> Any:
    """The same data in which equal texts are one object, and no list or mapping is used twice.

    A pickle says "the same as before" where it meets an object again, so its bytes would depend on how the data
    came to be.
    """
    if isinstance(data, str):
        return sys.intern(str(data))
    if isinstance(data, dict):
        return {_uniform(key): _uniform(value) for key, value in data.items()}
    return [_uniform(value) for value in data] if isinstance(data, list) else data
