"""More steps: a run goes on from a finished one that differs from it in its number of steps alone.

Up to its last record on the grid of records a shorter run does what a longer one does, to the bit. So
``genie-dg train`` keeps the checkpoint of that record (``continue.pt``) and, where the record at the very end
took the place of the best weights, those from before it (``continue-model.pt``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from genie_dg.files import FileError, append_line, read_lines, read_whole, write_whole
from genie_dg.runs import folder as files
from genie_dg.runs.config import RunConfig, canonical
from genie_dg.runs.model_file import ModelFile
from genie_dg.runs.record import Record
from genie_dg.runs.tensors import DamagedFile, load_tensors, save_tensors


def steps_decide(config: RunConfig) -> str:
    """Why the first steps of a run depend on how many there are, or on where it ended; empty if they do not.

    >>> steps_decide(RunConfig("digits", (0,), schedule="cosine"))
    'its learning rate follows a schedule over all steps'
    """
    if config.schedule:
        return "its learning rate follows a schedule over all steps"
    if config.early_stop:
        return "it stops early"
    return "SWAD averages its weights" if config.swad else ""


def set_model_aside(config: RunConfig, folder: Path, step: int) -> None:
    """Keep the best weights so far from a record that a longer run does not have."""
    kept, path = folder / files.CONTINUE_MODEL, folder / files.MODEL
    if step % config.checkpoint_every and not steps_decide(config) and path.exists() and not kept.exists():
        write_whole(kept, read_whole(path))


def remove_checkpoints(config: RunConfig, folder: Path, more: bool) -> None:
    """Of a complete run; with ``more`` the one that a longer run can go on from is kept."""
    on_grid = (config.steps - 1) % config.checkpoint_every == 0
    path = folder / (files.CHECKPOINT if on_grid else files.BEFORE)
    if more and path.exists() and not steps_decide(config):
        path.replace(folder / files.CONTINUE)
    files.remove_checkpoints(folder)


def go_on(config: RunConfig, folder: Path, domains: int, keep: str) -> str:
    """Begin a run with what a shorter one left; a sentence says so, or why it starts anew, or nothing.

    Args:
        config: of the run that begins.
        folder: of that run; the shorter ones lie beside it.
        domains: how many there are.
        keep: whose weights it keeps, one of `genie_dg.bench.options.KEEP`.
    """
    if files.is_done(folder) or files.has_checkpoint(folder):
        return ""
    shorter = sorted(_shorter(config, folder.parent), key=lambda one: -one[0])
    if not shorter:
        return ""
    steps, place = shorter[0]
    known = f"{place} holds {steps} steps of this run"
    if why := steps_decide(config):
        return f"{known}, but {why}, so it starts anew."
    reasons = []
    for steps, place in shorter:
        try:
            with files.alone(folder):
                start = _take_over(config, folder, replace(config, steps=steps), place, domains, keep)
        except FileError as error:
            reasons.append(str(error).rstrip("."))
        else:
            return f"{place} holds {steps} steps of this run; it goes on from step {start}."
    return f"{known}, but {reasons[0]}, so it starts anew."


def _shorter(config: RunConfig, runs: Path) -> Iterator[tuple[int, Path]]:
    """Finished runs that differ in having fewer steps: how many, and where."""
    for path in sorted(runs.glob(f"*/{files.CONFIG}")):
        try:
            text = read_whole(path).decode("utf-8").strip()
            steps = json.loads(text)["steps"]
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not a run, or one that other verbs complain of
        if not isinstance(steps, int) or not config.warmup < steps < config.steps:
            continue
        if canonical(replace(config, steps=steps)) == text and files.is_done(path.parent):
            yield steps, path.parent


def _take_over(config: RunConfig, folder: Path, other: RunConfig, place: Path, domains: int, keep: str) -> int:
    """Write records, times, weights and last the checkpoint; returns the step to go on from."""
    if not (place / files.CONTINUE).exists():
        raise DamagedFile("it kept no checkpoint")
    state = load_tensors(place / files.CONTINUE)
    if state.get("run") != other.run_id:
        raise DamagedFile(f"{place / files.CONTINUE} is a checkpoint of another run")
    step: int = state["step"]
    records = files.read_records(place, domains, state["records"], state["records_digest"])
    for name, at in _wanted(state, records, keep).items():
        _model(place, name, at, config).save(folder / name)
    files.cut_records(folder, records)
    for name in (files.TIMINGS, files.WATCH):
        lines, _ = read_lines(place / name)
        (folder / name).unlink(missing_ok=True)
        for line in lines:
            if int(line.get("step", step)) < step:
                append_line(folder / name, line)
    save_tensors(folder / files.CHECKPOINT, {**state, "run": config.run_id})
    return step


def _wanted(state: dict[str, Any], records: list[Record], keep: str) -> dict[str, int]:
    """The files of weights that the run must have by now, with the step of each."""
    names = [files.MODEL] if keep in ("best", "all") else []
    names += [files.model_of(record.step) for record in records] if keep == "all" else []
    if missing := [name for name in names if name not in state["kept"]]:
        raise DamagedFile(f"it kept no {missing[0]}")
    return {name: int(state["kept"][name]) for name in names}


def _model(place: Path, name: str, step: int, config: RunConfig) -> ModelFile:
    for path in (place / name, place / files.CONTINUE_MODEL):
        if path.exists() and (model := ModelFile.load(path)).record.get("step") == step:
            return replace(model, config=config)
    raise DamagedFile(f"{place} has no weights of step {step}")
