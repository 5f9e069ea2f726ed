"""The committed CSV files are those that a clone of the authors' repository gives."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paper.extract_logs import LoggedRun, extract, read_log
from paper.logged import FOLDER
from paper.request import PaperError

CLONE = Path(os.environ.get("GENIE_DG_AUTHORS", "no clone"))

LOG = """Args:
\talgorithm: {algorithm}
\tdataset: PACS
\thparams_seed: 9
\tsteps: 400
\ttrial_seed: 2
\ttest_envs: {test}
HParams:
\tresnet_dropout: 0.1
\toptimizer: sgd
\tlr: 5e-05
\tmodel: resnet50
{drawn}Dataset:
INFO 01/31 23:59:00 | Batch sizes for each domain: [0, 29, 29, 29] (total=87)
INFO 01/31 23:59:00 | test_in test_out train_out step step_time eval_time
INFO 01/31 23:59:00 | 0.2 0.3 0.1 0 9.0 30.0
INFO 02/01 00:00:40 | 0.5 0.6 0.9 200 0.5 30.0
INFO 02/01 00:02:20 | 0.7 0.4 0.9 400 0.5 30.0
"""


def read(
    tmp_path: Path, algorithm: str = "ERM", name: str = "x", test: str = "[0]", drawn: str = ""
) -> LoggedRun:
    path = tmp_path / f"250131_{name}" / "log.txt"
    path.parent.mkdir()
    path.write_text(LOG.format(algorithm=algorithm, test=test, drawn=drawn), encoding="utf-8")
    return read_log(path, tmp_path)


@pytest.mark.skipif(
    not CLONE.is_dir(), reason="no clone of the authors' repository; name it in GENIE_DG_AUTHORS"
)
def test_the_clone_gives_the_committed_files() -> None:
    for name, text in extract(CLONE).items():
        assert (FOLDER / name).read_text(encoding="utf-8") == text, name


def test_what_a_log_says(tmp_path: Path) -> None:
    run = read(tmp_path)
    assert (run.dataset, run.domain, run.one_source, run.algorithm, run.optimizer) == (
        "PACS", "Art", False, "ERM", "SGD",
    )  # fmt: skip
    assert (run.trial, run.draw, run.batch, run.pictures, run.steps, run.lr) == (2, 9, 29, 87, 401, 5e-5)
    assert run.finished
    assert (run.selected(400).step, run.selected(400).test, run.selected(0).test) == (200, 50, 20)
    assert run.oracle().step == 200
    assert [run.seconds(step) for step in (0, 200, 400)] == [0, 100, 200]  # past the end of a month


@pytest.mark.parametrize(
    ("algorithm", "name", "drawn", "variant", "beta", "p"),
    [
        ("GENIE", "a", "\tmoving_avg: 0.94\n\tp: 0.6\n", "", 0.94, 0.6),
        ("GENIE_hp", "sgd_ma0995", "\tp: 0.4\n", "beta=0.995", 0.995, 0.4),
        ("GENIE_hp_p", "sgd_p0", "\tmoving_avg: 0.95\n", "p=0.0", 0.95, 0.0),
        ("GENIE_p", "GENIE_p0", "\tmoving_avg: 0.93\n", "precondition", 0.93, 0.0),
        ("GENIE_Mask", "GENIE_Mask1", "\tmoving_avg: 0.93\n\tp: 0.6\n", "precondition+mask", 0.93, 0.6),
    ],
)
def test_their_classes_of_genie_are_variants(
    tmp_path: Path, algorithm: str, name: str, drawn: str, variant: str, beta: float, p: float
) -> None:
    run = read(tmp_path, algorithm, name, drawn=f"\tconvergence_rate: 0.01\n{drawn}")
    assert (run.algorithm, run.optimizer, run.variant, run.beta, run.p, run.lr) == (
        "ERM", "GENIE", variant, beta, p, 0.01,
    )  # fmt: skip


def test_one_source_and_other_texts(tmp_path: Path) -> None:
    run = read(tmp_path, test="[0, 1, 3]")
    assert (run.domain, run.one_source) == ("Photo", True)
    (tmp_path / "log.txt").write_text("hello\n")
    with pytest.raises(PaperError, match="has no section 'Args', so it is not a log of the authors' training"):
        read_log(tmp_path / "log.txt", tmp_path)
