"""``best`` names the runs and records of the tables, and their files."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
import torch

import genie_dg
from genie_dg.check import InputError
from genie_dg.data.domains import DomainSet, TensorDomain
from genie_dg.inference.best import BestModel, best_models, file_of_record
from genie_dg.inference.evaluate import evaluate_as_table
from genie_dg.results.frame import load
from genie_dg.results.select import METHODS, select
from genie_dg.results.tables import tables
from genie_dg.runs.config import RunConfig

from .conftest import PictureRun, trained


def blobs(each: int = 40) -> DomainSet:
    """Three domains of 4 x 4 pixels; a class is a bright corner, each domain has its own noise."""
    domains = []
    for k, (name, noise) in enumerate((("clean", 40), ("noisy", 90), ("grim", 140))):
        random = np.random.default_rng(k)
        labels = np.arange(each) % 3
        images = random.normal(100, noise, (each, 1, 4, 4))
        images[np.arange(each), 0, labels, labels] += 120
        pixels = torch.from_numpy(images.clip(0, 255).astype(np.uint8))
        domains.append(TensorDomain(name, pixels, labels.astype(np.int64)))
    return DomainSet("blobs", ("one", "two", "three"), tuple(domains))


def sweep(
    out: Path,
    data: DomainSet,
    *,
    trials: int = 2,
    algorithms: tuple[str, ...] = ("ERM",),
    swad: bool = False,
    pairs: bool = True,
) -> list[RunConfig]:
    """Each domain is left out, and with ``pairs`` each two; two draws."""
    left_out = [(k,) for k in range(3)] + (list(combinations(range(3), 2)) if pairs else [])
    configs = [
        replace(
            RunConfig(data.name, test, algorithm, "adam", "cnn" if algorithm == "ARM" else "mlp"),
            optimizer_settings={"lr": lr},
            trial_seed=trial,
            hparams_seed=draw,
            swad=swad,
            batch_size=6,
            steps=13,
            checkpoint_every=4,
            oracle="best",
        )
        for algorithm in algorithms
        for test in left_out
        for trial in range(trials)
        for draw, lr in enumerate((1e-3, 3e-3))
    ]
    for config in configs:
        trained(config, data, out)
    return configs


@pytest.fixture(scope="module")
def data() -> DomainSet:
    return blobs()


@pytest.fixture(scope="module")
def runs(data: DomainSet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    sweep(folder, data)
    return folder


def recomputed(best: BestModel, data: DomainSet) -> float:
    """The accuracy of a named file on the test domains, computed again."""
    model = genie_dg.load_model(best.file)
    return float(evaluate_as_table(model, data).to_json()["mean_over_domains"])


@pytest.mark.parametrize("method", METHODS)
def test_every_cell_of_the_table_is_computed_again_exactly(runs: Path, data: DomainSet, method: str) -> None:
    frame = load(runs)
    models = best_models(frame, method)
    again = {(m.row, m.test_domains, m.trial): recomputed(m, data) for m in models}
    (table,) = [table for table in tables(frame, method) if table.kind == "domains"]
    cells = 0
    for line in table.lines:
        for column, cell in zip(table.columns[:-1], line.cells, strict=False):
            values = [again[line.label, (column,), trial] for trial in range(2)]
            assert cell.mean == sum(values) / 2
            cells += 1
    assert cells == 3
    if method != "leave-one-domain-out":
        (sources,) = [table for table in tables(frame, method) if table.kind == "sources"]
        for k, cell in enumerate(sources.lines[0].cells[:-1]):
            left = tuple(name for j, name in enumerate(("clean", "noisy", "grim")) if j != k)
            assert cell.mean == sum(again["ERM + adam", left, trial] for trial in range(2)) / 2


@pytest.mark.parametrize("swad", [False, True], ids=["plain", "swad"])
def test_algorithms_that_adapt_to_the_batch_and_swad(data: DomainSet, tmp_path: Path, swad: bool) -> None:
    sweep(tmp_path, data, trials=1, algorithms=("ERM",) if swad else ("ARM", "MTL"), swad=swad, pairs=False)
    models = best_models(load(tmp_path))
    assert len(models) == (3 if swad else 6)
    for best in models:
        assert Path(best.file).name == "swad.pt" if swad else best.file.endswith(f"model-{best.step}.pt")
        assert recomputed(best, data) == best.test[0]


def test_weights_that_were_not_kept_are_told_with_the_way_out(runs: Path, tmp_path: Path) -> None:
    """Of the run only the last record was kept, and another one was chosen."""
    best = next(m for m in best_models(load(runs)) if m.step != 12)
    folder = tmp_path / best.run
    shutil.copytree(best.folder, folder)
    (folder / f"model-{best.step}.pt").replace(folder / "model.pt")
    assert file_of_record(folder, best.step) == folder / "model.pt"
    assert file_of_record(folder, 12, averaged=True) is None
    (folder / "model-12.pt").replace(folder / "model.pt")
    for file in folder.glob("model-*.pt"):
        file.unlink()
    (told,) = best_models(load(tmp_path))
    assert (told.run, told.step, told.file) == (best.run, best.step, "")
    assert f"the weights of step {best.step} were not kept" in told.note
    assert told.note.endswith("train the run again with --keep all")
    with pytest.raises(InputError, match="were not kept"):
        genie_dg.load_model(folder)
    assert genie_dg.load_model(folder / "model.pt").record.step == 12


def test_a_folder_of_one_cell_is_a_model(runs: Path, tmp_path: Path) -> None:
    """Two draws that compete: the one that selection chooses."""
    best = best_models(load(runs))[0]
    frame = load(runs)
    rivals = [c for c in select(frame) if c.test_domains == (0,) and c.trial == 0]
    assert len(rivals) == 1
    (named,) = [m for m in best_models(frame) if m.test_domains == ("clean",) and m.trial == 0]
    for row in frame.iter_rows(named=True):
        if row["test_domains"] == [0] and row["trial"] == 0:
            shutil.copytree(row["folder"], tmp_path / row["run"])
    assert len(list(tmp_path.iterdir())) == 2
    model = genie_dg.load_model(tmp_path)
    assert (model.config.run_id, model.record.step) == (named.run, named.step)
    assert genie_dg.load_model(best.folder).config.run_id == best.run


def test_a_folder_of_several_models_is_refused_with_their_names(runs: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"holds 12 models \(ERM \+ adam without .*, and others\); name the file"
    ):
        genie_dg.load_model(runs)
    with pytest.raises(InputError, match="holds no run"):
        genie_dg.load_model(tmp_path)


def test_a_run_that_is_not_complete_is_not_a_model(picture_run: PictureRun, tmp_path: Path) -> None:
    shutil.copytree(picture_run.folder, tmp_path / "a")
    (tmp_path / "a" / "done").unlink()
    with pytest.raises(InputError, match="has no model to use: 1 of 1 runs unfinished"):
        genie_dg.load_model(tmp_path / "a")
