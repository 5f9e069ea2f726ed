"""An evaluation on labelled pictures: counts, classes by name, broken files, refusals."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sklearn.metrics

import genie_dg
from genie_dg.check import InputError
from genie_dg.data.columns import Columns
from genie_dg.data.domains import DataError, TableDomain
from genie_dg.data.image_folders import DataWarning, open_folder
from genie_dg.inference.evaluate import evaluate, evaluate_as_table, open_labelled
from genie_dg.inference.model import Model

from .conftest import PictureRun
from .test_pictures import ENCODING


@pytest.fixture(scope="module")
def model(picture_run: PictureRun) -> Model:
    return genie_dg.load_model(picture_run.folder / "model-4.pt")


def test_numbers_are_those_of_the_predictions(model: Model, picture_run: PictureRun) -> None:
    numbers = evaluate(model, picture_run.data).to_json()
    labels, guesses, sure = [], [], []
    for name, domain in zip(("ink", "oil", "pen"), picture_run.data.domains, strict=True):
        paths = [domain.where(k) for k in range(len(domain))]
        answers = model.predict(paths)
        truth = [Path(path).parent.name for path in paths]
        labels += truth
        guesses += [one.label for one in answers]
        sure += [one.probability for one in answers]
        (answered,) = [one for one in numbers["domains"] if one["name"] == name]
        assert answered["accuracy"] == np.mean([a.label == b for a, b in zip(answers, truth, strict=True)])
        assert answered["trained_on"] == (name != "pen")
        assert answered["pictures"] == len(paths)
    assert numbers["pictures"] == len(labels) == 36
    assert numbers["accuracy"] == sklearn.metrics.accuracy_score(labels, guesses)
    assert numbers["confusion"] == sklearn.metrics.confusion_matrix(labels, guesses).tolist()
    f1 = sklearn.metrics.f1_score(labels, guesses, average="macro", zero_division=0)
    assert numbers["macro_f1"] == pytest.approx(f1, rel=1e-12)
    worst = min(numbers["domains"], key=lambda one: one["accuracy"])
    assert numbers["worst_domain"] == worst["name"]
    assert sum(one["count"] for one in numbers["reliability"]) == 36
    gaps = sum(one["count"] * one["confidence"] for one in numbers["reliability"] if one["count"])
    assert gaps / 36 == pytest.approx(np.mean(sure), rel=1e-6)


def test_the_surest_mistakes_come_first(model: Model, picture_run: PictureRun) -> None:
    answered = evaluate(model, picture_run.data)
    mistakes = answered.mistakes(5)
    assert mistakes
    sure = [float(one.confidence[at]) for one, at in mistakes]
    assert sure == sorted(sure, reverse=True)
    assert all(one.labels[at] != one.predicted[at] for one, at in mistakes)
    every = [c for one in answered.answers for c in one.confidence[one.labels != one.predicted]]
    assert sure[0] == max(every)


def test_the_batch_size_of_the_run_gives_its_record(model: Model, picture_run: PictureRun) -> None:
    answered = evaluate_as_table(model, picture_run.data)
    assert [one.domain.name for one in answered.answers] == ["pen"]
    assert answered.to_json()["accuracy"] == model.record.test((2,)) == model.record.in_acc[2]
    assert answered.to_json()["pictures"] == 10  # 80 % of 12


def test_other_data_are_not_the_data_of_the_table(
    model: Model, picture_run: PictureRun, tmp_path: Path
) -> None:
    changed = tmp_path / "art"
    shutil.copytree(picture_run.root, changed)
    (changed / "pen" / "cat" / "005.png").rename(changed / "pen" / "cat" / "006.png")
    with pytest.raises(InputError, match="needs the data of the run"):
        evaluate_as_table(model, open_folder(changed))
    (changed / "pen").rename(changed / "pencil")
    with pytest.raises(InputError, match="ink, oil, pencil"):
        evaluate_as_table(model, open_folder(changed))


def test_classes_are_matched_by_name(model: Model, picture_run: PictureRun, tmp_path: Path) -> None:
    """A new first class shifts all numbers, the names still fit; its pictures are left out with a sentence."""
    other = tmp_path / "other"
    shutil.copytree(picture_run.root, other)
    shutil.copytree(other / "ink" / "cat", other / "ink" / "ape")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        data = open_folder(other)
    assert data.classes == ("ape", "cat", "dog")
    answered = evaluate(model, data)
    assert answered.notes == ("The model does not know ape; 6 pictures are left out.",)
    assert answered.to_json()["confusion"] == evaluate(model, picture_run.data).to_json()["confusion"]
    for domain in ("ink", "oil", "pen"):
        for k, name in enumerate(("cat", "dog")):
            (other / domain / name).rename(other / domain / f"strange {k}")
    shutil.rmtree(other / "ink" / "ape")
    with pytest.raises(InputError, match="The model knows cat, dog, and other has strange 0, strange 1"):
        evaluate(model, open_folder(other))


def test_a_folder_of_classes_is_one_domain(model: Model, picture_run: PictureRun) -> None:
    data = open_labelled(str(picture_run.root / "pen"), model)
    assert [domain.name for domain in data.domains] == ["pen"]
    assert data.classes == ("cat", "dog")
    whole = {one["name"]: one["accuracy"] for one in evaluate(model, picture_run.data).to_json()["domains"]}
    numbers = evaluate(model, data).to_json()
    assert numbers["accuracy"] == whole["pen"]
    assert numbers["domains"][0]["trained_on"] is None  # another data set, whatever its domains are called
    assert len(open_labelled(str(picture_run.root), model).domains) == 3


def test_a_broken_picture_is_told_and_left_out(model: Model, picture_run: PictureRun, tmp_path: Path) -> None:
    shutil.copytree(picture_run.root, tmp_path / "art")
    (tmp_path / "art" / "oil" / "dog" / "002.png").write_bytes(b"not a picture")
    data = open_folder(tmp_path / "art")
    answered = evaluate(model, data)
    assert answered.to_json()["pictures"] == 35
    (sentence,) = answered.problems
    assert "002.png cannot be decoded" in sentence
    (tmp_path / "art" / "pen" / "dog").joinpath("000.png").write_bytes(b"")
    (tmp_path / "art" / "pen" / "dog").joinpath("001.png").write_bytes(b"")
    (tmp_path / "art" / "pen" / "dog").joinpath("002.png").write_bytes(b"")
    with pytest.raises(DataError, match="is empty"):
        evaluate_as_table(model, open_folder(tmp_path / "art"))


def test_labelled_rows_keep_to_the_columns_of_the_model(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("site,outcome,sex,age,new\nb,well,f,1,2\na,sick,m,3,4\n")
    stub: Any = SimpleNamespace(encoding=ENCODING)
    data = open_labelled(str(path), stub, None, Columns(domain="site"))
    assert [domain.name for domain in data.domains] == ["a", "b"]
    assert isinstance(data.domains[0], TableDomain)
    assert (data.domains[0].columns.numbers, data.domains[0].columns.words) == (("age",), ("sex",))
    with pytest.raises(DataError, match="--domain-column 'ward'"):
        open_labelled(str(path), stub, None, Columns())
    path.write_text("ward,outcome,age\nb,well,1\n")
    with pytest.raises(DataError, match="has no column 'sex', which the model was trained with"):
        open_labelled(str(path), stub, None, Columns())
    with pytest.raises(DataError, match="cannot be read as a table"):
        open_labelled(str(tmp_path / "gone.csv"), stub, None, Columns())
