"""The loop: batch, step, now and then evaluate, record, save. It reads from top to bottom.

Everything random in step t is a function of (run, t), so a run that goes on from a checkpoint repeats what an
undisturbed one does, to the bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from msgspec import structs
from torch import Tensor
from torch.amp import GradScaler

from genie_dg._streams import seed_torch
from genie_dg._types import MAIN, StepContext
from genie_dg.data.loaders import ahead
from genie_dg.files import FileError, append_line, write_json
from genie_dg.optim.swad import SWAD
from genie_dg.runs.folder import AVERAGE, AVERAGE_MODEL, TIMINGS, RecordLog, alone, begin, is_done, read_records
from genie_dg.runs.outcome import Ending
from genie_dg.runs.record import Record
from genie_dg.runs.seal import check_seal, seal
from genie_dg.runtime import keep_memory, same_kernels

from .assemble import Parts
from .build import seed_of, usual_lr, whole_gradients
from .checkpoint import TrainingState, clear_checkpoints, set_model_aside
from .evaluate import has_stalled, make_record
from .keep import Kept, model_file
from .schedule import lr_factor_of
from .sharing import shared
from .step import StepSettings, batch_of, take_step
from .watch import Watcher

Report = Callable[[int, Record | None], None]
"""Called after every step with the number of steps done, and the record where one was made."""

AUTOCAST = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""The type of the forward pass for each precision."""


class NotFinite(FileError):
    """The loss is not a number any more."""

    ending = Ending.diverged


def train(
    parts: Parts,
    folder: Path,
    report: Report | None = None,
    keep: str = "best",
    more: bool = False,
    watcher: Watcher | None = None,
) -> list[Record]:
    """Train to the end, from the last checkpoint when there is one; returns the records.

    Args:
        parts: from `assemble`.
        folder: of this run; created when missing.
        report: called after every step.
        keep: whose weights are kept, one of `genie_dg.bench.options.KEEP`.
        more: leave what a run with more steps can go on from.
        watcher: writes down what the run is watched for.
    """
    keep_memory()
    config, world = parts.config, parts.world
    with alone(folder) if world.first else nullcontext(), same_kernels(config.threads):
        world.wait()
        averaging = SWAD(parts.algorithm) if config.swad else None
        scaler = GradScaler(parts.device.type) if config.precision == "float16" else None
        kept = Kept(parts, folder, keep)
        state = TrainingState(parts, folder, kept, averaging, scaler)
        if world.first:
            begin(folder, config, parts.meta())
        world.wait()
        if is_done(folder):
            check_seal(folder)
            if world.first:  # killed right after the mark was made
                clear_checkpoints(config, folder, more)
            return read_records(folder, len(parts.domains))
        start, records = state.resume()
        writer = _Writer(state, start, records, more, watcher) if world.first else None
        if not has_stalled(records, config):
            _train_on(state, start, records, writer, report)
        _finish(state, records, more)
        return records


class _Writer:
    """What the first process writes into the folder of a run at every record, its checkpoint last."""

    def __init__(
        self, state: TrainingState, start: int, records: list[Record], more: bool, watcher: Watcher | None
    ) -> None:
        self._state, self._more, self._watcher = state, more, watcher
        self._log = RecordLog(state.folder, records)
        if watcher is not None:
            watcher.begin(start)

    def add(self, records: list[Record], seconds: float) -> None:
        """Write down the last record; ``seconds`` since the one before."""
        state, record = self._state, records[-1]
        self._log.append(record)
        append_line(state.folder / TIMINGS, {"step": record.step, "seconds": seconds})
        if self._more:
            set_model_aside(state.parts.config, state.folder, record.step)
        state.kept.add(records)
        if self._watcher is not None:
            self._watcher.add(record)
        state.save(record.step + 1, self._log)


def _train_on(
    state: TrainingState, start: int, records: list[Record], writer: _Writer | None, report: Report | None
) -> None:
    """From a step to the last one, or to where the run has stalled; records are appended."""
    parts, config, averaging = state.parts, state.parts.config, state.averaging
    losses = Losses(parts)
    clock = time.perf_counter()
    for step in take_steps(parts, start, state.scaler, losses):
        if averaging is not None:
            averaging.update(parts.algorithm)
        record = None
        if step % config.checkpoint_every == 0 or step == config.steps - 1:
            record = make_record(parts, step, losses.read())
            if averaging is not None and record.validation_loss is not None:
                averaging.evaluated(record.validation_loss)
            records.append(record)
            if writer is not None:
                writer.add(records, time.perf_counter() - clock)
            clock = time.perf_counter()
        if report is not None:
            report(step + 1, record)
        if record is not None and has_stalled(records, config):
            return


def _finish(state: TrainingState, records: list[Record], more: bool) -> None:
    """The weights that are kept, then the seal that the run is complete."""
    parts, folder, first = state.parts, state.folder, state.parts.world.first
    weights = parts.algorithm.state_dict()
    if first:
        state.kept.finish(records[-1])
    if state.averaging is not None:
        parts.algorithm.load_state_dict({**weights, **state.averaging.average()})
        record = structs.replace(make_record(parts, records[-1].step, []), swad=True)
        if first:
            write_json(folder / AVERAGE, record.to_json())
            if state.kept.keep != "none":
                replace(model_file(parts, record), averaged=True).save(folder / AVERAGE_MODEL)
    if first:
        seal(folder)
        clear_checkpoints(parts.config, folder, more)


def take_steps(
    parts: Parts, start: int = 0, scaler: GradScaler | None = None, losses: Losses | None = None
) -> Iterator[int]:
    """Train in memory: yields the number of every step after it was taken.

    Torch's global random stream is set in every step; ``torch.random.fork_rng`` around the loop keeps it.

    Args:
        parts: from `assemble`.
        start: the first step.
        scaler: for float16.
        losses: gets the loss of every step; what it has not been asked for at the end is checked then.
    """
    config, world, seed = parts.config, parts.world, seed_of("steps", parts.config)
    losses = losses or Losses(parts)
    settings = StepSettings(AUTOCAST[config.precision], scaler, world, usual_lr(config), config.clip)
    parts.algorithm.train()
    with ahead(parts.training, config.steps) as batches:
        for step in range(start, config.steps):
            batch = batch_of(batches(step))
            seed_torch((seed + step) % 2**63)  # dropout
            context = StepContext(step, seed, parts.create_graph)
            factor = lr_factor_of(config, step)
            with shared(parts.algorithm, world, whole_gradients(config)):
                stepped = take_step(parts.algorithm, parts.optimizers, batch, context, settings, factor)
            losses.add(step, stepped.get(MAIN))
            yield step
    losses.read()


class Losses:
    """The training losses since the last record.

    To read a number from a device is to wait for it, so they are read together when a record is made, and one
    that is not finite is refused then, by the number of its step. Several processes
    have the same losses, and take their mean then.
    """

    def __init__(self, parts: Parts) -> None:
        self._config, self._world = parts.config, parts.world
        self._steps: list[int] = []
        self._losses: list[Tensor] = []

    def add(self, step: int, loss: Tensor | None) -> None:
        """The loss of a step; ``None`` where the step had none."""
        if loss is not None:
            self._steps.append(step)
            self._losses.append(loss)

    def read(self) -> list[float]:
        """The losses that were added since they were last read, as they came."""
        if not self._losses:
            return []
        values = torch.stack(self._losses).tolist()
        if self._world.size > 1:
            values = [value / self._world.size for value in self._world.sum(*values)]
        for step, value in zip(self._steps, values, strict=True):
            if not math.isfinite(value):
                name = self._config.optimizer
                raise NotFinite(f"The loss of step {step} is {value}; lower the learning rate of {name}.")
        self._steps, self._losses = [], []
        return values
