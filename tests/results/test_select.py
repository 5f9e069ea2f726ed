"""The three rules: by hand, and against slow twins."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from genie_dg.results.select import Case, SelectedRun, cases, select

from .build import DIVERGED, PACS, Run, failed, frame_of, random_run, record, run


def only(runs: list[Run], method: str, test: tuple[int, ...] = (0,)) -> SelectedRun:
    answers = [choice for case, choice in select(frame_of(runs), method).items() if case.test_domains == test]
    assert len(answers) == 1
    return answers[0]


def chosen(runs: list[Run], method: str, test: tuple[int, ...] = (0,)) -> SelectedRun:
    choice = only(runs, method, test)
    assert choice.missing == ""
    return choice


def reason(runs: list[Run], method: str) -> str:
    choice = only(runs, method)
    assert choice.missing
    assert (choice.run, choice.scores, choice.draws) == ("", (), 0)
    return choice.missing


def draw_of(choice: SelectedRun, runs: list[Run]) -> int:
    (one,) = [one for one in runs if one.run_id == choice.run]
    return one.config.hparams_seed


def simple(step: int, test_in: float, test_out: float, validation: float) -> dict[str, Any]:
    """A record of a run that leaves out domain 0."""
    return record(step, [test_in, 0.9, 0.9, 0.9], [test_out, validation, validation, validation])


@pytest.mark.parametrize("method", ["training-domain", "oracle"])
def test_at_a_tie_between_runs_the_largest_seed_counts(method: str) -> None:
    runs = [run([0], [simple(0, draw / 10, 0.5, 0.5)], draw=draw) for draw in (3, 0, 10, 2)]
    answer = chosen(runs, method)
    assert (draw_of(answer, runs), answer.scores, answer.draws) == (10, (1.0,), 4)
    better = run([0], [simple(0, 0.0, 0.75, 0.75)], draw=1)
    assert chosen([*runs, better], method).run == better.run_id


@pytest.mark.parametrize(
    ("protocol", "oracle", "step"),
    [
        ("domainbed", "", 200),
        ("genie-paper", "", 100),
        ("genie-paper/changed", "", 100),
        ("custom", "", 200),
        ("domainbed-other", "", 200),
        ("mine", "best", 100),
        ("mine/changed", "best", 100),
        ("mine", "last", 200),
        ("genie-paper", "last", 200),
    ],
)
def test_what_the_oracle_sees_is_the_runs_own_rule(protocol: str, oracle: str, step: int) -> None:
    records = [simple(0, 0.1, 0.2, 1.0), simple(100, 0.2, 0.9, 0.5), simple(200, 0.3, 0.4, 0.1)]
    runs = [run([0], records, protocol=protocol, oracle=oracle)]
    answer = chosen(runs, "oracle")
    assert (answer.step, answer.value, answer.score) == ((100, 0.9, 0.2) if step == 100 else (200, 0.4, 0.3))
    assert chosen(runs, "training-domain").step == 0


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
    assert (answer.step, answer.scores, answer.run, answer.note) == (100, (0.1,), runs[0].run_id, "")
    assert answer.value == (0.75 + 0.5 + 0.5) / 3


def test_a_draw_without_all_partners_cannot_be_chosen() -> None:
    whole = loo_runs({v: [0.25] for v in (1, 2, 3)}, draw=0)
    partial = loo_runs({v: [0.75] for v in (1, 3)}, draw=1)
    answer = chosen([*whole, *partial], "leave-one-domain-out")
    assert (answer.run, answer.draws) == (whole[0].run_id, 1)
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
    assert chosen([own, *partners], "leave-one-domain-out").run == own.run_id


def test_leave_one_domain_out_uses_the_steps_that_all_have() -> None:
    own, one, two, three = loo_runs({v: [0.1, 0.2, 0.9] for v in (1, 2, 3)})
    short = run([0, 3], three.records[:2])
    assert chosen([own, one, two, short], "leave-one-domain-out").step == 100
    later = run([0, 3], [record(7, [0.5] * 4, [1] * 4)])
    assert "at the same step" in reason([own, one, two, later], "leave-one-domain-out")


@pytest.mark.parametrize("method", ["training-domain", "oracle", "leave-one-domain-out"])
def test_unfinished_and_empty_runs_are_counted(method: str) -> None:
    half = run(
        [0], [simple(0, 1, 1, 1)], done=False, outcomes=failed("out of memory", "\nThe disk is full.\nmore")
    )
    empty = run([0], [], draw=1)
    words = reason([half, empty], method)
    assert "1 of 2 runs unfinished" in words
    assert "1 of 2 runs without records" in words
    assert "the last failure was: The disk is full" in words
    assert "more" not in words.replace("one more domain", "")


@pytest.mark.parametrize("method", ["training-domain", "oracle"])
def test_a_run_that_diverged_is_a_draw_that_is_never_chosen(method: str) -> None:
    """Beside a complete run; alone it is an unfinished run with a reason."""
    good = run([0], [simple(0, 0.3, 0.2, 0.2)])
    reasons = (*failed("out of memory"), DIVERGED)
    ended = run([0], [simple(0, 1, 1, 1)], draw=1, done=False, outcomes=reasons)
    empty = run([0], [], draw=2, done=False, outcomes=reasons)
    killed = run([0], [simple(0, 1, 1, 1)], draw=3, done=False, outcomes=reasons[::-1])
    answer = chosen([good, ended], method)
    assert (answer.run, answer.draws, answer.note) == (good.run_id, 2, "")
    answer = chosen([good, ended, empty, killed], method)
    assert (answer.run, answer.draws) == (good.run_id, 2)
    assert answer.note == "2 of 4 runs unfinished, the last failure was: out of memory"
    last = str(DIVERGED).rstrip(".")
    assert reason([ended], method) == f"1 of 1 runs unfinished, the last failure was: {last}"


def test_swad_is_a_row_of_its_own_with_one_record() -> None:
    plain = run([0], [simple(0, 0.1, 0.1, 0.9)])
    swad = run([0], [simple(0, 0.2, 0.1, 0.9)], swad=True, averaged=simple(50, 0.7, 0.1, 0.3))
    for method in ("training-domain", "oracle"):
        answers = {case.algorithm: choice for case, choice in select(frame_of([plain, swad]), method).items()}
        assert set(answers) == {"ERM", "ERM+SWAD"}
        averaged = answers["ERM+SWAD"]
        assert (averaged.step, averaged.scores, averaged.row) == (50, (0.7,), "ERM+SWAD + adam")
    assert (
        reason([run([0], [simple(0, 0, 0, 0)], swad=True)], "training-domain") == "1 of 1 runs without records"
    )


def test_leave_one_domain_out_of_swad_looks_at_the_averages() -> None:
    first = [record(0, [0.9] * 4, [1] * 4)]
    own, *partners = [
        run(test, first, swad=True, averaged=record(50, [0.25, 0.5, 0.5, 0.5], [1] * 4))
        for test in ([0], [0, 1], [0, 2], [0, 3])
    ]
    answer = chosen([own, *partners], "leave-one-domain-out")
    assert (answer.step, answer.scores, answer.value) == (50, (0.25,), 0.5)


def test_a_run_that_trains_on_no_domain_is_chosen_by_the_oracle_only() -> None:
    runs = [run([0, 1], [record(0, [0.25, 0.75], [0.5, 1.0])], domains=("a", "b"))]
    frame = frame_of(runs)
    (choice,) = select(frame, "training-domain").values()
    assert choice.missing == "no domain was trained on"
    (choice,) = select(frame, "oracle").values()
    assert (choice.value, choice.scores, choice.score) == (0.75, (0.25, 0.75), 0.5)
    assert select(frame, "leave-one-domain-out") == {}


def test_a_case_is_what_is_compared() -> None:
    runs = [run([0], [simple(0, 0.1, 0.1, 0.5)], draw=draw) for draw in (2, 10, 1)]
    frame = frame_of([*runs, run([0], [], trial=1)])
    case = Case("PACS", PACS, "ERM", "adam", "resnet50", "domainbed", (0,), 0)
    assert set(cases(frame)) == {case, case._replace(trial=1)}
    choices = select(frame)
    assert (choices[case].draws, choices[case].row) == (3, "ERM + adam")
    assert choices[case._replace(trial=1)].missing == "1 of 1 runs without records"


# Slow twins: plain loops over plain records, straight from the words of the protocol.


def twin_alone(runs: list[Run], test: tuple[int, ...], kind: str) -> tuple[int, int, float] | None:
    """(hparams seed, step, value) for training-domain ("iid"), or the oracle of "last" or "best"."""
    best = None
    for draw in sorted(r.config.hparams_seed for r in runs if r.done and r.config.test_domains == test):
        (member,) = [r for r in runs if r.config.hparams_seed == draw and r.config.test_domains == test]
        records, of_run = member.records, None
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
    by_key = {(r.config.hparams_seed, r.config.test_domains): r.records for r in runs if r.done}
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


def as_twin(choice: SelectedRun, runs: dict[str, Run]) -> tuple[int, int, float] | None:
    if choice.missing:
        return None
    one = runs[choice.run]
    (same,) = [line for line in one.records if line["step"] == choice.step]
    assert choice.scores == tuple(same["in_acc"][k] for k in one.config.test_domains)
    return one.config.hparams_seed, choice.step, choice.value


@pytest.mark.parametrize("seed", range(30))
def test_against_the_twins(seed: int) -> None:
    random = np.random.default_rng(seed)
    protocol, count = ("domainbed", "genie-paper")[seed % 2], int(random.integers(3, 6))
    runs = []
    for draw in range(4):
        for test in [(k,) for k in range(count)] + list(combinations(range(count), 2)):
            if random.random() < 0.95:
                done = bool(random.random() < 0.95)
                runs.append(random_run(random, test, count, draw=draw, done=done, protocol=protocol))
    by_id = {one.run_id: one for one in runs}
    frame = frame_of(runs).sample(fraction=1, shuffle=True, seed=seed)  # the order of the runs is no matter
    iid, oracle, loo = (select(frame, m) for m in ("training-domain", "oracle", "leave-one-domain-out"))
    rule = "last" if protocol == "domainbed" else "best"
    for case, choice in iid.items():
        assert as_twin(choice, by_id) == twin_alone(runs, case.test_domains, "iid")
        assert as_twin(oracle[case], by_id) == twin_alone(runs, case.test_domains, rule)
    assert len(loo) == len({case for case in iid if len(case.test_domains) == 1})
    for case, choice in loo.items():
        assert as_twin(choice, by_id) == twin_in_turn(runs, case.test_domains[0], count)
