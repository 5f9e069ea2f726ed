"""Tables of numbers on the command line: real data of scikit-learn, from a CSV file to predictions."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from sklearn.datasets import load_breast_cancer

from genie_dg.cli.main import main
from tests.data.pictures import folder
from tests.data.test_picture_tables import parquet

FLAGS = ["--domain-column", "site", "--label-column", "diagnosis", "--ignore-column", "number"]
SHORT = ["--steps", "40", "--every", "20", "--quiet"]


@pytest.fixture(scope="module")
def cancer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Breast cancer, its domains the quarters of one column, which is left out; one value is missing."""
    data = load_breast_cancer()
    names = [str(name).replace(" ", "_") for name in data.feature_names]
    texture = data.data[:, 1]
    quarter = np.searchsorted(np.quantile(texture, [0.25, 0.5, 0.75]), texture)
    columns = {name: data.data[:, k] for k, name in enumerate(names) if k != 1}
    frame = pl.DataFrame(columns).with_columns(
        pl.Series("site", [f"site {k}" for k in quarter]),
        pl.Series("diagnosis", [str(data.target_names[k]) for k in data.target]),
        pl.Series("size", np.where(data.data[:, 0] < 12, "small", "large")),
        pl.int_range(len(texture)).alias("number"),
        mean_area=pl.when(pl.int_range(len(texture)) == 7).then(None).otherwise(pl.col("mean_area")),
    )
    path = tmp_path_factory.mktemp("table") / "cancer.csv"
    frame.write_csv(path)
    return path


@pytest.fixture(scope="module")
def run_of(cancer: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Path]:
    out = tmp_path_factory.mktemp("runs")

    def trained() -> Path:
        words = ["train", str(cancer), *FLAGS, "--test-domain", "site 3", "--optimizer", "adam", *SHORT]
        assert main([*words, "--lr", "0.003", "--out", str(out)]) == 0
        (run,) = out.iterdir()
        return run

    return trained


def test_train_evaluate_and_predict_on_a_csv(
    cancer: Path, run_of: Callable[[], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = run_of()
    config = json.loads((run / "config.json").read_text())
    assert (config["backbone"], config["dataset"], config["pretrained"]) == ("mlp", "cancer", False)
    last = json.loads((run / "records.jsonl").read_text().splitlines()[-1])
    assert last["in_acc"][3] > 0.85
    capsys.readouterr()

    assert main(["evaluate", str(run), str(cancer), "--as-table", "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    records = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    assert numbers["accuracy"] in [record["in_acc"][3] for record in records]

    frame = pl.read_csv(cancer)
    frame.drop("site", "diagnosis", "number").reverse().write_csv(tmp_path / "new.csv")
    assert main(["predict", str(run), str(tmp_path / "new.csv"), "--json"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert said[0]["picture"] == f"{tmp_path / 'new.csv'}:1"
    right = np.mean([one["classes"][0]["class"] for one in said] == frame["diagnosis"].reverse().to_numpy())
    assert right > 0.85

    exported = tmp_path / "model.safetensors"
    assert main(["export", str(run), "--to", "safetensors", "-o", str(exported)]) == 0
    capsys.readouterr()
    assert main(["predict", str(exported), str(tmp_path / "new.csv"), "--json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == said

    for words, sentence in (
        (["serve", str(run)], "is of a table"),
        (["evaluate", str(run), str(cancer), "--page", str(tmp_path / "a.html")], "is of a table"),
        (["evaluate", str(run), "digits"], "cannot be read as a table"),
        (["evaluate", str(run), str(cancer), "--label-column", "diagnose"], "did you mean 'diagnosis'"),
    ):
        assert main(words) == 2
        assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--backbone", "cnn"], "expected a network for rows, mlp"),
        (["--algorithm", "ARM", "--backbone", "mlp"], "ARM got"),
        (["--label-column", "nothing"], "has the columns"),
    ],
)
def test_what_a_table_cannot_have_is_refused_before_training(
    words: list[str], sentence: str, cancer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["train", str(cancer), *FLAGS, "--test-domain", "0", "--out", str(tmp_path / "runs"), *words]
    assert main(given) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_verify_a_table(cancer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "verify", str(cancer), *FLAGS]) == 0
    shown = capsys.readouterr().out
    assert "site 0                     143 rows" in shown
    assert "missing values: mean_area: 1 of 569" in shown
    small = tmp_path / "small.csv"
    small.write_text("domain,label,x\na,0,1\nb,1,2\n")
    assert main(["data", "verify", str(small)]) == 1
    assert "few rows: a: 1, expected 5 or more" in capsys.readouterr().out


@pytest.mark.slow
def test_a_sweep_of_a_table_leaves_each_domain_out(
    cancer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sweep.toml").write_text(
        f"""
        name = "cancer"
        protocol = "domainbed"
        datasets = ["{cancer}"]
        algorithms = ["ERM", "CORAL"]
        optimizers = ["adam"]
        hparams = 1
        trials = 1
        [overrides]
        steps = 11
        checkpoint_every = 5
        [columns."{cancer}"]
        domain = "site"
        label = "diagnosis"
        ignore = ["number"]
        """
    )
    assert main(["sweep", str(tmp_path / "sweep.toml"), "--out", str(tmp_path / "runs"), "--quiet"]) == 0
    runs = [json.loads(file.read_text()) for file in (tmp_path / "runs").glob("*/config.json")]
    assert len(runs) == 8
    assert {(run["backbone"], run["batch_size"]) for run in runs} == {("mlp", 64)}
    capsys.readouterr()
    assert main(["table", str(tmp_path / "runs")]) == 0
    assert "cancer" in capsys.readouterr().out


@pytest.mark.slow
def test_fit_makes_a_model_of_a_table(cancer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["fit", str(cancer), *FLAGS, "--candidate", "adam:lr=0.003", "--steps", "20", "--every", "10"]
    assert main([*words, "--out", str(tmp_path / "fit"), "--workers", "1"]) == 0
    assert main(["predict", str(tmp_path / "fit" / "model.pt"), str(cancer), "--top", "1"]) == 0
    assert capsys.readouterr().out.count(f"{cancer}:") == 569


def test_train_on_a_parquet_of_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Augmented, cached, and with a model that is used on the parquet again."""
    pictures = folder(tmp_path / "pictures", each=6)
    labels, domains = [k // 6 % 2 for k in range(24)], [("oil", "ink")[k % 2] for k in range(24)]
    path = parquet(
        tmp_path / "hub.parquet", {"label": labels, "domain": domains}, pictures, {"label": ["a", "b"]}
    )
    assert main(["data", "verify", str(path)]) == 0
    assert "ink                         12 pictures" in capsys.readouterr().out
    given = [
        "train",
        str(path),
        "--test-domain",
        "ink",
        "--backbone",
        "cnn",
        "--image-size",
        "16",
        "--batch-size",
    ]
    given += ["4", "--steps", "3", "--every", "2", "--quiet", "--cache", str(tmp_path / "cache")]
    assert main([*given, "--out", str(tmp_path / "runs")]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    capsys.readouterr()
    assert main(["evaluate", str(run), str(path), "--as-table", "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)
    records = [json.loads(line) for line in (run / "records.jsonl").read_text().splitlines()]
    assert numbers["accuracy"] in [record["in_acc"][0] for record in records]
