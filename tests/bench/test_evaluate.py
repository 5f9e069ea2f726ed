"""What records say: stalled, nothing learned, exploded; on records written by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from genie_dg.bench.evaluate import chance, has_stalled, problem_of
from genie_dg.data.domains import DomainSet
from genie_dg.runs.config import RunConfig
from genie_dg.runs.record import Record

CONFIG = RunConfig("digits", (5,), optimizer="sgd", optimizer_settings={"lr": 0.5})


def run(
    validation: Sequence[float], losses: Sequence[float], validation_losses: Sequence[float] = ()
) -> list[Record]:
    """Records with these numbers."""
    of_validation = validation_losses or losses
    rows = zip(validation, losses, of_validation, strict=True)
    return [
        Record(k, 0.0, loss, other, (None,) * 5 + (0.9,), (reached,) * 5 + (0.9,))
        for k, (reached, loss, other) in enumerate(rows)
    ]


@pytest.mark.parametrize(
    ("validation", "stalled"),
    [((), False), ((0.5,), False), ((0.5, 0.5), False), ((0.5, 0.5, 0.5), True), ((0.5, 0.4, 0.6), False)],
)
def test_a_run_stalls_when_validation_does_not_rise(validation: tuple[float, ...], stalled: bool) -> None:
    records = run(validation, [1.0] * len(validation))
    assert has_stalled(records, replace(CONFIG, early_stop=2)) == stalled
    assert not has_stalled(records, CONFIG)  # off


def test_chance_is_the_share_of_the_most_frequent_class_in_what_validates(digits: DomainSet) -> None:
    guess, samples = chance(CONFIG, digits)
    assert 0.1 <= guess < 0.16
    assert samples == 298


def test_a_run_that_learned_has_no_problem(digits: DomainSet) -> None:
    assert problem_of(run([0.1, 0.8], [2.3, 0.4]), CONFIG, digits) == ("", False)
    late_penalty = run([0.1, 0.8], [2.3, 900.0], [2.3, 0.7])
    assert problem_of(late_penalty, CONFIG, digits) == ("", False)


def test_a_run_at_chance_learned_nothing(digits: DomainSet) -> None:
    guess, samples = chance(CONFIG, digits)
    margin = 2 * (guess * (1 - guess) / samples) ** 0.5
    sentence, exploded = problem_of(run([0.1, guess + margin - 1e-6], [2.3, 2.2]), CONFIG, digits)
    assert sentence.startswith("Nothing was learned: validation is ")
    assert "(0.5)" in sentence
    assert not exploded
    assert problem_of(run([0.1, guess + margin + 1e-6], [2.3, 2.2]), CONFIG, digits) == ("", False)


def test_a_loss_ten_times_its_start_has_exploded(digits: DomainSet) -> None:
    sentence, exploded = problem_of(run([0.1, 0.1], [2.0, 20.1]), CONFIG, digits)
    assert exploded
    assert sentence.startswith("The loss exploded: it was 2 at the start and is 20.1 at the end;")
    assert "learning rate (0.5) is likely too high" in sentence
    assert problem_of(run([0.1, 0.8], [2.0, 20.1]), CONFIG, digits)[1]
    assert not problem_of(run([0.1, 0.1], [2.0, 19.9]), CONFIG, digits)[1]
