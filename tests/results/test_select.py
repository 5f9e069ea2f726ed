"""The three rules: by hand, and against slow twins."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from genie_dg.results.schema import ResultsError, Run
from genie_dg.results.select import Case, Chosen, Missing, Row, cases, select

from .build import PACS, random_run, record, run


def only(runs: list[Run], method: str, test: tuple[int, ...] = (0,)) -> Chosen | Missing:
    found = [answer for case, answer in select(runs, method).items() if case.test_domains == test]
    assert len(found) == 1
    return found[0]


def chosen(runs: list[Run], method: str, test: tuple[int, ...] = (0,)) -> Chosen:
    answer = only(runs, method, test)
    assert isinstance(answer, Chosen), answer
    return answer


def reason(runs: list[Run], method: str) -> str:
    answer = only(runs, method)
    assert isinstance(answer, Missing), answer
    return answer.reason


def simple(step: int, test_in: float, test_out: float, validation: float) -> dict[str, Any]:
    """A record of a run that leaves out domain 0."""
    return record(step, [test_in, 0.9, 0.9, 0.9], [test_out, validation, validation, validation])


def test_training_domain_takes_the_mean_of_the_out_parts_of_the_sources() -> None:
    first = record(0, [0.1, 0, 0, 0], [1.0, 0.3, 0.6, 0.9])  # mean 0.6
    second = record(100, [0.2, 1, 1, 1], [0.0, 0.6, 0.6, 0.9])  # mean 0.7
    third = record(200, [0.3, 1, 1, 1], [1.0, 0.9, 0.6, 0.3])  # mean 0.6
    answer = chosen([run([0], [first, second, third])], "training-domain")
    assert (answer.step, answer.scores) == (100, (0.2,))
    assert answer.value == pytest.approx(0.7)


def test_the_first_maximum_of_a_run_counts() -> None:
    records = [simple(0, 0.1, 0.1, 0.5), simple(100, 0.2, 0.1, 0.75), simple(200, 0.3, 0.1, 0.75)]
    assert chosen([run([0], records)], "training-domain").step == 100


@pytest.mark.parametrize("method", ["training-domain", "oracle"])
def test_at_a_tie_between_runs_the_largest_seed_counts(method: str) -> None:
    runs = [run([0], [simple(0, draw / 10, 0.5, 0.5)], draw=draw) for draw in (3, 0, 10, 2)]
    answer = chosen(runs, method)
    assert (answer.run.config.hparams_seed, answer.scores, answer.draws) == (10, (1.0,), 4)
    better = run([0], [simple(0, 0.0, 0.75, 0.75)], draw=1)
    assert chosen([*runs, better], method).run is better


@pytest.mark.parametrize(
    ("protocol", "step"), [("domainbed", 200), ("genie-paper", 100), ("custom", 200), ("domainbed-other", 200)]
)
def test_what_the_oracle_sees_depends_on_the_protocol(protocol: str, step: int) -> None:
    records = [simple(0, 0.1, 0.2, 1.0), simple(100, 0.2, 0.9, 0.5), simple(200, 0.3, 0.4, 0.1)]
    answer = chosen([run([0], records, protocol=protocol)], "oracle")
    assert (answer.step, answer.value) == (step, 0.9 if step == 100 else 0.4)


def loo_runs(values: dict[int, list[float]], draw: int = 0, **more: Any) -> list[Run]:
    """A run that leaves out 0 and its partners; ``values[v]`` is ``in_acc[v]`` of the partner at each step."""
    steps = range(len(next(iter(values.values()))))
    own = run([0], [record(100 * k, [k / 10, 0, 0, 0], [1, 1, 1, 1]) for k in steps], draw=draw, **more)
    partners = []
    for v, accuracies in values.items():
        records = [
            record(100 * k, [a if d == v else 0.99 for d in range(4)], [1] * 4)
            for k, a in enumerate(accuracies)
        ]
        partners.append(run([0, v], records, draw=draw, **more))
    return [own, *partners]


def test_leave_one_domain_out_judges_a_run_by_its_partners() -> None:
    runs = loo_runs({1: [0.5, 0.75, 0.5], 2: [0.5, 0.5, 0.75], 3: [0.5, 0.5, 0.5]})
    answer = chosen(runs, "leave-one-domain-out")
    assert (answer.step, answer.scores, answer.run, answer.note) == (100, (0.1,), runs[0], "")
    assert answer.value == (0.75 + 0.5 + 0.5) / 3


def test_leave_one_domain_out_ties_go_to_the_largest_seed() -> None:
    low, high = (loo_runs({v: [0.5, 0.25] for v in (1, 2, 3)}, draw=draw) for draw in (1, 7))
    assert chosen([*high, *low], "leave-one-domain-out").run.config.hparams_seed == 7


def test_a_draw_without_all_partners_cannot_be_chosen() -> None:
    whole = loo_runs({v: [0.25] for v in (1, 2, 3)}, draw=0)
    partial = loo_runs({v: [0.75] for v in (1, 3)}, draw=1)
    answer = chosen([*whole, *partial], "leave-one-domain-out")
    assert (answer.run.config.hparams_seed, answer.draws) == (0, 1)
    assert "1 of 2 draws" in answer.note
    assert "hparams seed 1: photo" in answer.note
    words = reason(partial, "leave-one-domain-out")
    assert "1 of 1 draws" in words
    assert "photo" in words


def test_a_partner_must_be_complete_and_of_the_same_trial_row_and_draw() -> None:
    own, *partners = loo_runs({v: [0.5] for v in (1, 2, 3)})
    last = [record(0, [0.5] * 4, [1] * 4)]
    for stranger in (
        run([0, 3], last, done=False),
        run([0, 3], last, trial=1),
        run([0, 3], last, draw=1),
        run([0, 3], last, algorithm="IRM"),
        run([0, 3], last, batch_size=8),
    ):
        assert "sketch" in reason([own, *partners[:2], stranger], "leave-one-domain-out")
    assert isinstance(only([own, *partners], "leave-one-domain-out"), Chosen)


def test_leave_one_domain_out_uses_the_steps_that_all_have() -> None:
    own, one, two, three = loo_runs({v: [0.1, 0.2, 0.9] for v in (1, 2, 3)})
    short = run([0, 3], three.records()[:2])
    assert chosen([own, one, two, short], "leave-one-domain-out").step == 100
    later = run([0, 3], [record(7, [0.5] * 4, [1] * 4)])
    assert "at the same step" in reason([own, one, two, later], "leave-one-domain-out")


def test_leave_one_domain_out_needs_two_sources() -> None:
    two = run([0], [record(0, [0.5, 0.5], [0.5, 0.5])], domains=("a", "b"))
    assert "two training domains" in reason([two], "leave-one-domain-out")


@pytest.mark.parametrize("method", ["training-domain", "oracle", "leave-one-domain-out"])
def test_unfinished_and_empty_runs_are_told(method: str) -> None:
    half = run([0], [simple(0, 1, 1, 1)], done=False, failures=["out of memory", "The disk is full.\nmore"])
    empty = run([0], [], draw=1)
    words = reason([half, empty], method)
    assert "1 of 2 runs unfinished" in words
    assert "1 of 2 runs without records" in words
    assert "the last failure was: The disk is full" in words
    assert "more" not in words.replace("one more domain", "")


def test_an_unfinished_run_is_not_chosen_but_noted() -> None:
    good = run([0], [simple(0, 0.3, 0.2, 0.2)])
    half = run([0], [simple(0, 1, 1, 1)], draw=1, done=False)
    answer = chosen([good, half], "training-domain")
    assert (answer.run, answer.draws, answer.note) == (good, 1, "1 of 2 runs unfinished")


def test_swad_is_a_row_of_its_own_with_one_record() -> None:
    plain = run([0], [simple(0, 0.1, 0.1, 0.9)])
    swad = run([0], [simple(0, 0.2, 0.1, 0.9)], swad=True, averaged=simple(50, 0.7, 0.1, 0.3))
    answers = {case.row.algorithm: answer for case, answer in select([plain, swad]).items()}
    assert set(answers) == {"ERM", "ERM+SWAD"}
    averaged = answers["ERM+SWAD"]
    assert isinstance(averaged, Chosen)
    assert (averaged.step, averaged.scores) == (50, (0.7,))
    assert isinstance(next(iter(select([run([0], [simple(0, 0, 0, 0)], swad=True)]).values())), Missing)


def test_several_test_domains_each_have_a_score() -> None:
    records = [record(0, [0.1, 0.2, 0.3, 0.9], [0, 0, 0, 0.5]), record(9, [0.4, 0.5, 0.6, 0.9], [0, 0, 0, 0.6])]
    answer = chosen([run([0, 1, 2], records)], "training-domain", (0, 1, 2))
    assert (answer.scores, answer.value) == ((0.4, 0.5, 0.6), 0.6)


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ResultsError, match="did you mean 'oracle'"):
        select([], "oracel")


def test_cases_are_sorted_by_seed() -> None:
    runs = [run([0], [], draw=draw) for draw in (2, 10, 1)]
    case = Case("PACS", PACS, Row("ERM", "adam", "resnet50", "domainbed"), (0,), 0)
    assert [r.config.hparams_seed for r in cases(runs)[case]] == [1, 2, 10]


# Slow twins: plain loops over plain records, straight from the words of the protocol.


def twin_alone(runs: list[Run], test: tuple[int, ...], kind: str) -> tuple[int, int, float] | None:
    """(hparams seed, step, value) for training-domain ("iid"), or the oracle of "last" or "best"."""
    best = None
    for draw in sorted(r.config.hparams_seed for r in runs if r.done and r.config.test_domains == test):
        (member,) = [r for r in runs if r.config.hparams_seed == draw and r.config.test_domains == test]
        records, of_run = member.records(), None
        for one in records[-1:] if kind == "last" else records:
            total, n = 0.0, 0
            for k, accuracy in enumerate(one["out_acc"]):
                if (k in test) == (kind != "iid"):
                    total, n = total + accuracy, n + 1
            if of_run is None or total / n > of_run[1]:
                of_run = (one["step"], total / n)
        assert of_run is not None
        if best is None or of_run[1] >= best[2]:
            best = (draw, of_run[0], of_run[1])
    return best


def twin_in_turn(runs: list[Run], t: int, domains: int) -> tuple[int, int, float] | None:
    by_key = {(r.config.hparams_seed, r.config.test_domains): r.records() for r in runs if r.done}
    best = None
    for draw in sorted({draw for draw, test in by_key if test == (t,)}):
        of_run = None
        for one in by_key[draw, (t,)]:
            total, complete = 0.0, True
            for v in range(domains):
                if v == t:
                    continue
                partner = by_key.get((draw, tuple(sorted((t, v)))), [])
                same = [other for other in partner if other["step"] == one["step"]]
                complete = complete and len(same) == 1
                total += same[0]["in_acc"][v] if same else 0.0
            if complete and (of_run is None or total / (domains - 1) > of_run[1]):
                of_run = (one["step"], total / (domains - 1))
        if of_run is not None and (best is None or of_run[1] >= best[2]):
            best = (draw, of_run[0], of_run[1])
    return best


def told(answer: Chosen | Missing | None) -> tuple[int, int, float] | None:
    if isinstance(answer, Chosen):
        record_of_step = next(r for r in answer.run.records() if r["step"] == answer.step)
        assert answer.scores == tuple(record_of_step["in_acc"][k] for k in answer.run.config.test_domains)
        return answer.run.config.hparams_seed, answer.step, answer.value
    return None


@pytest.mark.parametrize("seed", range(40))
def test_against_the_twins(seed: int) -> None:
    random = np.random.default_rng(seed)
    protocol, count = ("domainbed", "genie-paper")[seed % 2], int(random.integers(3, 6))
    runs = []
    for draw in range(4):
        for test in [(k,) for k in range(count)] + list(combinations(range(count), 2)):
            if random.random() < 0.95:
                done = bool(random.random() < 0.95)
                runs.append(random_run(random, test, count, draw=draw, done=done, protocol=protocol))
    random.shuffle(runs)  # type: ignore[arg-type]
    iid, oracle, loo = (select(runs, m) for m in ("training-domain", "oracle", "leave-one-domain-out"))
    rule = "last" if protocol == "domainbed" else "best"
    for case, answer in iid.items():
        assert told(answer) == twin_alone(runs, case.test_domains, "iid")
        assert told(oracle[case]) == twin_alone(runs, case.test_domains, rule)
    assert len(loo) == len({case for case in iid if len(case.test_domains) == 1})
    for case, answer in loo.items():
        assert told(answer) == twin_in_turn(runs, case.test_domains[0], count)
