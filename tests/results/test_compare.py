"""Comparing rows: hand-written candidates with exact answers, and whole comparisons of run folders."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from genie_dg.results.compare import Comparisons, best_of_rows, compare, compare_all, pairs_of
from genie_dg.results.draws import group
from genie_dg.results.frame import ResultsError

from .build import DIVERGED, Run, frame_of
from .test_draws import ADAM, made, run_of

GENIE = "ERM + genie"


# Paired differences


def test_the_selected_draws_are_subtracted_split_by_split() -> None:
    found = made(GENIE, [0.9, 0.5]) + made(GENIE, [0.1, 0.7], trial=1) + made(GENIE, [0.3, 0.4], domain=1)
    found += made(ADAM, [0.8, 0.4]) + made(ADAM, [0.1, 0.9], trial=1) + made(ADAM, [0.9, 0.4], domain=1)
    result = compare(group(found), GENIE, ADAM, resamples=50)
    assert [pair.split for pair in result.pairs] == [
        ("digits", (0,), 0),
        ("digits", (0,), 1),
        ("digits", (1,), 0),
    ]
    assert [pair.difference for pair in result.pairs] == pytest.approx([0.1, -0.2, 0.0])
    assert result.mean == pytest.approx(-0.1 / 3)
    assert (result.wins, result.ties, result.losses) == (1, 1, 1)
    assert result.notes == ()


def test_splits_of_one_row_only_are_left_out_with_a_note() -> None:
    found = made(GENIE, [0.5]) + made(GENIE, [0.9], trial=1) + made(ADAM, [0.4])
    result = compare(group(found), GENIE, ADAM)
    assert result.mean == pytest.approx(0.1)
    assert result.notes[0] == f"1 of 2 splits of {GENIE} are not shared and are left out."


def test_different_protocols_are_noted() -> None:
    found = made(GENIE, [0.5], protocol="genie-paper") + made(ADAM, [0.5], protocol="domainbed")
    assert compare(group(found), GENIE, ADAM).notes[0] == (
        "ERM + genie follows genie-paper and ERM + adam follows domainbed; numbers of different protocols mean "
        "different things."
    )


def test_different_budgets_are_one_sentence() -> None:
    found = made(GENIE, [0.5] * 20, steps=10) + made(ADAM, [0.5], steps=10)
    notes = compare(group(found), GENIE, ADAM, resamples=10).notes
    assert notes[0] == (
        "The budgets differ, so part of the difference may be tuning: ERM + genie had 20 draws x 1 trial x 1 "
        "test domain = 20 runs, 200 steps; ERM + adam had 1 draw x 1 trial x 1 test domain = 1 run, 10 steps."
    )
    longer = made(GENIE, [0.5], steps=20) + made(ADAM, [0.5], steps=10)
    assert "The budgets differ" in compare(group(longer), GENIE, ADAM).notes[0]


@pytest.mark.parametrize(
    ("draws", "trials", "note"),
    [
        (1, 1, "No interval can be computed from one trial and one draw for each test domain."),
        (2, 1, "With one trial for each test domain the interval leaves out the spread between trials."),
        (1, 2, "With one draw in each split nothing is selected; the interval is about trials alone."),
    ],
)
def test_what_one_trial_or_one_draw_cannot_tell(draws: int, trials: int, note: str) -> None:
    found = [
        c
        for trial in range(trials)
        for c in made(GENIE, [0.5, 0.6][:draws], trial) + made(ADAM, [0.5, 0.4][:draws], trial)
    ]
    result = compare(group(found), GENIE, ADAM, resamples=20)
    assert result.notes == (note,)
    assert (result.interval is None) == (draws == trials == 1)


def pairs(*rows: str, baseline: str | None = None) -> list[tuple[str, str]]:
    """Which rows are compared, of one candidate each, named as the frame names rows."""
    listed = []
    for row in rows:
        algorithm, optimizer = row.partition(" (")[0].split(" + ")
        listed += made(row, [0.5], algorithm=algorithm, optimizer=optimizer)
    return pairs_of(list(rows), group(listed), baseline)


def test_a_row_is_compared_with_adam_of_its_kind_otherwise_with_the_first_row() -> None:
    assert pairs(ADAM, GENIE, "ERM + sgd") == [(GENIE, ADAM), ("ERM + sgd", ADAM)]
    assert pairs("ERM + sgd", "CORAL + adam", "CORAL + genie") == [
        ("CORAL + adam", "ERM + sgd"),
        ("CORAL + genie", "CORAL + adam"),
    ]
    assert ("ERM + genie (cnn)", "ERM + adam (cnn)") in pairs(
        "ERM + adam (b)", "ERM + adam (cnn)", "ERM + genie (cnn)"
    )
    assert pairs("ERM + sgd", GENIE) == [(GENIE, "ERM + sgd")]
    assert pairs(ADAM, GENIE, baseline=GENIE) == [(ADAM, GENIE)]
    assert pairs("ERM+SWAD + adam", "ERM+SWAD + genie") == [("ERM+SWAD + genie", "ERM+SWAD + adam")]


def test_the_best_of_k_is_taken_over_the_splits_that_all_rows_share() -> None:
    found = made(GENIE, [0.2, 0.6]) + made(GENIE, [0.0, 0.0], trial=1) + made(ADAM, [0.1, 0.3, 0.8])
    best = best_of_rows(group(found), [GENIE, ADAM])
    assert best[GENIE] == pytest.approx([0.4, 0.6])
    assert best[ADAM] == pytest.approx([0.4, (2 * 0.8 + 0.3) / 3, 0.8])
    apart = group(made(GENIE, [0.5]) + made(ADAM, [0.5], trial=1))
    assert best_of_rows(apart, [GENIE, ADAM]) == {GENIE: [], ADAM: []}


# Whole comparisons


def one(test: float, optimizer: str, trial: int = 0, draw: int = 0, **more: Any) -> Run:
    """Eight records of one test accuracy; a later draw has the better validation."""
    lines = [([test, 1.0], [1.0, 0.5 + draw / 100])] * 8
    return run_of(
        lines, trial=trial, draw=draw, optimizer=optimizer, steps=8, **{"domains": ("a", "b"), **more}
    )


@pytest.fixture
def runs() -> list[Run]:
    """Two draws, two trials, two rows: genie is better by 0.1 and 0.2; draw 1 is selected."""
    listed = []
    for trial, draw in product((0, 1), (0, 1)):
        listed.append(one(0.4 + 0.1 * draw, "adam", trial, draw))
        listed.append(one(0.3 + (0.3 + 0.1 * trial) * draw, "genie", trial, draw))
    return listed


def compared(listed: list[Run], *rows: str, **more: Any) -> Comparisons:
    return compare_all(frame_of(listed), rows, resamples=100, **more)


def test_everything_is_compared(runs: list[Run]) -> None:
    result = compared(runs)
    assert (result.rows, result.notes) == ([ADAM, GENIE], [])
    (difference,) = result.differences
    assert (difference.row, difference.baseline, difference.dataset) == (GENIE, ADAM, "digits")
    assert difference.mean == pytest.approx(0.15)
    assert (difference.wins, difference.ties, difference.losses) == (2, 0, 0)
    assert str(difference.budgets[0]) == "2 draws x 2 trials x 1 test domain = 4 runs, 32 steps"
    assert result.best_of[GENIE] == pytest.approx([0.475, 0.65])


def test_rows_and_baseline_can_be_chosen(runs: list[Run]) -> None:
    (difference,) = compared(runs, "erm + adam", baseline=GENIE).differences
    assert (difference.row, difference.baseline, difference.mean) == (ADAM, GENIE, pytest.approx(-0.15))
    (difference,) = compared(runs, GENIE, ADAM).differences
    assert (difference.row, difference.baseline) == (GENIE, ADAM)


def test_several_data_sets_are_compared_by_themselves_and_together(runs: list[Run]) -> None:
    runs += [one(0.5, "adam", dataset="shapes"), one(0.2, "genie", dataset="shapes")]
    differences = compared(runs).differences
    assert [c.dataset for c in differences] == ["digits", "shapes", "all"]
    assert [c.mean for c in differences] == pytest.approx([0.15, -0.3, 0.0])
    assert [c.interval is None for c in differences] == [False, True, False]


def test_a_pair_that_shares_nothing_does_not_spoil_the_others(runs: list[Run]) -> None:
    runs.append(one(0.9, "sgd", 7))
    result = compared(runs)
    assert [(c.row, c.baseline) for c in result.differences] == [(GENIE, ADAM)]
    assert result.notes == ["ERM + sgd and ERM + adam share no split and are not compared."]
    assert set(map(tuple, result.best_of.values())) == {()}
    with pytest.raises(ResultsError, match="share no split"):
        compared(runs, "ERM + sgd", GENIE)


def test_protocols_are_mixed_only_when_asked_for(runs: list[Run]) -> None:
    runs.append(one(0.5, "sgd", protocol="domainbed"))
    with pytest.raises(ResultsError, match=r"protocols custom and domainbed, .*--mix-protocols"):
        compared(runs)
    assert "ERM + sgd" in compared(runs, mix=True).rows
    assert "ERM + sgd" not in compared(runs, ADAM, GENIE).rows
    unfinished = one(0.5, "adam", 9, protocol="domainbed", algorithm="IRM", done=False)
    assert compared([*runs[:-1], unfinished]).rows == [ADAM, GENIE]


def test_a_run_that_diverged_is_a_draw_that_is_selected_last(runs: list[Run]) -> None:
    """Its high validation does not help it; the best of one draw pays for it, that of two does not."""
    ended = replace(one(0.0, "adam", draw=9), done=False, outcomes=(DIVERGED,))
    plain, result = compared(runs), compared([*runs, ended])
    split = ended.config.dataset, ended.config.test_domains, ended.config.trial_seed
    before, after = (found.grouped[ADAM][split] for found in (plain, result))
    assert [c.run for c in after] == [ended.run_id, *(c.run for c in before)]
    assert (after[0].validation, after[0].test) == (-math.inf, 0.0)
    assert result.best_of[ADAM][0] < plain.best_of[ADAM][0]
    assert [c.mean for c in result.differences] == [c.mean for c in plain.differences]
    assert result.notes[0].startswith("1 of 9 runs diverged; each is a draw that is selected last")


def test_unfinished_runs_are_left_out_with_a_note(runs: list[Run]) -> None:
    result = compared([replace(runs[0], done=False), *runs[1:]])
    assert result.notes[0].startswith("1 of 8 runs are left out: not complete, or without a domain")
