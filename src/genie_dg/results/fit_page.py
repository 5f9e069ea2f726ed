"""The page at the end of ``genie-dg fit``: what was chosen, and what to expect of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from genie_dg.statistics import mean

from . import panels
from .forecast import Contender, Forecast
from .page import Figure, rendered, safe_json


def numbers_of(
    data: str,
    domains: Sequence[str],
    candidates: Sequence[Contender],
    best: Contender,
    expected: Forecast,
    rule: str,
) -> dict[str, Any]:
    """All numbers of the page as plain data, accuracies from 0 to 1."""
    return {
        "data": data,
        "rule": rule,
        "winner": best.name,
        "sentence": sentence(best, expected),
        "training": training_of(best.config),
        "expected": expected.expected,
        "interval": [expected.low, expected.high],
        "level": expected.level,
        "domains": [
            {"name": domains[k], "accuracy": score, "chosen": expected.chosen[k]}
            for k, score in expected.scores.items()
        ],
        "candidates": [
            {
                "name": one.name,
                "score": one.score,
                "validation": mean(one.validation.values()),
                "scores": {domains[k]: score for k, score in one.scores.items()},
                "steps": {domains[k]: run.step for k, run in one.runs.items()},
            }
            for one in candidates
        ],
    }


def sentence(best: Contender, expected: Forecast) -> str:
    """What a person wants to know first."""
    percent = [f"{100 * x:.0f}" for x in (expected.expected, expected.low, expected.high)]
    return (
        f"The winner is {best.name}. On a domain nobody has seen expect about {percent[0]} % right "
        f"({100 * expected.level:.0f} % interval {percent[1]} to {percent[2]} %, from {len(expected.scores)} "
        "domains left out in turn)."
    )


def training_of(config: Any) -> str:
    """How the contenders of a configuration were trained.

    >>> from genie_dg.runs.config import RunConfig
    >>> training_of(RunConfig("digits", (0,), steps=9, batch_size=8))
    'ERM with cnn from random weights, 9 steps of 8 samples from each domain'
    """
    weights = f"pretrained weights at {config.image_size} pixels" if config.pretrained else "random weights"
    return (
        f"{config.algorithm} with {config.backbone} from {weights}, {config.steps} steps of "
        f"{config.batch_size} samples from each domain"
    )


def fit_page(numbers: Mapping[str, Any]) -> str:
    """The page as text."""
    caption = "Candidates, and a new domain"
    return rendered(
        "fit.html.j2",
        {},
        numbers=safe_json(numbers),
        page=numbers,
        figures=[Figure(caption, panels.dots(caption, _dots(numbers), (0, 100), "accuracy (%)"))],
    )


def _dots(numbers: Mapping[str, Any]) -> list[panels.Dot]:
    values = [(one["name"], one["score"], *_ends(one["scores"].values())) for one in numbers["candidates"]]
    values.append(("a new domain", numbers["expected"], *numbers["interval"]))
    rows = [(name, 100 * mean, 100 * low, 100 * high) for name, mean, low, high in values]
    return [
        panels.Dot(place, name, mean, low, high, f"{mean:.1f} ({low:.1f} to {high:.1f})")
        for place, (name, mean, low, high) in enumerate(rows)
    ]


def _ends(values: Iterable[float]) -> tuple[float, float]:
    listed = list(values)
    return min(listed), max(listed)
