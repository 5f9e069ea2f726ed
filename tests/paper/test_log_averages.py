"""Means over logged runs, with answers worked out by hand."""

from __future__ import annotations

from pathlib import Path

from paper.log_averages import LoggedAverage, averages
from paper.log_files import read_log

from .log_trees import Record, write_log


def at_the_end(validation: float, test: float) -> list[Record]:
    return [(0, 0.0, 0.0, 0.0), (5000, validation, test, 0.0)]


def all_averages(tmp_path: Path) -> dict[tuple[str, str, str], LoggedAverage]:
    root = tmp_path / "train_output"
    runs = [read_log(path, root) for path in sorted(root.rglob("log.txt"))]
    return {(one.experiment, one.row, one.column): one for one in averages(runs)}


def test_the_best_draw_of_a_trial_repeats_averaged_then_the_mean_over_trials(tmp_path: Path) -> None:
    write_log(tmp_path, "a/250101_1", at_the_end(0.9, 0.50), trial=1, draw=3, batch=20)
    write_log(tmp_path, "a/250101_2", at_the_end(0.9, 0.60), trial=1, draw=3, batch=20)  # a repeat
    write_log(tmp_path, "a/250101_3", at_the_end(0.8, 0.99), trial=1, draw=4, batch=30)  # loses by validation
    write_log(tmp_path, "a/250101_4", at_the_end(0.7, 0.75), trial=2, draw=5, batch=10)
    one = all_averages(tmp_path)["optimizers", "SGD", "Art"]
    assert one.value == (55.0 + 75.0) / 2
    assert (one.runs, one.trials, one.draws) == (3, 2, 3)
    assert (one.batch, one.lr) == ("10 20", "5e-05")
    assert (one.seconds, one.step_seconds) == (100, 0.5)


def test_a_row_has_an_average_where_every_domain_is_there(tmp_path: Path) -> None:
    for domain, test in enumerate((0.1, 0.2, 0.3)):
        write_log(tmp_path, f"a/250101_{domain}", at_the_end(0.5, test), test=(domain,))
    assert ("optimizers", "SGD, defaults", "Avg") not in all_averages(tmp_path)
    write_log(tmp_path, "a/250101_3", at_the_end(0.5, 0.6), test=(3,))
    one = all_averages(tmp_path)["optimizers", "SGD, defaults", "Avg"]
    assert one.value == (10 + 20 + 30 + 60) / 4
    assert one.runs == 4


def test_a_long_run_is_read_at_three_levels_and_is_a_run_of_the_main_table(tmp_path: Path) -> None:
    records = [(0, 0.0, 0.0, 0.0), (5000, 0.5, 0.1, 0.0), (10000, 0.4, 0.2, 0.0), (15000, 0.6, 0.3, 0.9)]
    write_log(tmp_path, "a/250101_1", records, steps=15000)
    numbers = all_averages(tmp_path)
    values = [numbers["iterations", f"SGD@{level}", "Art"].value for level in (5000, 10000, 15000)]
    assert values == [10, 10, 30]
    assert [numbers["iterations", f"SGD@{level}", "Art"].seconds for level in (5000, 10000, 15000)] == [
        100,
        200,
        300,
    ]
    assert numbers["optimizers", "SGD, defaults", "Art"].value == 10
    assert numbers["optimizers", "SGD, defaults", "Art"].last is None  # it went on
    assert numbers["iterations", "SGD@15000", "Art"].oracle == 30


def test_a_run_that_was_stopped_is_left_out_and_others_have_a_place_of_their_own(tmp_path: Path) -> None:
    write_log(tmp_path, "a/250101_1", [(0, 0.0, 0.0, 0.0), (200, 0.5, 0.5, 0.5)])
    write_log(tmp_path, "a/250101_2", at_the_end(0.5, 0.5), optimizer="signum")
    write_log(tmp_path, "a/250101_3", at_the_end(0.5, 0.4), test=(1, 2, 3))
    write_log(tmp_path, "a/250101_4", at_the_end(0.5, 0.3), algorithm="RSC", optimizer="genie", draw=2)
    assert set(all_averages(tmp_path)) == {
        ("other", "ERM+Signum, resnet50, defaults, one left out", "Art"),
        ("single-source", "ERM+SGD", "Art"),
        ("integration", "RSC+GENIE", "Art"),
    }
