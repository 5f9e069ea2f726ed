"""From rows of a table to inputs of a network, by what the training rows say and nothing else.

A number x becomes ``(x - mean) / std``, with the mean and the deviation (population) of the rows that train; a
missing number becomes the mean, so 0, and a column that does not vary in the training rows becomes 0
everywhere. A category becomes one input for each level that the training rows have, 1 for its own and 0 for the
others; a level that they do not have, and a missing one, is 0 everywhere. The test domain and the held-back
rows are never looked at. A model keeps its encoding, so that it can be given a table of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from .domains import DataError, Domain, DomainSet, Labels, TableColumns, TableDomain, TensorDomain
from .splits import DomainSplit

_MOST_INPUTS = 2**16
"""Inputs of a network at most; a column of names or numbers of persons taken for categories soon has more."""


@dataclass(frozen=True)
class Encoding:
    """How the rows of a table become inputs.

    Args:
        numbers, mean, std: names of the columns of numbers, and what each is standardised with; ``std`` is 0
            for a column that does not vary.
        words, levels: names of the columns of categories, and the levels that each has an input for.
        domain, label: the columns that say domain and class.
    """

    numbers: tuple[str, ...]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    words: tuple[str, ...]
    levels: tuple[tuple[str, ...], ...]
    domain: str
    label: str

    def __post_init__(self) -> None:
        if not len(self.numbers) == len(self.mean) == len(self.std) or len(self.words) != len(self.levels):
            raise ValueError("its lists differ in length")

    @property
    def width(self) -> int:
        """The inputs of the network."""
        return len(self.numbers) + sum(map(len, self.levels))

    @property
    def columns(self) -> TableColumns:
        """The same columns as a table has them."""
        return TableColumns(self.numbers, self.words, self.levels, self.domain, self.label)

    def inputs(self, table: TableDomain) -> Tensor:
        """What the network sees of a table: float32 ``[n, width, 1, 1]``; its columns are found by name."""
        parts = [self._numbers(table)]
        for name, levels in zip(self.words, self.levels, strict=True):
            at = table.columns.words.index(name)
            numbers = {level: k for k, level in enumerate(levels)}
            place = np.array([numbers.get(level, -1) for level in table.columns.levels[at]] + [-1])
            parts.append(place[table.words[:, at]][:, None] == np.arange(len(levels)))
        joined = np.concatenate([part.astype(np.float64) for part in parts], axis=1)
        return torch.from_numpy(joined.astype(np.float32))[:, :, None, None]

    def _numbers(self, table: TableDomain) -> np.ndarray[Any, Any]:
        at = [table.columns.numbers.index(name) for name in self.numbers]
        std = np.array(self.std)
        scaled = (table.numbers[:, at] - np.array(self.mean)) / np.where(std > 0, std, 1.0)
        filled: np.ndarray[Any, Any] = np.where(np.isnan(scaled) | (std == 0), 0.0, scaled)
        return filled

    def to_json(self) -> dict[str, Any]:
        """As a model file keeps it."""
        return asdict(self)


def encoding_from(data: Mapping[str, Any]) -> Encoding:
    """The encoding that `Encoding.to_json` wrote."""
    try:
        return msgspec.convert(data, Encoding)
    except msgspec.ValidationError as error:
        raise DataError(
            f"The model does not say how a table becomes its inputs ({error}); train it again."
        ) from error


def fit_encoding(tables: Iterable[TableDomain], rows: Iterable[Labels]) -> Encoding:
    """The encoding that some rows of some domains give, all rows together.

    Args:
        tables: the training domains.
        rows: of each, the positions that train.
    """
    pairs = list(zip(tables, rows, strict=True))
    columns = pairs[0][0].columns
    numbers = np.concatenate([table.numbers[some] for table, some in pairs])
    words = np.concatenate([table.words[some] for table, some in pairs])
    there = ~np.isnan(numbers)
    count = np.maximum(there.sum(0), 1)
    mean = np.where(there, numbers, 0.0).sum(0) / count
    std = np.sqrt((np.where(there, numbers - mean, 0.0) ** 2).sum(0) / count)
    varies = np.array([len(np.unique(column[~np.isnan(column)])) > 1 for column in numbers.T], dtype=bool)
    levels = tuple(
        tuple(every[k] for k in np.unique(words[:, at]) if k >= 0) for at, every in enumerate(columns.levels)
    )
    encoding = Encoding(
        columns.numbers,
        tuple(mean.tolist()),
        tuple(np.where(varies, std, 0.0).tolist()),
        columns.words,
        levels,
        columns.domain,
        columns.label,
    )
    if not 0 < encoding.width <= _MOST_INPUTS:
        raise DataError(
            f"The table gives {encoding.width:,} inputs; expected 1 to {_MOST_INPUTS:,}, so leave columns of "
            "names out with --ignore-column NAME."
        )
    return encoding


def encoded(
    data: DomainSet, sources: Sequence[int], parts: Sequence[DomainSplit]
) -> tuple[DomainSet, Encoding | None]:
    """A table as tensors, by what its training rows say; any other set as it is.

    Args:
        data: the set.
        sources: the domains that train.
        parts: the split of every domain.
    """
    if not data.is_table:
        return data, None
    tables = [domain for domain in data.domains if isinstance(domain, TableDomain)]
    encoding = fit_encoding([tables[k] for k in sources], [parts[k].inside for k in sources])
    domains: tuple[Domain, ...] = tuple(
        TensorDomain(table.name, encoding.inputs(table), table.labels, as_is=True) for table in tables
    )
    return DomainSet(data.name, data.classes, domains, data.variant), encoding
