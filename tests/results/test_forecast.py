"""Choosing a candidate and forecasting a new domain, on numbers worked out by hand."""

from __future__ import annotations

import math

import pytest
from scipy import stats

from genie_dg.results.draws import Candidate
from genie_dg.results.forecast import Contender, choose_contender, contenders_of, forecast
from genie_dg.results.frame import ResultsError

from .build import frame_of, record, run


def made(name: str, scores: list[float], validation: list[float]) -> Contender:
    runs = [
        Candidate("ERM + adam", "d", (k,), 0, 0, held_back, score)
        for k, (score, held_back) in enumerate(zip(scores, validation, strict=True))
    ]
    return Contender(name, None, dict(enumerate(runs)))


TWO = ("here", "there")
A = made("a", [0.9, 0.5, 0.4], [0.7, 0.9, 0.9])
B = made("b", [0.5, 0.7, 0.5], [0.8, 0.6, 0.6])


def test_the_winner_has_the_highest_mean() -> None:
    assert choose_contender([A, B]).name == "a"  # 0.6 against 0.5667
    assert choose_contender([A, B], "held-back").name == "a"  # 0.8333 against 0.6667
    assert choose_contender([B, made("c", [0.5, 0.7, 0.5], [0.8, 0.6, 0.6])]).name == "b"  # a tie: the first
    with pytest.raises(ResultsError, match="leave-one-domain-out"):
        choose_contender([A, B], "leave-one-out")


def test_a_domain_is_never_judged_by_a_candidate_that_it_chose() -> None:
    expected = forecast([A, B])
    # without 0: a 0.45, b 0.6; without 1: a 0.65, b 0.5; without 2: a 0.7, b 0.6
    assert expected.chosen == {0: "b", 1: "a", 2: "a"}
    assert expected.scores == {0: 0.5, 1: 0.5, 2: 0.4}
    assert expected.expected == pytest.approx(1.4 / 3)
    assert expected.expected < choose_contender([A, B]).score


def test_the_interval_is_that_of_one_more_domain() -> None:
    expected = forecast([A, B])
    scores = [0.5, 0.5, 0.4]
    mean = sum(scores) / 3
    deviation = math.sqrt(sum((x - mean) ** 2 for x in scores) / 2)
    reach = stats.t.ppf(0.975, 2) * deviation * math.sqrt(4 / 3)
    assert expected.low == pytest.approx(mean - reach)
    assert expected.high == pytest.approx(mean + reach)


def test_held_back_data_choose_without_looking_at_the_domain() -> None:
    expected = forecast([A, B], "held-back")
    assert expected.chosen == {0: "b", 1: "a", 2: "a"}


def test_an_interval_stays_between_0_and_1_and_one_domain_says_nothing() -> None:
    wild = forecast([made("a", [0.0, 1.0], [0.5, 0.5])])
    assert (wild.low, wild.high) == (0.0, 1.0)
    alone = forecast([made("a", [0.75], [0.5])])
    assert (alone.expected, alone.low, alone.high) == (0.75, 0.0, 1.0)


def test_candidates_are_runs_that_differ_in_the_domain_left_out_alone() -> None:
    fast, slow = {"optimizer_settings": {"lr": 0.1}}, {"optimizer_settings": {"lr": 0.01}}
    runs = [
        run([0], [record(0, [0.1, 0.9], [0.2, 0.3]), record(5, [0.6, 0.8], [0.4, 0.5])], domains=TWO, **fast),
        run([1], [record(0, [0.3, 0.7], [0.9, 0.1])], domains=TWO, **fast),
        run([0], [record(0, [0.2, 0.2], [0.5, 0.5])], domains=TWO, **slow),
        run([1], [record(0, [0.2, 0.25], [0.5, 0.5])], domains=TWO, **slow),
    ]
    first, second = sorted(contenders_of(frame_of(runs)), key=lambda one: one.name, reverse=True)
    assert first.scores == {0: 0.6, 1: 0.7}  # of the first run the record with the better validation
    assert first.validation == {0: 0.5, 1: 0.9}
    assert {k: one.step for k, one in first.runs.items()} == {0: 5, 1: 0}
    assert first.name.endswith("lr=0.1")
    assert second.scores == {0: 0.2, 1: 0.25}
    with pytest.raises(ResultsError, match=r"lr=0\.01 has no finished run without domain 1"):
        contenders_of(frame_of(runs[:3]))
