"""The loop: batch, step, now and then evaluate, record, save. It reads from top to bottom.

Everything random in step t is a function of (run, t), so a run that goes on from a checkpoint repeats what an
undisturbed one does, to the bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path

import torch
from torch import Tensor
from torch.amp import GradScaler

from genie_dg._types import MAIN, DomainBatch, StepContext
from genie_dg.data.loaders import AugmentedEvaluation, ahead
from genie_dg.files import FileError, append_line, write_json, write_whole
from genie_dg.optim.swad import SWAD
from genie_dg.runs import folder as files
from genie_dg.runs.record import Record

from .assemble import Parts, usual_lr
from .evaluate import on_device, score
from .seeds import seed_of
from .step import take_step

Report = Callable[[int, Record | None], None]
"""Called after every step with the number of steps done, and the record where one was made."""

AUTOCAST = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""The type of the forward pass for each precision."""


class NotFinite(FileError):
    """The loss is not a number any more."""


def train(parts: Parts, folder: Path, report: Report | None = None) -> list[Record]:
    """Train to the end, from the last checkpoint when there is one; returns the records.

    Args:
        parts: from `assemble`.
        folder: of this run; created when missing.
        report: called after every step.
    """
    with files.alone(folder) if parts.world.first else nullcontext(), same_kernels(parts.config.threads):
        parts.world.wait()
        return _train(parts, folder, report)


@contextmanager
def same_kernels(threads: int) -> Iterator[None]:
    """The same arithmetic every time: so many threads, and CuDNN's deterministic kernels, as DomainBed asks."""
    usual, tf32 = torch.get_num_threads(), torch.backends.cudnn.allow_tf32
    torch.set_num_threads(threads)
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32):
            yield
    finally:
        torch.set_num_threads(usual)


def _train(parts: Parts, folder: Path, report: Report | None) -> list[Record]:
    config, algorithm, world = parts.config, parts.algorithm, parts.world
    if world.first:
        meta = {"domains": list(parts.domains), "torch": torch.__version__, "device": str(parts.device)}
        files.begin(folder, config, meta)
    world.wait()
    if (folder / files.DONE).exists():
        (folder / files.CHECKPOINT).unlink(missing_ok=True)  # killed right after the mark was made
        return files.read_records(folder, len(parts.domains))
    averaging = SWAD(algorithm) if config.swad else None
    scaler = GradScaler(parts.device.type) if config.precision == "float16" else None
    start, records = resume(parts, folder, averaging, scaler)
    losses: list[float] = []
    clock = time.perf_counter()
    for step, loss in take_steps(parts, start, scaler):
        losses += [] if loss is None else [loss]
        if averaging is not None:
            averaging.update(algorithm)
        record = None
        if step % config.checkpoint_every == 0 or step == config.steps - 1:
            record = evaluate(parts, step, losses)
            if averaging is not None and record.validation_loss is not None:
                averaging.evaluated(record.validation_loss)
            spent, losses = time.perf_counter() - clock, []
            records.append(record)
            if world.first:
                append_line(folder / files.RECORDS, record.to_json())
                save(parts, folder, step + 1, len(records), averaging, scaler)
                append_line(folder / files.TIMINGS, {"step": step, "seconds": spent})
            clock = time.perf_counter()
        if report is not None:
            report(step + 1, record)
    finish(parts, folder, averaging)
    return records


def take_steps(
    parts: Parts, start: int = 0, scaler: GradScaler | None = None
) -> Iterator[tuple[int, float | None]]:
    """Train in memory: yields after every step its number and the loss before it, ``None`` where only other
    roles were stepped.

    Torch's global random stream is set in every step; ``torch.random.fork_rng`` around the loop keeps it.
    """
    config = parts.config
    parts.algorithm.train()
    with ahead(parts.training, config.steps) as batches:
        yield from _steps(parts, start, scaler, batches)


def _steps(
    parts: Parts, start: int, scaler: GradScaler | None, batches: Callable[[int], list[tuple[Tensor, Tensor]]]
) -> Iterator[tuple[int, float | None]]:
    config, world, seed = parts.config, parts.world, seed_of("steps", parts.config)
    default_lr = usual_lr(config)
    for step in range(start, config.steps):
        batch = world.share(batch_of(batches(step), parts.device, parts.layout))
        torch.manual_seed((seed + step + world.rank * 2**40) % 2**63)  # dropout
        context = StepContext(step, seed, parts.create_graph)
        autocast = AUTOCAST[config.precision]
        loss = take_step(
            parts.algorithm, parts.optimizers, batch, context, autocast, scaler, world, default_lr
        ).get(MAIN)
        if loss is not None and not math.isfinite(loss):
            raise NotFinite(
                f"The loss of step {step} is {loss}; lower the learning rate of {config.optimizer} "
                f"(settings {dict(config.optimizer_settings)}), or try another draw."
            )
        yield step, loss


def batch_of(
    pairs: list[tuple[Tensor, Tensor]],
    device: torch.device,
    layout: torch.memory_format = torch.contiguous_format,
) -> DomainBatch:
    """The loader's pairs as a batch on a device."""
    images, labels = zip(*((on_device(x, device, layout), y.to(device)) for x, y in pairs), strict=True)
    return DomainBatch(tuple(images), tuple(labels))


def evaluate(parts: Parts, step: int, losses: list[float]) -> Record:
    """A record: accuracies of the parts of domains, and the mean of the training losses since the last one."""
    scores = {}
    for key, batches in parts.evaluations.items():
        if isinstance(batches, AugmentedEvaluation):
            batches.at_step(step)
        scores[key] = score(parts.algorithm, batches, parts.device, parts.world, parts.layout)
    domains = range(len(parts.domains))
    shortest = min(len(parts.training.samplers[k].positions) for k in range(len(parts.sources)))
    return Record(
        step=step,
        epoch=step * parts.config.batch_size / shortest,
        loss=_mean(losses),
        validation_loss=sum(scores[k, "out"].loss for k in parts.sources) / len(parts.sources),
        in_acc=tuple(scores[k, "in"].accuracy if (k, "in") in scores else None for k in domains),
        out_acc=tuple(scores[k, "out"].accuracy for k in domains),
    )


def _mean(losses: list[float]) -> float | None:
    """Added one by one, as they came."""
    total = 0.0
    for loss in losses:
        total += loss
    return total / len(losses) if losses else None


def save(
    parts: Parts, folder: Path, step: int, records: int, averaging: SWAD | None, scaler: GradScaler | None
) -> None:
    """Everything that is needed to go on from ``step``; saved right after a record, so no loss is pending."""
    files.save_tensors(
        folder / files.CHECKPOINT,
        {
            "step": step,
            "records": records,
            "algorithm": parts.algorithm.state_dict(),
            "optimizers": {role: o.state_dict() for role, o in parts.optimizers.items()},
            "averaging": averaging.state_dict() if averaging is not None else {},
            "scaler": scaler.state_dict() if scaler is not None else {},
        },
    )


def resume(
    parts: Parts, folder: Path, averaging: SWAD | None, scaler: GradScaler | None
) -> tuple[int, list[Record]]:
    """Load the checkpoint when there is one: the next step and the records so far."""
    path, records, step = folder / files.CHECKPOINT, [], 0
    parts.world.wait()
    if path.exists():
        state = files.load_tensors(path, parts.device)
        parts.algorithm.load_state_dict(state["algorithm"])
        for role, optimizer in parts.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][role])
        if averaging is not None:
            averaging.load_state_dict(state["averaging"])
        if scaler is not None:
            scaler.load_state_dict(state["scaler"])
        records, step = (
            files.read_records(folder, len(parts.domains), int(state["records"])),
            int(state["step"]),
        )
    parts.world.wait()
    if parts.world.first:
        files.cut_records(folder, records)
    return step, records


def finish(parts: Parts, folder: Path, averaging: SWAD | None) -> None:
    """The final weights, then the mark that the run is complete."""
    weights = parts.algorithm.state_dict()
    if parts.world.first:
        files.save_tensors(folder / files.MODEL, {"algorithm": weights, "config": asdict(parts.config)})
    if averaging is not None:
        averaged = {**weights, **averaging.average()}
        parts.algorithm.load_state_dict(averaged)
        record = replace(evaluate(parts, parts.config.steps - 1, []), swad=True)
        if parts.world.first:
            write_json(folder / files.AVERAGE, record.to_json())
            files.save_tensors(folder / files.AVERAGE_MODEL, {"algorithm": averaged})
    if parts.world.first:
        write_whole(folder / files.DONE, b"")
        (folder / files.CHECKPOINT).unlink(missing_ok=True)
