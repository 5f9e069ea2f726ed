"""Which models the tables speak of, and where their weights are.

`genie_dg.results.select` chooses runs and records; nothing is chosen again here. What is added is the file that
holds the weights of the chosen record, if the run kept them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import polars as pl

from genie_dg.check import InputError
from genie_dg.files import FileError
from genie_dg.results.frame import load
from genie_dg.results.render import markdown_table, percent
from genie_dg.results.select import METHODS, Case, SelectedRun, select
from genie_dg.runs.folder import AVERAGE_MODEL, MODEL, model_of

from ._file import read_model_file


@dataclass(frozen=True)
class BestModel:
    """What a method chose for one row, one choice of test domains and one trial.

    Args:
        dataset, row: as tables name them.
        test_domains: names.
        trial: its seed.
        selection: the method.
        run: its identity; empty when nothing was chosen.
        step: of the record; that of SWAD's average is the last one.
        averaged: the record is of SWAD's average.
        validation: what the method saw.
        test: accuracies on the test domains, in their order, which tables show.
        folder: of the run.
        file: with the weights of the record; empty when they were not kept.
        note: why there is no run or no file; empty otherwise.
    """

    dataset: str
    row: str
    test_domains: tuple[str, ...]
    trial: int
    selection: str
    run: str = ""
    step: int = -1
    averaged: bool = False
    validation: float | None = None
    test: tuple[float, ...] = ()
    folder: str = ""
    file: str = ""
    note: str = ""


def best_models(frame: pl.DataFrame, method: str = METHODS[0]) -> list[BestModel]:
    """The models that a method of selection chooses, by data set, row, test domains and trial."""
    averaged = dict(frame.select("run", "averaged").iter_rows())
    chosen = [_best(case, choice, method, averaged) for case, choice in select(frame, method).items()]
    return sorted(chosen, key=lambda m: (m.dataset, m.row, len(m.test_domains), m.test_domains, m.trial))


def _best(case: Case, choice: SelectedRun, method: str, averaged: dict[str, bool]) -> BestModel:
    names = tuple(case.domains[k] for k in case.test_domains)
    best = BestModel(case.dataset, choice.row, names, case.trial, method, note=choice.missing)
    if choice.missing:
        return best
    folder, step, is_average = Path(choice.folder), choice.step, averaged[choice.run]
    file = file_of_record(folder, step, is_average)
    what = "the weights of SWAD's average" if is_average else f"the weights of step {step}"
    note = "" if file else f"{what} were not kept in {folder}; train the run again with --keep all"
    best = replace(best, run=choice.run, step=step, averaged=is_average, folder=choice.folder)
    return replace(best, validation=choice.value, test=choice.scores, file=str(file or ""), note=note)


def file_of_record(folder: Path, step: int, averaged: bool = False) -> Path | None:
    """The file of a run that holds the weights of one of its records; ``None`` when they were not kept."""
    if averaged:
        return path if (path := folder / AVERAGE_MODEL).is_file() else None
    own, usual = folder / model_of(step), folder / MODEL
    if own.is_file():
        return own
    try:
        return usual if read_model_file(usual).evaluation().step == step else None
    except (InputError, FileError):
        return None


def chosen_file(folder: Path) -> Path:
    """The model file that training-domain selection names in the folder of a run, or of runs of one cell."""
    problems: list[str] = []
    frame = load(folder, problems=problems)
    if not len(frame):
        why = f" ({problems[0].rstrip('.')})" if problems else ""
        raise InputError(f"{folder} holds no run{why}; name a model file, a run's folder or a folder of runs.")
    models = best_models(frame)
    if len(models) > 1:
        several = f"{folder} holds {len(models)} models ({_named(models[0])}, and others)"
        raise InputError(f"{several}; name the file of one, which genie-dg best lists.")
    (best,) = models
    if not best.file:
        raise InputError(f"{folder} has no model to use: {best.note or 'no run'}.")
    return Path(best.file)


def render_best(models: list[BestModel], form: str) -> str:
    """As a table to read (``md``), or as JSON with accuracies from 0 to 1; it ends with a line break."""
    if form == "json":
        tests = [dict(zip(model.test_domains, model.test, strict=False)) for model in models]
        plain = [{**asdict(model), "test": test} for model, test in zip(models, tests, strict=True)]
        return json.dumps(plain, indent=1) + "\n"
    header = ["data", "row", "test domain", "trial", "run", "step", "validation", "test", "file"]
    lines = [_line(model) for model in models]
    notes = [f"{_named(model)}: {model.note}." for model in models if model.note]
    title = f"Selected by {models[0].selection}; accuracies in percent."
    return "\n\n".join([title, markdown_table(header, lines), *notes]) + "\n"


def _line(model: BestModel) -> list[str]:
    where = ", ".join(model.test_domains)
    step = "-" if not model.run else "average" if model.averaged else str(model.step)
    test = ", ".join(map(percent, model.test)) or "-"
    who = [model.dataset, model.row, where, str(model.trial), model.run or "-", step]
    return [*who, percent(model.validation), test, model.file or "-"]


def _named(model: BestModel) -> str:
    run = f" (run {model.run})" if model.run else ""
    return f"{model.row} without {', '.join(model.test_domains)}, trial {model.trial}{run}"
