"""Comparing rows: hand-written candidates with exact answers, twins by enumeration, and what intervals hold."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from genie_dg.cli._errors import UserError
from genie_dg.results.best_of import best_of, budget, chances, mean_best_of
from genie_dg.results.bootstrap import Trial, interval, resampled_means, selection_law
from genie_dg.results.schema import ResultsError, Run, numbers_of

from genie_dg.cli import compare as verb
from genie_dg.results.compare import (
    Candidate,
    baseline_of,
    best_of_rows,
    candidates,
    check_protocols,
    compare,
    find_row,
    group,
    last_spread,
    noise_floor,
)
from genie_dg.results.select import Chosen, select
from genie_dg.runs.record import RunConfig, canonical

ADAM, GENIE = "ERM + adam", "ERM + genie"


def made(row: str, tests: list[float], trial: int = 0, domain: int = 0, **more: object) -> list[Candidate]:
    """Draws 0, 1, ... of one row in one split, whose validation rises with the draw."""
    return [
        replace(Candidate(row, "digits", (domain,), trial, k, 0.1 * k, test), **more)  # type: ignore[arg-type]
        for k, test in enumerate(tests)
    ]


def run_of(records: list[tuple[list[float], list[float]]], done: bool = True, **config: object) -> Run:
    settings = {"dataset": "digits", "test_domains": (0,), "optimizer": "adam", **config}
    configuration = RunConfig(**settings)  # type: ignore[arg-type]
    lines = [{"step": k, "in_acc": inside, "out_acc": outside} for k, (inside, outside) in enumerate(records)]
    return Run(configuration.run_id, configuration, ("a", "b", "c"), numbers_of(lines, 3), done)


# Candidates


def test_a_candidate_is_the_first_record_with_the_best_validation() -> None:
    records = [
        ([0.1, 0.9, 0.9], [0.9, 0.5, 0.6]),
        ([0.2, 0.9, 0.9], [0.0, 0.75, 0.5]),  # validation 0.625: the best, and first
        ([0.3, 0.9, 0.9], [0.9, 0.5, 0.75]),  # 0.625 again
        ([0.4, 0.9, 0.9], [1.0, 0.1, 0.1]),
    ]
    (found,) = candidates([run_of(records, trial_seed=2, hparams_seed=7, steps=40, protocol="domainbed")])
    assert (found.row, found.split, found.draw) == (ADAM, ("digits", (0,), 2), 7)
    assert (found.validation, found.test) == (0.625, 0.2)
    assert (found.steps, found.protocol) == (40, "domainbed")


def test_the_test_accuracy_is_the_mean_of_the_test_domains() -> None:
    (found,) = candidates([run_of([([0.2, 0.9, 0.4], [0.0, 0.5, 0.0])], test_domains=(2, 0))])
    assert found.test == pytest.approx(0.3)
    assert found.validation == 0.5


def test_runs_that_are_not_complete_or_have_no_records_are_no_candidates() -> None:
    record = ([0.5] * 3, [0.5] * 3)
    assert candidates([run_of([record], done=False), run_of([]), run_of([record], swad=True)]) == []


def test_swad_is_judged_by_its_averaged_weights_and_is_a_row_of_its_own() -> None:
    run = run_of([([0.9] * 3, [0.9] * 3)], swad=True)
    averaged = numbers_of([{"step": 9, "in_acc": [0.25, 0, 0], "out_acc": [0, 0.5, 1]}], 3)
    (found,) = candidates([replace(run, averaged=averaged)])
    assert (found.row, found.validation, found.test) == ("ERM+SWAD + adam", 0.75, 0.25)


def test_a_run_that_tests_every_domain_is_no_candidate() -> None:
    assert candidates([run_of([([0.5] * 3, [0.5] * 3)], test_domains=(0, 1, 2))]) == []


def test_rows_are_named_by_what_tells_them_apart() -> None:
    record = [([0.5] * 3, [0.5] * 3)]
    first, other = run_of(record, protocol="x"), run_of(record, protocol="y")
    assert [c.row for c in candidates([first])] == [ADAM]
    assert [c.row for c in candidates([first, other])] == [f"{ADAM} (x)", f"{ADAM} (y)"]
    deep = run_of(record, protocol="y", optimizer="genie", backbone="resnet50")
    assert [c.row for c in candidates([first, deep])] == [f"{ADAM} (cnn)", f"{GENIE} (resnet50)"]
    assert next(c.row for c in candidates([first, other, deep])) == f"{ADAM} (cnn, x)"


def test_candidates_agree_with_the_selection_of_tables() -> None:
    generator = np.random.default_rng(8)
    accuracies = generator.integers(0, 5, (2, 12, 6, 2, 3)) / 4  # coarse, so that there are ties
    runs = [
        run_of(
            [(a.tolist(), b.tolist()) for a, b in of_run],
            trial_seed=trial,
            hparams_seed=draw // 2,
            dropout=draw / 20,
        )
        for trial in (0, 1)
        for draw, of_run in enumerate(accuracies[trial])
    ]
    grouped = group(candidates(runs))[ADAM]
    for case, chosen in select(runs).items():
        assert isinstance(chosen, Chosen)
        best = grouped[case.dataset, case.test_domains, case.trial][-1]
        assert (best.run_id, best.validation, best.test) == (chosen.run.run_id, chosen.value, chosen.scores[0])


def test_science_is_everything_but_the_trial() -> None:
    record = [([0.5] * 3, [0.5] * 3)]
    first, again = candidates([run_of(record, trial_seed=0), run_of(record, trial_seed=1)])
    (other,) = candidates([run_of(record, optimizer_settings={"lr": 0.1})])
    assert first.science == again.science != other.science


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


def test_of_equal_validations_the_largest_draw_is_selected() -> None:
    tied = [Candidate(ADAM, "digits", (0,), 0, draw, 0.5, draw / 10) for draw in (3, 9, 1)]
    best = group(tied)[ADAM]["digits", (0,), 0][-1]
    assert (best.draw, best.test) == (9, 0.9)


def test_splits_of_one_row_only_are_left_out_and_told() -> None:
    found = made(GENIE, [0.5]) + made(GENIE, [0.9], trial=1) + made(ADAM, [0.4])
    result = compare(group(found), GENIE, ADAM)
    assert result.mean == pytest.approx(0.1)
    assert result.notes[0] == f"1 of 2 splits of {GENIE} are not shared and are left out."


def test_rows_without_a_shared_split_are_refused() -> None:
    with pytest.raises(ResultsError, match="share no split"):
        compare(group(made(GENIE, [0.5]) + made(ADAM, [0.5], trial=1)), GENIE, ADAM)


def test_runs_of_one_seed_are_draws_each_unless_they_are_repeats() -> None:
    one = made(ADAM, [0.5], science="x")
    by_hand = group([*one, *made(ADAM, [0.6], science="y", validation=0.3)])
    assert [c.test for c in by_hand[ADAM]["digits", (0,), 0]] == [0.5, 0.6]
    repeated = group([*one, *made(ADAM, [0.6], science="x", validation=0.3)])
    assert [c.test for c in repeated[ADAM]["digits", (0,), 0]] == [0.5]


def test_protocols_are_mixed_only_when_told_to() -> None:
    found = made(GENIE, [0.5], protocol="genie-paper") + made(ADAM, [0.5], protocol="domainbed")
    with pytest.raises(ResultsError, match=r"several protocols \(domainbed, genie-paper\)"):
        check_protocols(found)
    check_protocols(found, mix=True)
    check_protocols(found[:1])
    assert compare(group(found), GENIE, ADAM).notes[0] == (
        "ERM + genie follows genie-paper and ERM + adam follows domainbed; numbers of different protocols mean "
        "different things."
    )


def test_different_budgets_are_told_in_one_sentence() -> None:
    found = made(GENIE, [0.5] * 20, steps=10) + made(ADAM, [0.5], steps=10)
    notes = compare(group(found), GENIE, ADAM, resamples=10).notes
    assert notes[0] == (
        "The budgets differ, so part of the difference may be tuning: ERM + genie had 20 draws x 1 trial x 1 "
        "test domain = 20 runs, 200 steps; ERM + adam had 1 draw x 1 trial x 1 test domain = 1 run, 10 steps."
    )
    longer = made(GENIE, [0.5], steps=20) + made(ADAM, [0.5], steps=10)
    assert "The budgets differ" in compare(group(longer), GENIE, ADAM).notes[0]


def test_a_budget_with_holes_says_so() -> None:
    found = budget({("d", (0,), 0): [5, 5], ("d", (0,), 1): [5], ("d", (1,), 0): [5, 5], ("e", (1,), 0): [5]})
    assert (found.runs, found.steps, found.fewest, found.most) == (6, 30, 1, 2)
    assert str(found) == "1 to 2 draws x 2 trials x 3 test domains, not all of them: 6 runs, 30 steps"
    uneven = budget({("d", (0,), 0): [5], ("d", (0,), 1): [5], ("d", (1,), 0): [5]})
    assert str(uneven).startswith("1 draw x 2 trials x 2 test domains, not all of them: 3 runs")


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


def test_names_of_rows() -> None:
    with pytest.raises(ResultsError, match=r"no row 'ERM \+ geni' .*; did you mean 'ERM \+ genie'\?"):
        find_row("ERM + geni", [ADAM, GENIE])
    assert baseline_of("CORAL + genie", ["ERM + sgd", "CORAL + adam", "CORAL + genie"]) == "CORAL + adam"
    assert baseline_of("ERM + genie (cnn)", ["ERM + adam (b)", "ERM + adam (cnn)"]) == "ERM + adam (cnn)"
    assert baseline_of(GENIE, ["ERM + sgd", GENIE]) == "ERM + sgd"


# The bootstrap


@pytest.mark.parametrize("draws", [1, 2, 3, 4])
def test_the_law_of_selection_is_that_of_all_resamples(draws: int) -> None:
    counts = np.zeros(draws)
    for resample in product(range(draws), repeat=draws):
        counts[max(resample)] += 1
    np.testing.assert_allclose(selection_law(draws), counts / draws**draws, atol=1e-15)


def test_resampled_means_follow_the_law() -> None:
    """Three draws against a constant: each value comes as often as enumeration says (6 standard errors)."""
    count = 40_000
    trial = Trial((1.0, 10.0, 100.0), (0.0, 0.0))
    means = resampled_means([[trial]], count, np.random.default_rng(0))
    for value, chance in zip((1.0, 10.0, 100.0), selection_law(3), strict=True):
        assert abs((means == value).mean() - chance) < 6 * math.sqrt(chance * (1 - chance) / count)


def test_trials_are_resampled_together_and_weighed_by_splits() -> None:
    """One draw each: the pairs of a trial stay together, so differences are means of those of the trials."""
    first = [Trial((0.9,), (0.8,)), Trial((0.2,), (0.0,))]
    means = resampled_means([first, [Trial((0.5,), (0.1,))]], 200, np.random.default_rng(1))
    assert set(means.round(9)) == {0.2, round(0.7 / 3, 9), round(0.8 / 3, 9)}


def test_splits_with_different_numbers_of_draws_are_resampled() -> None:
    trials = [Trial((0.1, 0.2, 0.3), (0.0,)), Trial((0.5,), (0.0, 0.0))]
    means = resampled_means([trials], 40_000, np.random.default_rng(2))
    assert np.isfinite(means).all()
    assert set((2 * means).round(9)) == {0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 1.0}


def test_the_interval_of_a_row_with_itself_holds_zero_in_its_middle() -> None:
    generator = np.random.default_rng(3)
    values = [tuple(generator.uniform(0.5, 0.9, 20)) for _ in range(12)]
    blocks = [[Trial(v, v) for v in values[k : k + 3]] for k in range(0, 12, 3)]
    found = interval(blocks, resamples=20_000)
    assert found is not None
    assert found.low < 0 < found.high
    assert abs(found.low + found.high) < 0.06 * (found.high - found.low)


def test_the_same_seed_gives_the_same_interval() -> None:
    found = [c for t in range(3) for row in (GENIE, ADAM) for c in made(row, [0.1, 0.5, 0.2 + 0.1 * t], t)]
    first, again, other = (compare(group(found), GENIE, ADAM, 100, seed) for seed in (4, 4, 5))
    assert first == again
    assert first.interval != other.interval


def noise_draws(generator: np.random.Generator, mean: float) -> tuple[float, ...]:
    """Twenty draws whose validation says nothing: in the order of validation, tests are in random order."""
    return tuple(generator.normal(mean, 0.02, 20))


def test_the_interval_holds_a_known_difference_as_often_as_it_says() -> None:
    """Two rows differ by 0.03; quality, validation and test vary by draw, and trials by themselves.

    Of 150 repeats 142.5 are expected to hold it, with a standard error of 2.67 (binomial); four of these below
    are allowed. Above, all but one: the interval is wider than it must be where the search decides.
    """
    generator, held, repeats = np.random.default_rng(5), 0, 150

    def search(mean: float) -> tuple[float, ...]:
        quality = generator.normal(mean, 0.02, 10)
        test = quality + generator.normal(0, 0.02, 10) + generator.normal(0, 0.02)
        return tuple(test[np.argsort(quality + generator.normal(0, 0.02, 10))])

    for repeat in range(repeats):
        blocks = [[Trial(search(0.63), search(0.60)) for _ in range(5)] for _ in range(4)]
        found = interval(blocks, resamples=200, seed=repeat)
        assert found is not None
        held += found.low <= 0.03 <= found.high
    error = math.sqrt(0.05 * 0.95 * repeats)
    assert 0.95 * repeats - 4 * error < held
    assert held < repeats  # an interval that holds everything would say nothing


def test_a_search_among_pure_noise_gains_nothing_and_the_interval_says_so() -> None:
    """The best draw of a search looks better by two standard deviations; its selected draw is not.

    An interval that keeps the selected draws fixed takes luck for a gain far more often than one in twenty; the
    one that repeats the selection does not.
    """
    generator, repeats = np.random.default_rng(6), 100
    looks, claims, naive_claims = [], 0, 0
    for repeat in range(repeats):
        trials = [Trial(noise_draws(generator, 0.6), noise_draws(generator, 0.6)[:1]) for _ in range(3)]
        looks.append(np.mean([max(t.row) - t.baseline[0] for t in trials]))
        found = interval([trials], resamples=300, seed=repeat)
        naive = interval([[Trial(t.row[-1:], t.baseline[-1:]) for t in trials]], resamples=300, seed=repeat)
        assert found is not None
        assert naive is not None
        claims += not found.low <= 0 <= found.high
        naive_claims += not naive.low <= 0 <= naive.high
    assert np.mean(looks) > 0.03
    assert naive_claims > 15
    assert claims < naive_claims / 2


def test_two_thousand_resamples_of_a_whole_benchmark_take_about_a_second() -> None:
    generator = np.random.default_rng(7)
    blocks = [
        [Trial(noise_draws(generator, 0.6), noise_draws(generator, 0.6)) for _ in range(3)] for _ in range(22)
    ]
    start = time.process_time()
    interval(blocks, resamples=2000)
    assert time.process_time() - start < 2


# The best of k draws


@pytest.mark.parametrize("count", [1, 2, 5, 7])
def test_the_best_of_k_is_the_mean_over_all_choices(count: int) -> None:
    generator = np.random.default_rng(count)
    validation, test = generator.random(count), generator.random(count)
    twin = [
        np.mean([test[max(some, key=lambda k: validation[k])] for some in combinations(range(count), taken)])
        for taken in range(1, count + 1)
    ]
    np.testing.assert_allclose(best_of(test[np.argsort(-validation)].tolist()), twin, rtol=1e-12)


def test_chances_add_up_to_one_and_impossible_numbers_are_refused() -> None:
    for taken in (1, 7, 20):
        assert chances(20, taken).sum() == pytest.approx(1)
    for taken in (0, 4):
        with pytest.raises(ResultsError, match="take from 1 to 3"):
            chances(3, taken)
    with pytest.raises(ResultsError, match="A split without draws"):
        mean_best_of([[0.5], []])


def test_the_best_of_k_is_taken_over_the_splits_that_all_rows_share() -> None:
    found = made(GENIE, [0.2, 0.6]) + made(GENIE, [0.0, 0.0], trial=1) + made(ADAM, [0.1, 0.3, 0.8])
    best = best_of_rows(group(found), [GENIE, ADAM])
    assert best[GENIE] == pytest.approx([0.4, 0.6])
    assert best[ADAM] == pytest.approx([0.4, (2 * 0.8 + 0.3) / 3, 0.8])
    apart = group(made(GENIE, [0.5]) + made(ADAM, [0.5], trial=1))
    assert best_of_rows(apart, [GENIE, ADAM]) == {GENIE: [], ADAM: []}


# Noise


def test_the_noise_between_repeats_is_pooled() -> None:
    found = [c for trial, x in enumerate([0.1, 0.2, 0.3]) for c in made(ADAM, [x], trial, science="a")]
    found += [c for trial, x in enumerate([0.5, 0.9]) for c in made(ADAM, [x], trial, domain=1, science="b")]
    found += made(ADAM, [0.0], domain=2)
    noise = noise_floor(found)
    assert noise.between == pytest.approx(math.sqrt((0.02 + 0.08) / 3))
    assert noise.repeats == 5


def test_another_draw_of_settings_and_a_copy_of_a_run_are_no_repeats() -> None:
    first = made(ADAM, [0.1], science="a")
    assert noise_floor([*first, *first]).between is None
    assert noise_floor([*first, *made(ADAM, [0.9], trial=1, science="b")]).between is None
    assert noise_floor([*first, *made(ADAM, [0.3], science="a")]).between == pytest.approx(math.sqrt(0.02))


def test_the_noise_within_runs() -> None:
    assert last_spread([0.9, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.6, 0.2]) == pytest.approx(
        0.4
    )  # the last three of nine
    assert last_spread([0.5]) is None
    noise = noise_floor(made(ADAM, [0.5], spread=0.1) + made(ADAM, [0.5], 1, spread=0.3) + made(ADAM, [0.5], 2))
    assert (noise.within, noise.within_most) == (pytest.approx(0.2), 0.3)
    assert noise_floor(made(ADAM, [0.5])).within is None


# The command line


def write_run(folder: Path, test: float, **config: object) -> None:
    settings = {"dataset": "digits", "test_domains": (0,), "steps": 8, "checkpoint_every": 1, **config}
    configuration = RunConfig(**settings)  # type: ignore[arg-type]
    home = folder / configuration.run_id
    home.mkdir(parents=True)
    home.joinpath("config.json").write_text(canonical(configuration), encoding="utf-8")
    home.joinpath("meta.json").write_text('{"domains": ["a", "b"]}', encoding="utf-8")
    value = 0.5 + configuration.hparams_seed / 100
    records = [{"step": step, "in_acc": [test, 1.0], "out_acc": [1.0, value]} for step in range(8)]
    text = "".join(json.dumps(record) + "\n" for record in records)
    home.joinpath("records.jsonl").write_text(text, encoding="utf-8")
    home.joinpath("done").touch()


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two draws, two trials, two rows: genie is better by 0.1 and 0.2; draw 1 is selected."""
    for trial, draw in product((0, 1), (0, 1)):
        write_run(tmp_path, 0.4 + 0.1 * draw, optimizer="adam", trial_seed=trial, hparams_seed=draw)
        value = 0.3 + (0.3 + 0.1 * trial) * draw
        write_run(tmp_path, value, optimizer="genie", trial_seed=trial, hparams_seed=draw)
    return tmp_path


def parsed(*words: object) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    verb.add_arguments(parser)
    return parser.parse_args([str(word) for word in words])


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def called(*words: object) -> str:
        assert verb.run(parsed(*words)) == 0
        return capsys.readouterr().out

    return called


def cells(text: str, start: str) -> list[str]:
    """The cells of the first line of a table that starts so."""
    line = next(line for line in text.splitlines() if line.startswith(f"| {start}"))
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_the_tables_in_markdown(runs: Path, call: Callable[..., str]) -> None:
    text = call(runs)
    line = cells(text, "digits")
    assert line[:4] == ["digits", GENIE, ADAM, "+15.00"]
    assert line[5:] == ["2", "2/0/0"]
    tables = text.split("Tuning budget")[1]
    assert cells(tables, ADAM) == [ADAM, "2 draws x 2 trials x 1 test domain = 4 runs, 32 steps"]
    best = tables.split("Expected")[1]
    assert cells(best, "row") == ["row", "k = 1", "k = 2"]
    assert cells(best, GENIE) == [GENIE, "47.5", "65.0"]
    noise = best.split("Noise floor")[1]
    assert cells(noise, GENIE) == [GENIE, "5.00", "4", "0.00", "0.00"]
    assert call(runs) == text


def test_the_numbers_in_csv(runs: Path, call: Callable[..., str]) -> None:
    lines = list(csv.DictReader(io.StringIO(call(runs, "--format", "csv", "--resamples", 300))))
    of = {(line["table"], line["row"], line["name"]): line["value"] for line in lines}
    assert float(of["difference", GENIE, "mean"]) == pytest.approx(0.15)
    assert float(of["difference", GENIE, "low"]) <= 0.15 <= float(of["difference", GENIE, "high"])
    assert of["budget", ADAM, "runs"] == "4"
    assert float(of["best of", GENIE, "1"]) == pytest.approx(0.475)
    assert float(of["noise", GENIE, "between"]) == pytest.approx(0.05)


def test_rows_and_baseline_can_be_chosen(runs: Path, call: Callable[..., str]) -> None:
    text = call(runs, "--rows", "erm + adam", "--baseline", GENIE)
    assert cells(text, "digits")[1:4] == [ADAM, GENIE, "-15.00"]
    assert cells(call(runs, "--rows", GENIE, ADAM), "digits")[1:3] == [GENIE, ADAM]


def test_several_data_sets_have_a_line_each_and_one_for_all(
    runs: Path, tmp_path_factory: pytest.TempPathFactory, call: Callable[..., str]
) -> None:
    more = tmp_path_factory.mktemp("more")
    write_run(more, 0.5, dataset="shapes", optimizer="adam")
    write_run(more, 0.2, dataset="shapes", optimizer="genie")
    text = call(runs, more)
    assert cells(text, "digits")[3] == "+15.00"
    assert cells(text, "shapes")[3:5] == ["-30.00", "-"]
    assert cells(text, "all")[3] == "+0.00"
    assert "Note: No interval can be computed from one trial" in text
    write_run(more, 0.5, dataset="shapes", optimizer="genie", trial_seed=1)
    write_run(more, 0.5, dataset="shapes", optimizer="adam", trial_seed=1)
    write_run(more, 0.5, dataset="shapes", optimizer="genie", trial_seed=1, hparams_seed=1)
    assert call(runs, more).count("Note: The budgets differ") == 1  # not again for the data set


def test_a_pair_that_shares_nothing_does_not_spoil_the_others(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(runs, 0.9, optimizer="sgd", trial_seed=7)
    assert verb.run(parsed(runs)) == 0
    out, err = capsys.readouterr()
    assert cells(out, "digits")[1:3] == [GENIE, ADAM]
    assert "no split is shared by all rows" in out
    assert "Note: ERM + sgd and ERM + adam share no split and are not compared." in err
    with pytest.raises(UserError, match="share no split"):
        verb.run(parsed(runs, "--rows", "ERM + sgd", GENIE))


def test_what_cannot_be_compared_is_refused_in_a_sentence(runs: Path, call: Callable[..., str]) -> None:
    for words, message in {
        ("--baseline", "ERM + genei"): r"no row 'ERM \+ genei' .*did you mean 'ERM \+ genie'\?",
        ("--rows", "ERM + sgd"): r"no row 'ERM \+ sgd' \(the choice is ERM \+ adam, ERM \+ genie\)",
        ("--rows", ADAM): r"There is one row, 'ERM \+ adam'",
        ("--resamples", "0"): "at least 1",
        ("--seed", "-1"): "0 or a larger",
    }.items():
        with pytest.raises(UserError, match=message):
            call(runs, *words)
    with pytest.raises(UserError, match="cannot be read"):
        call(runs / "missing")
    (runs / "empty").mkdir()
    with pytest.raises(UserError, match="There is no complete run"):
        call(runs / "empty")


def test_mixed_protocols_need_to_be_asked_for(runs: Path, call: Callable[..., str]) -> None:
    write_run(runs, 0.5, optimizer="sgd", protocol="domainbed")
    with pytest.raises(UserError, match=r"several protocols \(custom, domainbed\)"):
        call(runs)
    assert "ERM + sgd" in call(runs, "--mix-protocols")
    assert "ERM + sgd" not in call(runs, "--rows", ADAM, GENIE)


def test_unfinished_runs_are_left_out_and_told(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    next(runs.glob("*/done")).unlink()
    assert verb.run(parsed(runs)) == 0
    assert "1 of 8 runs are left out: not complete" in capsys.readouterr().err
