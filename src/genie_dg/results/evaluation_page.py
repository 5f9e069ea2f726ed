"""One page about an evaluation of a model: accuracies, confusion, calibration and the surest mistakes.

The numbers are those of ``genie-dg evaluate --json``, taken as plain data; nothing is computed from pictures
here. The page is one file that opens offline, as the report of runs.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from . import panels
from .page import Figure, rendered, safe_json
from .render import percent

_NAMED = 40
"""The most classes whose names stand beside the confusion matrix, and whose accuracies by domain are shown."""


@dataclass(frozen=True)
class Mistake:
    """A wrong answer: the picture as JPEG, what it is, what it was taken for and how surely."""

    jpeg: bytes
    where: str
    label: str
    predicted: str
    confidence: float

    @property
    def source(self) -> str:
        return f"data:image/jpeg;base64,{base64.b64encode(self.jpeg).decode('ascii')}"


def evaluation_page(numbers: Mapping[str, Any], about: str, mistakes: Sequence[Mistake] = ()) -> str:
    """The page as text.

    Args:
        numbers: of an evaluation, as its ``to_json`` gives them.
        about: what the model is, a line for each fact.
        mistakes: the surest first.
    """
    return rendered(
        "evaluation.html.j2",
        {"percent": percent},
        numbers=safe_json(numbers),
        page=numbers,
        about=about.splitlines(),
        mistakes=mistakes,
        figures=[_reliability(numbers)],
        confused=_most_confused(numbers),
        by_class=len(numbers["classes"]) <= _NAMED,
    )


def _reliability(numbers: Mapping[str, Any]) -> Figure:
    bins = [(b["low"], b["high"], b["count"], b["accuracy"]) for b in numbers["reliability"] if b["count"]]
    drawn = panels.reliability_figure(bins)
    return Figure("Reliability: accuracy against confidence; on the line the two agree", drawn)


def _most_confused(numbers: Mapping[str, Any], most: int = 10) -> list[tuple[str, str, int, float]]:
    """Pairs of classes that are taken for each other most often: label, taken for, pictures, share."""
    names = [one["name"] for one in numbers["classes"]]
    pairs = [
        (names[i], names[k], count, count / sum(row))
        for i, row in enumerate(numbers["confusion"])
        for k, count in enumerate(row)
        if i != k and count
    ]
    return sorted(pairs, key=lambda pair: (-pair[2], -pair[3], pair[:2]))[:most]
