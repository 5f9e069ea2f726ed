"""The ledger of claims: the rule for verdicts on hand-made numbers, and a whole ledger in miniature."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from scipy import stats

from genie_dg.bench.assemble import assemble
from genie_dg.bench.train import train
from genie_dg.data.registry import open_data
from genie_dg.runs.config import RunConfig
from paper.claim_runs import SIZES, ClaimRuns
from paper.figure_setup import SMALL
from paper.ledger import CLAIMS, entries, make_claims, markdown
from paper.request import PaperError, Request
from paper.verdict import FAILS, HOLDS, NOT_MEASURED, UNDECIDED, Interval, interval_of, judge, verdict


def test_the_interval_is_students() -> None:
    values = [0.2, 1.5, -0.3, 0.9]
    found = interval_of(values, 0.9)
    low, high = stats.t.interval(0.9, 3, loc=sum(values) / 4, scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx((low, high))
    assert found.count == 4


@pytest.mark.parametrize("values", [[], [1.0], [1.0, math.nan], [math.inf, 1.0]])
def test_too_little_for_an_interval_is_refused(values: list[float]) -> None:
    with pytest.raises(PaperError, match="two or more"):
        interval_of(values)


@pytest.mark.parametrize(
    ("low", "high", "above", "below"),
    [
        (0.1, 0.9, HOLDS, FAILS),
        (-0.9, -0.1, FAILS, HOLDS),
        (-0.1, 0.9, UNDECIDED, UNDECIDED),
        (0.0, 0.9, UNDECIDED, UNDECIDED),
        (-0.9, 0.0, UNDECIDED, UNDECIDED),
        (-math.inf, math.inf, UNDECIDED, UNDECIDED),
        (0.5, math.inf, UNDECIDED, UNDECIDED),
    ],
)
def test_a_verdict_needs_the_whole_interval(low: float, high: float, above: str, below: str) -> None:
    interval = Interval(0.0, low, high, 3)
    assert verdict(interval, "above", 0.0) == above
    assert verdict(interval, "below", 0.0) == below


def test_no_number_no_verdict() -> None:
    assert verdict(None, "above", 0.0) == NOT_MEASURED
    assert judge({}, "above", 0.0).verdict == NOT_MEASURED
    assert {entry.judged.verdict for entry in entries({})} == {NOT_MEASURED}


def test_all_parts_must_hold() -> None:
    clear, unclear, wrong = [1.0, 1.01, 0.99], [0.1, -0.2, 0.4], [-1.0, -1.01, -0.99]
    assert judge({"a": clear, "b": clear}, "above", 0.0).verdict == HOLDS
    found = judge({"a": clear, "b": unclear}, "above", 0.0)
    assert (found.verdict, found.part) == (UNDECIDED, "b")
    far_but_noisy = [-40.0, 10.0, -30.0]
    found = judge({"a": far_but_noisy, "b": wrong, "c": clear}, "above", 0.0)
    assert (found.verdict, found.part) == (FAILS, "b")
    assert judge({"a": wrong, "b": wrong}, "below", 0.0).verdict == HOLDS


def test_several_parts_widen_the_intervals() -> None:
    values = [0.9, 1.0, 1.4, 0.2]  # 95 % holds with one part, and not with twenty
    assert judge({"a": values}, "above", 0.0).verdict == HOLDS
    found = judge({str(k): values for k in range(20)}, "above", 0.0)
    assert found.verdict == UNDECIDED
    assert found.interval is not None
    assert found.interval.level == pytest.approx(1 - 0.05 / 20)


def test_accuracy_is_that_of_the_best_validation_on_sources(tmp_path: Path) -> None:
    data = open_data("digits")
    config = RunConfig(data.name, (0,), backbone="mlp", batch_size=4, steps=6, checkpoint_every=2)
    runs = ClaimRuns(data, config, SIZES["smoke"], tmp_path, {one.label: one for one in SMALL})
    run = runs.config_of(runs.tuned("Adam"), 1)
    assert run.test_domains == (len(data.domains) - 2,)
    accuracy, validation = runs.accuracy(run), runs.validation(run)
    records = train(assemble(run, data), tmp_path / run.run_id)
    best = max(records, key=lambda record: record.validation(run.test_domains))
    assert len({record.test(run.test_domains) for record in records}) > 1
    assert validation == pytest.approx(best.validation(run.test_domains))
    assert accuracy == pytest.approx(100 * best.test(run.test_domains))


def test_the_ledger_names_each_claim_once_and_has_paper_commands(tmp_path: Path) -> None:
    names = [claim.name for claim in CLAIMS]
    assert len(set(names)) == len(names)
    result = make_claims(Request("paper", tmp_path))
    assert result.files == ()
    assert list(tmp_path.iterdir()) == []
    assert result.text.count("\n# ") == len(CLAIMS)
    commands = [x for x in result.text.splitlines() if x.startswith(("genie-dg ", "python -m paper "))]
    assert len(commands) > len(CLAIMS)


def test_the_paper_commands_are_accepted_by_the_command_line(tmp_path: Path) -> None:
    import argparse
    import shlex

    from genie_dg.cli import train

    parser = argparse.ArgumentParser()
    train.add_arguments(parser)
    commands = [line for claim in CLAIMS for line in claim.paper.splitlines() if " train " in line]
    assert commands
    for line in commands:
        parsed = parser.parse_args(shlex.split(line)[2:])
        assert parsed.steps == 5001


def test_a_claim_without_numbers_is_named_and_has_no_verdict() -> None:
    text = markdown(entries({"rate": {"SGD": [0.01, 0.02, 0.01]}}))
    table, missing = text.split("\n\n")
    assert len(table.splitlines()) == 3
    assert "| **holds** |" in table
    assert missing.startswith("Not measured in this run: accuracy, osgr,")
    assert missing.count(",") == len(CLAIMS) - 2


def test_some_claims_can_be_measured_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from paper.__main__ import main

    words = ["claims", "--out", str(tmp_path)]
    assert main([*words, "--only", "scale-free"]) == 0
    said = capsys.readouterr().out
    assert "With scale_free nothing needs to be tuned" in said
    assert "Not measured in this run: accuracy, osgr, " in said
    assert main([*words, "--only", "scale_free"]) == 2
    assert "did you mean 'scale-free'?" in capsys.readouterr().err
    assert main(["umap", "--only", "scale-free"]) == 2
    assert "--only is for claims, and umap has none" in capsys.readouterr().err
