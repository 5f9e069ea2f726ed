"""The committed CSV files are those that a clone of the authors' repository gives."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

from paper.logged import FOLDER

CLONE = Path(os.environ.get("GENIE_DG_AUTHORS", "no clone"))
SCRIPT = runpy.run_path(str(FOLDER / "extract_logs.py"))
LOG = """Args:
\talgorithm: GENIE_hp
\tdataset: PACS
\thparams_seed: 9
\ttrial_seed: 2
\ttest_envs: [0, 1, 3]
HParams:
\tresnet_dropout: 0.1
\toptimizer: sgd
\tlr: 5e-05
\tmodel: resnet50
\tconvergence_rate: 0.01
INFO 01/31 23:58:50 | n_steps is updated to 401 => 401 for checkpointing
INFO 01/31 23:58:50 | Batch sizes for each domain: [0, 0, 29, 0] (total=29)
INFO 01/31 23:59:00 | test_in test_out train_out step step_time eval_time
INFO 01/31 23:59:00 | 0.2 0.3 0.1 0 9.0 30.0
INFO 02/01 00:00:40 | 0.5 0.6 0.9 200 0.5 20.0
INFO 02/01 00:02:20 | 0.7 0.4 0.9 400 0.7 10.0
"""


@pytest.mark.skipif(
    not CLONE.is_dir(), reason="no clone of the authors' repository; name it in GENIE_DG_AUTHORS"
)
def test_the_clone_gives_the_committed_files() -> None:
    pytest.importorskip("tensorboard", reason="the OSGR is in event files of TensorBoard")
    given = {name: text.encode() for name, text in SCRIPT["extract"](CLONE).items()}
    assert given == {path.name: path.read_bytes() for path in FOLDER.glob("*.csv")}


def test_what_a_log_says() -> None:
    run, evaluations = SCRIPT["read_log"](LOG, "PACS/GENIE_hp/250131_sgd_ma0995")
    expected = {
        "domain": "Photo", "one_source": 1, "algorithm": "ERM", "optimizer": "GENIE", "variant": "beta=0.995",
        "trial": 2, "draw": 9, "batch": 29, "lr": 0.01, "beta": 0.995, "p": 0.4, "steps": 401, "finished": 1,
    }  # fmt: skip
    assert {name: run[name] for name in expected} == expected
    assert SCRIPT["results"](evaluations, 400) == pytest.approx(
        {
            "selected_step": 200, "validation": 90, "selected": 50, "oracle": 50, "last": 70,
            "step_seconds": 0.6, "evaluation_seconds": 20, "seconds": 200,
        }
    )  # fmt: skip
