"""One log, as numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from paper.log_files import LoggedRun, read_log
from paper.request import PaperError

from .log_trees import Record, write_log

RECORDS: list[Record] = [(0, 0.1, 0.2, 0.3), (200, 0.9, 0.5, 0.6), (400, 0.9, 0.7, 0.4)]


def read(tmp_path: Path, folder: str = "PACS/ERM/[0]/250131_x_sgd", **options: object) -> LoggedRun:
    path = write_log(tmp_path, folder, RECORDS, **options)  # type: ignore[arg-type]
    return read_log(path, tmp_path / "train_output")


def test_what_a_log_says(tmp_path: Path) -> None:
    run = read(tmp_path, steps=400, trial=2, draw=9, batch=29)
    assert (run.folder, run.dataset, run.domain, run.one_source) == (
        "PACS/ERM/[0]/250131_x_sgd",
        "PACS",
        "Art",
        False,
    )
    assert (run.algorithm, run.optimizer, run.network, run.variant) == ("ERM", "SGD", "resnet50", "")
    assert (run.trial, run.draw, run.batch, run.pictures, run.steps) == (2, 9, 29, 87, 401)
    assert (run.lr, run.beta, run.p) == (5e-5, None, None)
    assert run.finished


def test_selection_takes_the_first_of_equal_validations(tmp_path: Path) -> None:
    run = read(tmp_path, steps=400)
    assert run.selected().step == 200
    assert run.selected().test == 50
    assert run.oracle().step == 200  # 0.6 of the held-back part
    assert run.selected(until=0).test == 20
    assert [record.step_seconds for record in run.records] == [9.0, 0.5, 0.5]


def test_times_are_by_the_clock_and_pass_the_end_of_a_month(tmp_path: Path) -> None:
    run = read(tmp_path, steps=400)
    assert [run.seconds(step) for step in (0, 200, 400)] == [0, 100, 200]


def test_a_run_that_was_stopped_is_not_finished(tmp_path: Path) -> None:
    assert not read(tmp_path).finished  # 5,001 steps unless it says otherwise


def test_their_classes_for_optimizers_are_optimizers_here(tmp_path: Path) -> None:
    drawn = {"convergence_rate": 0.02, "moving_avg": 0.94, "p": 0.6}
    own = read(tmp_path, "PACS/GENIE/[1]/250101_a", algorithm="GENIE", test=(1,), **drawn)
    assert (own.algorithm, own.optimizer, own.domain) == ("ERM", "GENIE", "Cartoon")
    assert (own.lr, own.beta, own.p) == (0.02, 0.94, 0.6)
    sam = read(tmp_path, "PACS/SAM/[2]/250101_b", algorithm="SAM", test=(2,))
    assert (sam.algorithm, sam.optimizer) == ("ERM", "SAM")
    inside = read(tmp_path, "PACS/RSC/[2]/250101_c", algorithm="RSC", optimizer="GENIE", test=(2,))
    assert (inside.algorithm, inside.optimizer, inside.lr, inside.beta, inside.p) == (
        "RSC",
        "GENIE",
        0.015,
        0.95,
        0.4,
    )


@pytest.mark.parametrize(
    ("algorithm", "name", "drawn", "variant", "beta", "p"),
    [
        ("GENIE_hp", "resnet50_sgd_ma0995", {"p": 0.4}, "beta=0.995", 0.995, 0.4),
        ("GENIE_hp_p", "resnet50_sgd_p0", {"moving_avg": 0.95}, "p=0.0", 0.95, 0.0),
        ("GENIE_hp_p", "resnet50_sgd_p08", {"moving_avg": 0.95}, "p=0.8", 0.95, 0.8),
        ("GENIE_p", "GENIE_p0", {"moving_avg": 0.93}, "precondition", 0.93, 0.0),
        ("GENIE_Noise", "GENIE_Noise1", {"moving_avg": 0.93}, "precondition+noise", 0.93, 0.0),
        ("GENIE_Mask", "GENIE_Mask1", {"moving_avg": 0.93, "p": 0.6}, "precondition+mask", 0.93, 0.6),
    ],
)
def test_variants(
    tmp_path: Path, algorithm: str, name: str, drawn: dict[str, float], variant: str, beta: float, p: float
) -> None:
    run = read(
        tmp_path, f"PACS/{algorithm}/[0]/250101_{name}", algorithm=algorithm, convergence_rate=0.01, **drawn
    )
    assert (run.variant, run.beta, run.p, run.lr) == (variant, beta, p, 0.01)


def test_one_source(tmp_path: Path) -> None:
    run = read(tmp_path, "PACS/ERM/[0, 1, 3]/250101_a", test=(0, 1, 3))
    assert (run.domain, run.one_source, run.pictures) == ("Photo", True, 32)


def test_another_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("hello\n")
    with pytest.raises(PaperError, match="has no section 'Args', so it is not a log of the authors' training"):
        read_log(path, tmp_path)
