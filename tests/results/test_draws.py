"""The draws of rows: from runs to candidates, and candidates by row and split."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from genie_dg.results.draws import Candidate, candidates, group
from genie_dg.results.frame import load
from genie_dg.results.select import select
from genie_dg.runs.config import canonical

from .build import Run, config, frame_of, record, run, write

ADAM = "ERM + adam"


def made(row: str, tests: list[float], trial: int = 0, domain: int = 0, **more: object) -> list[Candidate]:
    """Draws 0, 1, ... of one row in one split, whose validation rises with the draw."""
    return [
        replace(Candidate(row, "digits", (domain,), trial, k, 0.1 * k, test), **more)  # type: ignore[arg-type]
        for k, test in enumerate(tests)
    ]


def run_of(records: list[tuple[list[float], list[float]]], test: tuple[int, ...] = (0,), **more: Any) -> Run:
    listed = [record(k, inside, outside) for k, (inside, outside) in enumerate(records)]
    usual = {"dataset": "digits", "protocol": "custom", "backbone": "cnn", "domains": ("a", "b", "c")}
    return run(test, listed, **{**usual, **more})


def candidates_of(*runs: Run) -> list[Candidate]:
    return candidates(frame_of(runs))


def test_a_candidate_is_the_first_record_with_the_best_validation() -> None:
    records = [
        ([0.1, 0.9, 0.9], [0.9, 0.5, 0.6]),
        ([0.2, 0.9, 0.9], [0.0, 0.75, 0.5]),  # validation 0.625: the best, and first
        ([0.3, 0.9, 0.9], [0.9, 0.5, 0.75]),  # 0.625 again
        ([0.4, 0.9, 0.9], [1.0, 0.1, 0.1]),
    ]
    (found,) = candidates_of(run_of(records, trial=2, draw=7, steps=40, protocol="domainbed"))
    assert (found.row, found.split, found.draw) == (ADAM, ("digits", (0,), 2), 7)
    assert (found.validation, found.test) == (0.625, 0.2)
    assert (found.steps, found.protocol) == (40, "domainbed")


def test_the_test_accuracy_is_the_mean_of_the_test_domains() -> None:
    (found,) = candidates_of(run_of([([0.2, 0.9, 0.4], [0.0, 0.5, 0.0])], (2, 0)))
    assert found.test == pytest.approx(0.3)
    assert found.validation == 0.5


def test_runs_that_are_not_complete_or_have_no_records_are_no_candidates() -> None:
    line = ([0.5] * 3, [0.5] * 3)
    assert candidates_of(run_of([line], done=False), run_of([], trial=1), run_of([line], swad=True)) == []
    assert candidates_of() == []


def test_swad_is_judged_by_its_averaged_weights_and_is_a_row_of_its_own() -> None:
    averaged = record(9, [0.25, 0, 0], [0, 0.5, 1])
    curve = [([0.1 * k] * 3, [0.9] * 3) for k in range(5)]
    (found,) = candidates_of(run_of(curve, swad=True, averaged=averaged))
    assert (found.row, found.validation, found.test) == ("ERM+SWAD + adam", 0.75, 0.25)


def test_a_run_that_tests_every_domain_is_no_candidate() -> None:
    assert candidates_of(run_of([([0.5] * 3, [0.5] * 3)], (0, 1, 2))) == []


def test_candidates_agree_with_the_selection_of_tables() -> None:
    generator = np.random.default_rng(8)
    accuracies = generator.integers(0, 5, (2, 12, 6, 2, 3)) / 4  # coarse, so that there are ties
    runs = [
        run_of(list(of_run), trial=trial, draw=draw // 2, dropout=draw / 20)
        for trial in (0, 1)
        for draw, of_run in enumerate(accuracies[trial])
    ]
    frame = frame_of(runs)
    grouped = group(candidates(frame))[ADAM]
    for case, chosen in select(frame).items():
        best = grouped[case.dataset, case.test_domains, case.trial][-1]
        assert (best.run, best.validation, best.test) == (chosen.run, chosen.value, chosen.score)


def test_science_is_everything_but_the_trial() -> None:
    line = [([0.5] * 3, [0.5] * 3)]
    first, again = candidates_of(run_of(line), run_of(line, trial=12))
    (other,) = candidates_of(run_of(line, optimizer_settings={"lr": 0.1}))
    assert first.science == again.science != other.science


def test_science_does_not_hang_on_how_a_configuration_is_written(tmp_path: Path) -> None:
    for trial in (3, 14):
        one = run_of([([0.5] * 3, [0.5] * 3)], trial=trial)
        path = write(tmp_path, one) / "config.json"
        path.write_text(json.dumps(json.loads(canonical(one.config)), indent=1))
    first, again = candidates(load(tmp_path))
    assert (first.trial, again.trial, first.science) == (3, 14, again.science)


def test_of_equal_validations_the_largest_draw_is_selected() -> None:
    tied = [Candidate(ADAM, "digits", (0,), 0, draw, 0.5, draw / 10) for draw in (3, 9, 1)]
    best = group(tied)[ADAM]["digits", (0,), 0][-1]
    assert (best.draw, best.test) == (9, 0.9)


def test_runs_of_one_seed_are_draws_each_unless_they_are_repeats() -> None:
    one = made(ADAM, [0.5], config=config([0], dataset="x"))
    by_hand = group([*one, *made(ADAM, [0.6], config=config([0], dataset="y"), validation=0.3)])
    assert [c.test for c in by_hand[ADAM]["digits", (0,), 0]] == [0.5, 0.6]
    repeated = group([*one, *made(ADAM, [0.6], config=config([0], dataset="x"), validation=0.3)])
    assert [c.test for c in repeated[ADAM]["digits", (0,), 0]] == [0.5]
