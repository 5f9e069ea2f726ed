"""Which domains of a data set are trained on and which are tested on, for every run of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from genie_dg.check import InputError, did_you_mean

TASKS = ("leave-one-out", "leave-two-out", "both", "single-source")
"""Which domains are tested on; "both" has one and two left out, as leave-one-domain-out selection needs."""


def tasks_of(
    asked: str | Sequence[Sequence[str | int]], dataset: str, domains: Sequence[str]
) -> list[tuple[int, ...]]:
    """The sets of test domains of a data set, by index.

    >>> tasks_of("both", "three", ["a", "b", "c"])
    [(0,), (1,), (2,), (0, 1), (0, 2), (1, 2)]
    >>> tasks_of("single-source", "three", ["a", "b", "c"])
    [(1, 2), (0, 2), (0, 1)]
    >>> tasks_of([["c", 0], ["B"]], "three", ["a", "b", "c"])
    [(0, 2), (1,)]
    """
    every = range(len(domains))
    if not isinstance(asked, str):
        named = [tuple(sorted({domain_index(dataset, domains, one) for one in some})) for some in asked]
        for some in named:
            if len(some) == len(domains):
                raise InputError(
                    f"test_domains names all domains of {dataset} ({', '.join(domains)}); "
                    "leave one to train on."
                )
        return list(dict.fromkeys(named))
    fewest = 3 if asked in ("leave-two-out", "both") else 2
    if len(domains) < fewest:
        raise InputError(
            f"test_domains = {asked!r} needs {fewest} domains or more, and {dataset} has {len(domains)}; "
            "choose another task or another data set."
        )
    if asked == "single-source":
        return [tuple(k for k in every if k != source) for source in every]
    sizes = {"leave-one-out": (1,), "leave-two-out": (2,), "both": (1, 2)}[asked]
    return [some for size in sizes for some in combinations(every, size)]


def domain_index(dataset: str, domains: Sequence[str], one: str | int) -> int:
    """The index of a domain that is named, or counted from 0.

    A name wins over a number, so that a domain called "3" can be asked for.

    >>> domain_index("three", ["a", "b", "c"], "B"), domain_index("three", ["a", "b", "c"], "2")
    (1, 2)
    """
    lower = [name.lower() for name in domains]
    if isinstance(one, str) and one in domains:
        return list(domains).index(one)
    if isinstance(one, str) and one.lower() in lower:
        return lower.index(one.lower())
    if str(one).isdecimal() and int(one) < len(domains):
        return int(one)
    listed = ", ".join(f"{k} ({name})" for k, name in enumerate(domains))
    hint = did_you_mean(str(one), domains)
    raise InputError(f"{dataset} has no domain {one!r}; its domains are {listed}{hint}")
