"""The six sets of Spawrious, against a list of DomainBed's combinations written out by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from genie_dg.data.domains import DataError, FileDomain
from genie_dg.data.published.spawrious import CHALLENGES
from genie_dg.data.registry import SETS, open_data
from tests.data.published.layouts import BREEDS, spawrious


def test_all_six_open_from_one_folder(tmp_path: Path) -> None:
    root = spawrious(tmp_path)
    assert [name for name in SETS if name.startswith("Spawrious")] == list(CHALLENGES)
    for name in CHALLENGES:
        data = open_data(name, root)
        assert (data.name, data.classes, data.variant) == (name, BREEDS, "")
        assert tuple(domain.name for domain in data.domains) == SETS[name].domain_names
        for domain in data.domains:
            assert isinstance(domain, FileDomain)
            assert [path.split("/")[2] for path in domain.paths] == [data.classes[k] for k in domain.labels]
            domain.read(0)


def test_one_to_one_takes_the_published_numbers_from_each_place() -> None:
    """97 % and 87 % of 3,168, rounded down: 3,072 and 2,756; the rest, 96 and 412, from the shared place."""
    easy = CHALLENGES["SpawriousO2O_easy"]
    assert easy.picks(1)[:5] == [
        (0, "desert", "bulldog", 3072),
        (0, "jungle", "dachshund", 3072),
        (0, "dirt", "labrador", 3072),
        (0, "snow", "corgi", 3072),
        (0, "beach", "bulldog", 96),
    ]
    assert easy.picks(2)[3:6] == [
        (1, "snow", "corgi", 2756),
        (1, "beach", "bulldog", 412),
        (1, "beach", "dachshund", 412),
    ]
    assert easy.picks(0)[4:] == [
        (1, "dirt", "bulldog", 3168),
        (1, "snow", "dachshund", 3168),
        (1, "desert", "labrador", 3168),
        (1, "jungle", "corgi", 3168),
    ]


def test_many_to_many_changes_places_between_the_groups() -> None:
    hard = CHALLENGES["SpawriousM2M_hard"]
    assert [(place, breed) for _, place, breed, _ in hard.picks(1)] == [
        ("dirt", "bulldog"), ("jungle", "dachshund"), ("snow", "labrador"), ("beach", "corgi"),
    ]  # fmt: skip
    assert [(place, breed) for _, place, breed, _ in hard.picks(2)] == [
        ("jungle", "bulldog"), ("dirt", "dachshund"), ("beach", "labrador"), ("snow", "corgi"),
    ]  # fmt: skip
    assert {part for domain in range(3) for part, *_ in hard.picks(domain)} == {0}
    assert len(hard.picks(0)) == 8


@pytest.mark.parametrize("name", CHALLENGES)
def test_no_breed_is_tested_where_it_was_trained(name: str) -> None:
    challenge = CHALLENGES[name]
    trained = {
        (place, breed) for k in (1, 2) for _, place, breed, _ in challenge.picks(k) if place != challenge.shared
    }
    assert not trained & {(place, breed) for _, place, breed, _ in challenge.picks(0)}


def test_a_missing_place_is_named(tmp_path: Path) -> None:
    spawrious(tmp_path)
    for picture in (tmp_path / "spawrious224" / "0" / "snow" / "corgi").iterdir():
        picture.unlink()
    with pytest.raises(DataError, match=r"0/snow/corgi holds no picture"):
        open_data("SpawriousO2O_easy", tmp_path)
