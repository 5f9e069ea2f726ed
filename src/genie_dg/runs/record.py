"""What a run leaves: one evaluation of it, a line of ``records.jsonl``, typed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from typing import Any

from genie_dg.check import InputError, number, short, whole_number


@dataclass(frozen=True)
class Record:
    """One evaluation of a run, a line of ``records.jsonl``.

    Args:
        step: after which it was made, from 0.
        epoch: how often the smallest training domain has been seen.
        loss: the mean training loss since the last record.
        validation_loss: the mean loss on the held-back parts of the training domains.
        in_acc, out_acc: by domain, accuracy on the 80 % part and on the held-back 20 %; ``None`` where it was
            not measured, as the 80 % parts of training domains by default, which nothing reads.
        swad: the record is of SWAD's averaged weights.
    """

    step: int
    epoch: float | None
    loss: float | None
    validation_loss: float | None
    in_acc: tuple[float | None, ...]
    out_acc: tuple[float, ...]
    swad: bool = False

    def validation(self, test_domains: Sequence[int]) -> float:
        """The mean accuracy on the held-back parts of the training domains.

        >>> Record(0, 0.0, None, None, (0.0, 0.0), (0.5, 0.75)).validation([1])
        0.5
        """
        return _mean([x for k, x in enumerate(self.out_acc) if k not in test_domains])

    def test(self, test_domains: Sequence[int]) -> float:
        """The mean accuracy on the 80 % parts of the test domains, NaN where one was not measured."""
        return _mean([math.nan if (x := self.in_acc[k]) is None else x for k in test_domains])

    def to_json(self) -> dict[str, Any]:
        """As it stands in the file."""
        values = {**asdict(self), "in_acc": list(self.in_acc), "out_acc": list(self.out_acc)}
        if not self.swad:
            del values["swad"]
        return values


def _mean(values: Sequence[float]) -> float:
    """Added from left to right, as selection adds; Python's own sum rounds in another way since 3.12."""
    return reduce(add, values) / len(values)


def record_from(
    data: Mapping[str, Any], domains: int, finite: bool = True, test_domains: Sequence[int] = ()
) -> Record:
    """A record from a line of JSON; what is not a record of so many domains is refused.

    Args:
        data: the line.
        domains: how many accuracies of each part it must have.
        finite: refuse losses that are infinite or NaN; tables have no use for them, a run that goes on does.
        test_domains: of the run; their accuracies must be there.

    >>> record_from({"step": 5, "in_acc": [0.5, 0.25], "out_acc": [1, 0]}, 2).out_acc
    (1.0, 0.0)
    """
    step = whole_number("step", data.get("step"), 0, 2**53 - 1)
    losses = {
        name: None if data.get(name) is None else _loss(name, data[name], finite)
        for name in ("epoch", "loss", "validation_loss")
    }
    return Record(
        step,
        **losses,
        in_acc=_some_accuracies("in_acc", data.get("in_acc"), domains, test_domains),
        out_acc=_accuracies("out_acc", data.get("out_acc"), domains),
        swad=bool(data.get("swad", False)),
    )


def _loss(name: str, value: Any, finite: bool) -> float:
    if not finite and isinstance(value, float) and not math.isfinite(value):
        return value
    return number(name, value)


def _some_accuracies(name: str, values: Any, domains: int, needed: Sequence[int]) -> tuple[float | None, ...]:
    """Accuracies of which all may be missing but the needed ones."""
    if not isinstance(values, (list, tuple)) or len(values) != domains:
        raise InputError(f"got {name}={short(values)}; expected a list of {domains} accuracies.")
    return tuple(
        None if value is None and k not in needed else number(f"an accuracy in {name}", value, 0, 1)
        for k, value in enumerate(values)
    )


def _accuracies(name: str, values: Any, domains: int) -> tuple[float, ...]:
    return tuple(x for x in _some_accuracies(name, values, domains, range(domains)) if x is not None)
