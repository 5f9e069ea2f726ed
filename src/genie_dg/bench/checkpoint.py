"""Checkpoints: all that a run needs to go on, and a longer run to begin where a shorter one ended.

Up to its last record on the grid of records a shorter run does what a longer one does, to the bit. So
``genie-dg train`` leaves the checkpoint of that record (``continue.pt``) and, where the record at the very end
took the place of the best weights, those from before it (``continue-model.pt``). A run that differs in having
more steps copies them, and resumes as if it had been stopped there.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch.amp import GradScaler

from genie_dg.files import FileError, FileWarning, json_line, read_lines, read_whole, write_whole
from genie_dg.optim.swad import SWAD
from genie_dg.runs import folder
from genie_dg.runs.config import RunConfig, canonical
from genie_dg.runs.folder import RecordLog, alone, has_checkpoint, is_done, model_of, read_records
from genie_dg.runs.model_file import ModelFile
from genie_dg.runs.record import Record
from genie_dg.runs.tensors import DamagedFile, load_tensors, save_tensors

from .assemble import Parts
from .keep import Kept


@dataclass
class TrainingState:
    """What changes while a run trains, and its checkpoints hold.

    Args:
        parts: of the run.
        folder: of the run.
        kept: its files of weights.
        averaging: where its weights are averaged.
        scaler: for float16.
    """

    parts: Parts
    folder: Path
    kept: Kept
    averaging: SWAD | None = None
    scaler: GradScaler | None = None

    def _stateful(self) -> dict[str, Any]:
        """All that has a state of its own."""
        optimizers = {f"optimizer of {role}": one for role, one in self.parts.optimizers.items()}
        others = {"algorithm": self.parts.algorithm, "averaging": self.averaging, "scaler": self.scaler}
        return {name: one for name, one in {**others, **optimizers}.items() if one is not None}

    def save(self, step: int, log: RecordLog) -> None:
        """Everything that is needed to go on from ``step``; right after a record, so no loss is pending."""
        state = {
            "run": self.parts.config.run_id,
            "step": step,
            "records": log.count,
            "records_digest": log.digest,
            "kept": dict(self.kept.steps),
            "states": {name: one.state_dict() for name, one in self._stateful().items()},
        }
        save_tensors(self.folder / folder.CHECKPOINT, state, before=self.folder / folder.BEFORE)

    def resume(self) -> tuple[int, list[Record]]:
        """Load the newest checkpoint that is whole, when there is one: the next step and the records so far."""
        world, step = self.parts.world, 0
        records: list[Record] = []
        world.wait()
        for name in (folder.CHECKPOINT, folder.BEFORE):
            if not (self.folder / name).exists():
                continue
            try:
                state, records, steps = self._read(name)
            except FileError as error:
                if world.first:
                    self._warn_of_damage(name, error)
                continue
            step, self.kept.steps = state["step"], steps
            self._load(name, state)
            break
        world.wait()
        if world.first:
            self.kept.remove_others()
        return step, records

    def _read(self, name: str) -> tuple[dict[str, Any], list[Record], dict[str, int]]:
        """A checkpoint with its records and files of weights; refused where one is not what it says."""
        path, domains = self.folder / name, len(self.parts.domains)
        state = load_tensors(path, self.parts.device)
        if state.get("run") != self.parts.config.run_id:
            raise DamagedFile(f"{path} is not a checkpoint of this run")
        records = read_records(self.folder, domains, state["records"], state["records_digest"])
        return state, records, self.kept.check(state)

    def _warn_of_damage(self, name: str, error: FileError) -> None:
        there = name == folder.CHECKPOINT and (self.folder / folder.BEFORE).exists()
        then = "goes on from the checkpoint before" if there else "starts again from its first step"
        what = str(error).rstrip(".").partition("; remove")[0]
        warnings.warn(f"{what}, so the run {then}; its results are the same.", FileWarning, stacklevel=5)

    def _load(self, name: str, state: dict[str, Any]) -> None:
        try:
            for part, one in self._stateful().items():
                one.load_state_dict(state["states"][part])
        except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            path = self.folder / name
            raise FileError(f"{path} does not fit this run; remove {self.folder} to start it again.") from error


def steps_decide(config: RunConfig) -> bool:
    """Whether the first steps of a run depend on how many there are, or its end on where it stopped.

    >>> steps_decide(RunConfig("digits", (0,), schedule="cosine")), steps_decide(RunConfig("digits", (0,)))
    (True, False)
    """
    return bool(config.schedule or config.early_stop or config.swad)


def set_model_aside(config: RunConfig, run: Path, step: int) -> None:
    """Keep the best weights so far from a record that a longer run does not have."""
    aside, path = run / folder.CONTINUE_MODEL, run / folder.MODEL
    if step % config.checkpoint_every and not steps_decide(config) and path.exists() and not aside.exists():
        write_whole(aside, read_whole(path))


def clear_checkpoints(config: RunConfig, run: Path, more: bool) -> None:
    """Of a complete run; with ``more`` the one that a longer run can go on from is kept."""
    on_grid = (config.steps - 1) % config.checkpoint_every == 0
    path = run / (folder.CHECKPOINT if on_grid else folder.BEFORE)
    if more and path.exists() and not steps_decide(config):
        path.replace(run / folder.CONTINUE)
    folder.remove_checkpoints(run)


def go_on(config: RunConfig, run: Path, keep: str) -> str:
    """Begin a run with what the longest shorter one left; a sentence says so, or why it starts anew.

    Args:
        config: of the run that begins.
        run: its folder; the shorter ones lie beside it.
        keep: whose weights it keeps, one of `genie_dg.bench.options.KEEP`.
    """
    if is_done(run) or has_checkpoint(run) or steps_decide(config):
        return ""
    steps, shorter = max(_shorter_runs(config, run.parent), default=(0, run))
    if not steps:
        return ""
    there = f"{shorter} holds {steps} steps of this run"
    try:
        with alone(run):
            start = _take_over(config, run, shorter, keep)
    except FileError as error:
        return f"{there}, but {str(error).rstrip('.')}, so it starts anew."
    return f"{there}; it goes on from step {start}."


def _shorter_runs(config: RunConfig, runs: Path) -> Iterator[tuple[int, Path]]:
    """Finished runs that differ in having fewer steps: how many, and where."""
    for path in sorted(runs.glob(f"*/{folder.CONFIG}")):
        try:
            text = read_whole(path).decode("utf-8").strip()
            steps = int(json.loads(text)["steps"])
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not a run, or one that other verbs complain of
        fewer = config.warmup < steps < config.steps and is_done(path.parent)
        if fewer and canonical(replace(config, steps=steps)) == text:
            yield steps, path.parent


def _take_over(config: RunConfig, run: Path, shorter: Path, keep: str) -> int:
    """Copy records, times, weights and last the checkpoint; returns the step to go on from."""
    state = load_tensors(shorter / folder.CONTINUE) if (shorter / folder.CONTINUE).exists() else {"kept": {}}
    needed = {"best": folder.MODEL, "all": model_of(0)}.get(keep)
    if "step" not in state or (needed is not None and needed not in state["kept"]):
        raise DamagedFile("it did not keep what is needed")
    for name, step in state["kept"].items():
        for path in (shorter / name, shorter / folder.CONTINUE_MODEL):
            if path.exists() and (model := ModelFile.load(path)).record.get("step") == step:
                replace(model, config=config).save(run / name)
                break
    for name in (folder.RECORDS, folder.TIMINGS, folder.WATCH):
        if lines := [line for line in read_lines(shorter / name)[0] if line["step"] < state["step"]]:
            write_whole(run / name, "".join(map(json_line, lines)).encode("utf-8"))
    save_tensors(run / folder.CHECKPOINT, {**state, "run": config.run_id})
    return int(state["step"])
