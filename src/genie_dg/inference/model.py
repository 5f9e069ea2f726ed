"""A trained model: pictures in, names of classes and probabilities out.

`load_model` builds the network and its algorithm as `bench.assemble` does, without downloading weights, and
loads what a run kept. On a CPU the logits are those of the training side to the bit, for the same pictures in
the same batches; another batch size or number of threads may change the last bits, because matrix products then
add in another order. MTL and ARM adapt to the batch that they predict by design.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Generic, TypeVar

import torch
from PIL import Image
from torch import Tensor, nn

from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.bench.assemble import EVALUATION_BATCH
from genie_dg.bench.build import build_algorithm
from genie_dg.check import whole_number
from genie_dg.data.domains import DataError
from genie_dg.data.encoding import encoding_from
from genie_dg.data.place import Scale, shared_workers
from genie_dg.files import FileError
from genie_dg.runs.model_file import ModelFile
from genie_dg.runs.record import Record

from ._file import read_model_file
from .best import chosen_file
from .pictures import Picture, sample_of

_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Prediction:
    """What a model says about one picture: classes with their probabilities, the likeliest first."""

    classes: tuple[str, ...]
    probabilities: tuple[float, ...]

    @property
    def label(self) -> str:
        """The likeliest class.

        >>> Prediction(("cat", "dog"), (0.75, 0.25)).label
        'cat'
        """
        return self.classes[0]

    @property
    def probability(self) -> float:
        """Of the likeliest class."""
        return self.probabilities[0]

    def top(self, count: int) -> list[tuple[str, float]]:
        """The ``count`` likeliest classes with their probabilities."""
        return list(zip(self.classes, self.probabilities, strict=True))[:count]


@dataclass(frozen=True)
class AnsweredBatch(Generic[_Item]):
    """Items whose pictures could be read, their logits ``[n, classes]``, and a sentence for each other item."""

    items: list[_Item]
    logits: Tensor
    problems: list[tuple[_Item, str]]


class Logits(nn.Module):
    """Normalised images ``[n, channels, size, size]`` to logits ``[n, classes]``: what is exported."""

    def __init__(self, algorithm: Algorithm) -> None:
        super().__init__()
        self.algorithm = algorithm

    def forward(self, images: Tensor) -> Tensor:
        return self.algorithm.predict(images)


class Model:
    """A trained model.

    Args:
        stored: the contents of a model file.
        path: where they come from, for messages.
        device: where it computes.

    Attributes:
        module: images as `preprocess` makes them, in a batch, to logits.
        classes: names, in the order of the logits.
        record: the evaluation of these weights during training.
        config: of the run.
        encoding: of a model of a table, how rows become inputs; ``None`` for one of pictures.
    """

    def __init__(self, stored: ModelFile, path: Path, device: torch.device | str = "cpu") -> None:
        self.stored, self.path, self.device = stored, path, torch.device(device)
        self.classes, self.config = stored.classes, stored.config
        self.record: Record = stored.evaluation()
        self.encoding = None if stored.table is None else encoding_from(stored.table)
        algorithm = _built(stored, path).to(self.device)
        if self.config.fast:
            algorithm.to(memory_format=torch.channels_last)
        self.layout = torch.channels_last if self.config.fast else torch.contiguous_format
        self.module = Logits(algorithm).eval()

    def preprocess(self, picture: Picture) -> Tensor:
        """One picture as the network sees it: ``[channels, size, size]``, normalised."""
        return self.normalised(self.sample(picture)[None])[0]

    def normalised(self, samples: Tensor) -> Tensor:
        """A batch of samples as the network sees it."""
        return Scale(self.stored.mean is not None)(samples.clone())

    def sample(self, picture: Picture) -> Tensor:
        """One picture before it is normalised."""
        return sample_of(picture, self.stored.channels, self.stored.size, self.stored.pictures)

    @torch.no_grad()
    def logits(self, images: Tensor) -> Tensor:
        """Logits of a batch of normalised images, on the CPU."""
        logits: Tensor = self.module(images.to(self.device).contiguous(memory_format=self.layout))
        return logits.cpu()

    def batches(
        self, items: Iterable[_Item], read: Callable[[_Item], Picture], batch_size: int = EVALUATION_BATCH
    ) -> Iterator[AnsweredBatch[_Item]]:
        """Logits of pictures that are read as they are needed, batch by batch.

        A picture that cannot be read takes no place in a batch; its sentence is in ``problems`` instead.

        Args:
            items: anything that stands for a picture.
            read: from an item to its picture; called by several threads.
            batch_size: pictures in a batch; only the last one may have fewer.
        """
        whole_number("batch_size", batch_size)
        workers, waiting = shared_workers(), iter(items)

        def sample(item: _Item) -> tuple[_Item, Tensor | DataError]:
            try:
                return item, self.sample(read(item))
            except DataError as problem:
                return item, problem

        good: list[tuple[_Item, Tensor]] = []
        problems: list[tuple[_Item, str]] = []
        while some := list(islice(waiting, batch_size - len(good))):
            for item, result in workers.map(sample, some):
                if isinstance(result, DataError):
                    problems.append((item, str(result)))
                else:
                    good.append((item, result))
            if len(good) == batch_size:
                yield self._batch(good, problems)
                good, problems = [], []
        if good or problems:
            yield self._batch(good, problems)

    def _batch(
        self, good: list[tuple[_Item, Tensor]], problems: list[tuple[_Item, str]]
    ) -> AnsweredBatch[_Item]:
        logits = torch.empty(0, len(self.classes))
        if good:
            logits = self.logits(self.normalised(torch.stack([sample for _, sample in good])))
        return AnsweredBatch([item for item, _ in good], logits, problems)

    def probabilities(self, pictures: Iterable[Picture], batch_size: int = EVALUATION_BATCH) -> Tensor:
        """The probability of each class for each picture, ``[n, classes]``; a broken picture is refused."""
        return torch.softmax(self._all_logits(pictures, batch_size), 1)

    def predict(self, pictures: Iterable[Picture], batch_size: int = EVALUATION_BATCH) -> list[Prediction]:
        """Names of classes with probabilities for each picture, in order; a broken picture is refused.

        Args:
            pictures: paths, Pillow images, uint8 arrays ``[height, width(, channels)]`` or tensors ``[channels,
                height, width]``; a single one may be given without a list.
            batch_size: how many are computed together.
        """
        return self.ranked(self._all_logits(pictures, batch_size))

    def ranked(self, logits: Tensor) -> list[Prediction]:
        """Logits as predictions; of equal classes the first one leads, as in ``argmax``."""
        order = torch.argsort(logits, dim=1, descending=True, stable=True)
        rows = zip(order.tolist(), torch.softmax(logits, 1).gather(1, order).tolist(), strict=True)
        return [Prediction(tuple(self.classes[k] for k in row), tuple(values)) for row, values in rows]

    def _all_logits(self, pictures: Iterable[Picture], batch_size: int) -> Tensor:
        if isinstance(pictures, (str, Path, Image.Image)):
            pictures = [pictures]
        parts = []
        for batch in self.batches(pictures, lambda picture: picture, batch_size):
            if batch.problems:
                raise DataError(batch.problems[0][1])
            parts.append(batch.logits)
        return torch.cat(parts) if parts else torch.empty(0, len(self.classes))

    def describe(self) -> str:
        """What the model is, where it was trained and how right it was, in a few lines."""
        config, stored, record, names = self.config, self.stored, self.record, self.stored.domains
        weights = f"run {config.run_id}, {'averaged weights' if stored.averaged else f'step {record.step}'}"
        form = "RGB pictures" if stored.pictures else f"tensors of {stored.channels} channels"
        seen = f"{form} of {stored.size} x {stored.size} pixels"
        if self.encoding is not None:
            columns = len(self.encoding.numbers), len(self.encoding.words)
            seen = f"rows of a table, {columns[0]} columns of numbers and {columns[1]} of text"
        validated = f"validation {100 * record.validation(config.test_domains):.1f} %"
        left_out = ", ".join(names[k] for k in config.test_domains)
        tested = f", left out {100 * record.test(config.test_domains):.1f} %" if left_out else ""
        shown = ", ".join(self.classes[:12]) + (", ..." if len(self.classes) > 12 else "")
        sources = ", ".join(names[k] for k in stored.sources)
        return (
            f"{config.algorithm} with {config.optimizer}, {config.backbone}; {weights}\n"
            f"{config.dataset}: trained on {sources}; left out {left_out or 'none'}\n"
            f"{len(self.classes)} classes: {shown}\nsees {seen}\n{validated}{tested}"
        )


def _built(stored: ModelFile, path: Path) -> Algorithm:
    """The algorithm with its stored weights; published weights are neither needed nor asked for."""
    config = stored.config
    frozen = config.pretrained if config.freeze_statistics is None else config.freeze_statistics
    plain = replace(config, pretrained=False, weights_digest="", freeze_statistics=frozen)
    algorithm = build_algorithm(plain, len(stored.classes), (stored.channels, stored.size), len(stored.sources))
    try:
        algorithm.load_state_dict(dict(stored.algorithm))
    except RuntimeError as error:
        raise FileError(
            f"The weights of {path} do not fit {config.algorithm} on {config.backbone} "
            f"({str(error).splitlines()[-1].strip().rstrip('.')}); use the version of genie-dg that wrote them."
        ) from error
    return algorithm


def load_model(path: str | Path, device: torch.device | str = "cpu") -> Model:
    """A trained model, ready to predict.

    Args:
        path: a model file (``model.pt``, ``swad.pt``, ``*.safetensors``); the folder of a run, of which the
            record that training-domain selection chooses is taken; or a folder of runs that all compete for one
            cell of a table, of which the selected one is taken.
        device: where it computes. On a CPU, predictions equal the evaluation during training to the bit.
    """
    path = Path(path)
    file = chosen_file(path) if path.is_dir() else path
    return Model(read_model_file(file), file, device)
