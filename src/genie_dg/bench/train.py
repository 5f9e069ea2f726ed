"""The loop: batch, step, now and then evaluate, record, save. It reads from top to bottom.

Everything random in step t is a function of (run, t), so a run that goes on from a checkpoint repeats what an
undisturbed one does, to the bit.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.amp import GradScaler

from genie_dg._streams import seed_torch
from genie_dg._types import MAIN, StepContext
from genie_dg.check import one_of
from genie_dg.data.loaders import AugmentedEvaluation, ahead
from genie_dg.files import FileError, FileWarning, append_line, write_json
from genie_dg.optim.swad import SWAD
from genie_dg.runs import folder as files
from genie_dg.runs.outcome import Ending
from genie_dg.runs.record import Record
from genie_dg.runs.seal import check_seal, seal
from genie_dg.runs.tensors import DamagedFile, load_tensors, save_tensors
from genie_dg.runtime import keep_memory, same_kernels
from genie_dg.statistics import mean

from .assemble import Parts, usual_lr, whole_gradients
from .evaluate import score
from .keep import Kept, model_file
from .more import remove_checkpoints, set_model_aside
from .options import KEEP
from .outcome import has_stalled
from .schedule import lr_factor_of
from .seeds import seed_of
from .sharing import shared
from .step import batch_of, take_step
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
    with files.alone(folder) if parts.world.first else nullcontext(), same_kernels(parts.config.threads):
        parts.world.wait()
        kept = Kept(one_of("keep", keep, KEEP))
        return _train(parts, folder, report, kept, more, watcher if parts.world.first else None)


def _train(
    parts: Parts, folder: Path, report: Report | None, kept: Kept, more: bool, watcher: Watcher | None
) -> list[Record]:
    config, algorithm, world = parts.config, parts.algorithm, parts.world
    if world.first:
        meta = {"domains": list(parts.domains), "torch": torch.__version__, "device": str(parts.device)}
        files.begin(folder, config, meta)
    world.wait()
    if files.is_done(folder):
        check_seal(folder)
        if world.first:  # killed right after the mark was made
            remove_checkpoints(config, folder, more)
        return files.read_records(folder, len(parts.domains))
    averaging = SWAD(algorithm) if config.swad else None
    scaler = GradScaler(parts.device.type) if config.precision == "float16" else None
    start, records = resume(parts, folder, averaging, scaler, kept)
    log = files.RecordLog(folder, records) if world.first else None
    if watcher is not None:
        watcher.begin(start)
    losses = Losses(parts)
    clock = time.perf_counter()
    for step in () if has_stalled(records, config) else take_steps(parts, start, scaler, losses):
        if averaging is not None:
            averaging.update(algorithm)
        record = None
        if step % config.checkpoint_every == 0 or step == config.steps - 1:
            record = evaluate(parts, step, losses.read())
            if averaging is not None and record.validation_loss is not None:
                averaging.evaluated(record.validation_loss)
            spent = time.perf_counter() - clock
            records.append(record)
            if log is not None:
                log.append(record)
                append_line(folder / files.TIMINGS, {"step": step, "seconds": spent})
                if more:
                    set_model_aside(config, folder, step)
                kept.add(parts, folder, records)
                if watcher is not None:
                    watcher.add(record)
                save(parts, folder, step + 1, log, averaging, scaler, kept)
            clock = time.perf_counter()
        if report is not None:
            report(step + 1, record)
        if record is not None and has_stalled(records, config):
            break
    finish(parts, folder, averaging, records, kept, more)
    return records


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
    losses, autocast, default_lr = losses or Losses(parts), AUTOCAST[config.precision], usual_lr(config)
    parts.algorithm.train()
    with ahead(parts.training, config.steps) as batches:
        for step in range(start, config.steps):
            batch = batch_of(batches(step))
            seed_torch((seed + step) % 2**63)  # dropout
            context = StepContext(step, seed, parts.create_graph)
            with shared(parts.algorithm, world, whole_gradients(config)):
                stepped = take_step(
                    parts.algorithm, parts.optimizers, batch, context, autocast, scaler, world, default_lr,
                    lr_factor_of(config, step), config.clip,
                )  # fmt: skip
            losses.add(step, stepped.get(MAIN))
            yield step
    losses.read()


class Losses:
    """The training losses since the last record.

    To read a number from a device is to wait for it, so they are read together when a record is made, and one
    that is not finite is refused then, by the number of its step. On the CPU there is nothing to wait for, and
    it is refused at once. Several processes have the same losses, and take their mean when a record is made.
    """

    def __init__(self, parts: Parts) -> None:
        self._config, self._world = parts.config, parts.world
        self._at_once = parts.device.type == "cpu" and parts.world.size == 1
        self._steps: list[int] = []
        self._losses: list[Tensor] = []

    def add(self, step: int, loss: Tensor | None) -> None:
        """The loss of a step; ``None`` where the step had none."""
        if loss is None:
            return
        if self._at_once:
            self._check(step, float(loss))
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
            self._check(step, value)
        self._steps, self._losses = [], []
        return values

    def _check(self, step: int, loss: float) -> None:
        if not math.isfinite(loss):
            raise NotFinite(
                f"The loss of step {step} is {loss}; lower the learning rate of {self._config.optimizer} "
                f"(settings {dict(self._config.optimizer_settings)}), or try another draw."
            )


def evaluate(parts: Parts, step: int, losses: list[float]) -> Record:
    """A record: accuracies of the parts of domains, and the mean of the training losses since the last one."""
    scores = {}
    for key, batches in parts.evaluations.items():
        if isinstance(batches, AugmentedEvaluation):
            batches.at_step(step)
        scores[key] = score(parts.algorithm, batches, parts.world)
    domains = range(len(parts.domains))
    shortest = min(len(parts.training.samplers[k].positions) for k in range(len(parts.sources)))
    return Record(
        step=step,
        epoch=step * parts.config.batch_size / shortest,
        loss=mean(losses) if losses else None,
        validation_loss=mean(scores[k, "out"].loss for k in parts.sources),
        in_acc=tuple(scores[k, "in"].accuracy if (k, "in") in scores else None for k in domains),
        out_acc=tuple(scores[k, "out"].accuracy for k in domains),
    )


def save(
    parts: Parts,
    folder: Path,
    step: int,
    log: files.RecordLog,
    averaging: SWAD | None,
    scaler: GradScaler | None,
    kept: Kept,
) -> None:
    """Everything that is needed to go on from ``step``; saved right after a record, so no loss is pending."""
    state = {
        "run": parts.config.run_id,
        "step": step,
        "records": log.count,
        "records_digest": log.digest,
        "kept": dict(kept.steps),
        "algorithm": parts.algorithm.state_dict(),
        "optimizers": {role: o.state_dict() for role, o in parts.optimizers.items()},
        "averaging": averaging.state_dict() if averaging is not None else {},
        "scaler": scaler.state_dict() if scaler is not None else {},
    }
    save_tensors(folder / files.CHECKPOINT, state, before=folder / files.BEFORE)


def resume(
    parts: Parts, folder: Path, averaging: SWAD | None, scaler: GradScaler | None, kept: Kept
) -> tuple[int, list[Record]]:
    """Load the newest checkpoint that is whole, when there is one: the next step and the records so far."""
    records: list[Record] = []
    step = 0
    parts.world.wait()
    for name in (files.CHECKPOINT, files.BEFORE):
        if not (folder / name).exists():
            continue
        try:
            state, records, steps = _read_checkpoint(parts, folder, name, kept)
        except FileError as error:
            if parts.world.first:
                _say_damaged(folder, name, error)
            continue
        step, kept.steps = state["step"], steps
        _load(parts, folder / name, state, averaging, scaler)
        break
    parts.world.wait()
    if parts.world.first:
        kept.remove_others(folder)
    return step, records


def _read_checkpoint(
    parts: Parts, folder: Path, name: str, kept: Kept
) -> tuple[dict[str, Any], list[Record], dict[str, int]]:
    """A checkpoint with its records and files of weights; refused where one of these is not what it says."""
    state = load_tensors(folder / name, parts.device)
    whole = all(isinstance(state.get(key), int) for key in ("step", "records"))
    if not whole or state.get("run", parts.config.run_id) != parts.config.run_id:
        raise DamagedFile(f"{folder / name} is not a checkpoint of this run")
    records = files.read_records(folder, len(parts.domains), state["records"], state.get("records_digest", ""))
    return state, records, kept.resume(folder, state)


def _say_damaged(folder: Path, name: str, error: FileError) -> None:
    there = name == files.CHECKPOINT and (folder / files.BEFORE).exists()
    then = "goes on from the checkpoint before" if there else "starts again from its first step"
    what = str(error).rstrip(".").partition("; remove")[0]
    warnings.warn(f"{what}, so the run {then}; its results are the same.", FileWarning, stacklevel=4)


def _load(
    parts: Parts, path: Path, state: dict[str, Any], averaging: SWAD | None, scaler: GradScaler | None
) -> None:
    try:
        parts.algorithm.load_state_dict(state["algorithm"])
        for role, optimizer in parts.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][role])
        if averaging is not None:
            averaging.load_state_dict(state["averaging"])
        if scaler is not None:
            scaler.load_state_dict(state["scaler"])
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise FileError(
            f"{path} does not fit this run ({type(error).__name__}); remove {path.parent} and start the same "
            "command again: the run then starts from its first step."
        ) from error


def finish(
    parts: Parts, folder: Path, averaging: SWAD | None, records: list[Record], kept: Kept, more: bool
) -> None:
    """The weights that are kept, then the seal that the run is complete."""
    weights = parts.algorithm.state_dict()
    if parts.world.first:
        kept.finish(parts, folder, records[-1])
    if averaging is not None:
        parts.algorithm.load_state_dict({**weights, **averaging.average()})
        record = replace(evaluate(parts, records[-1].step, []), swad=True)
        if parts.world.first:
            write_json(folder / files.AVERAGE, record.to_json())
            if kept.keep != "none":
                model_file(parts, record, averaged=True).save(folder / files.AVERAGE_MODEL)
    if parts.world.first:
        seal(folder)
        remove_checkpoints(parts.config, folder, more)
