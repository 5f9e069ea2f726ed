"""One evaluation of a run, a line of ``records.jsonl``, typed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec

from genie_dg.check import InputError
from genie_dg.statistics import mean

Accuracy = Annotated[float, msgspec.Meta(ge=0, le=1)]


class Record(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One evaluation of a run.

    Args:
        step: after which it was made, from 0.
        epoch: how often the smallest training domain has been seen.
        loss: the mean training loss since the last record.
        validation_loss: the mean loss on the held-back parts of the training domains.
        in_acc, out_acc: by domain, accuracy on the 80 % part and on the held-back 20 %; ``None`` where it was
            not measured, as the 80 % parts of training domains by default, which nothing reads.
        swad: the record is of SWAD's averaged weights.
    """

    step: Annotated[int, msgspec.Meta(ge=0, lt=2**53)]
    epoch: float | None
    loss: float | None
    validation_loss: float | None
    in_acc: tuple[Accuracy | None, ...]
    out_acc: tuple[Accuracy, ...]
    swad: bool = False

    def validation(self, test_domains: Sequence[int]) -> float:
        """The mean accuracy on the held-back parts of the training domains.

        >>> Record(0, 0.0, None, None, (0.0, 0.0), (0.5, 0.75)).validation([1])
        0.5
        """
        return mean(x for k, x in enumerate(self.out_acc) if k not in test_domains)

    def test(self, test_domains: Sequence[int]) -> float:
        """The mean accuracy on the 80 % parts of the test domains, NaN where one was not measured."""
        return mean(math.nan if (x := self.in_acc[k]) is None else x for k in test_domains)

    def to_json(self) -> dict[str, Any]:
        """As it stands in the file."""
        values: dict[str, Any] = msgspec.to_builtins(self)
        return values | {"in_acc": list(self.in_acc), "out_acc": list(self.out_acc)}


decode_record = msgspec.json.Decoder(Record).decode
"""A record from a line of JSON; what is none is a ``msgspec.DecodeError``. JSON has no infinite loss."""


def record_from(data: Any, domains: int) -> Record:
    """A record from plain data; what is not a record of so many domains is refused.

    A loss may be infinite or NaN: a run goes on with it.

    >>> losses = dict.fromkeys(("epoch", "loss", "validation_loss"))
    >>> record_from({"step": 5, **losses, "in_acc": [0.5, 0.25], "out_acc": [1, 0]}, 2).out_acc
    (1.0, 0.0)
    """
    try:
        record = msgspec.convert(data, Record)
    except msgspec.ValidationError as error:
        raise InputError(f"{error}.") from error
    for name, values in (("in_acc", record.in_acc), ("out_acc", record.out_acc)):
        if len(values) != domains:
            raise InputError(f"got {len(values)} accuracies in {name}; expected {domains}, one a domain.")
    return record
