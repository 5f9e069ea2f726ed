"""Which domains are tested on: the named tasks, lists of domains, and what is refused."""

from __future__ import annotations

import pytest

from genie_dg.check import InputError
from genie_dg.data.published.catalog import PUBLISHED
from genie_dg.protocols.tasks import domain_index, tasks_of

PACS = PUBLISHED["PACS"].domains


def test_the_named_tasks() -> None:
    ones, twos = tasks_of("leave-one-out", "PACS", PACS), tasks_of("leave-two-out", "PACS", PACS)
    assert ones == [(0,), (1,), (2,), (3,)]
    assert twos == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert tasks_of("both", "PACS", PACS) == ones + twos
    assert len(tasks_of("both", "DomainNet", PUBLISHED["DomainNet"].domains)) == 21


def test_lists_of_domains_are_sorted_and_each_counts_once() -> None:
    asked = [["sketch", 0], [3, "Art_Painting"], ["photo", "photo"]]
    assert tasks_of(asked, "PACS", PACS) == [(0, 3), (2,)]


def test_a_name_wins_over_a_number() -> None:
    assert [domain_index("angles", ["1", "0", "2"], one) for one in ("0", 0, "2")] == [1, 0, 2]
    for one in (3, -1, "3", "x"):
        with pytest.raises(
            InputError, match=rf"^angles has no domain {one!r}; its domains are 0 \(1\), 1 \(0\)"
        ):
            domain_index("angles", ["1", "0", "2"], one)


@pytest.mark.parametrize(
    ("task", "fewest"), [("leave-one-out", 2), ("single-source", 2), ("both", 3), ("leave-two-out", 3)]
)
def test_a_task_needs_domains_to_train_on(task: str, fewest: int) -> None:
    with pytest.raises(InputError, match=f"needs {fewest} domains or more, and few has {fewest - 1}; choose"):
        tasks_of(task, "few", ["a", "b"][: fewest - 1])
    assert tasks_of(task, "enough", ["a", "b", "c"][:fewest])


def test_one_domain_is_left_to_train_on() -> None:
    with pytest.raises(InputError, match=r"names all domains of two \(a, b\); leave one to train on\.$"):
        tasks_of([["a", 1]], "two", ["a", "b"])
