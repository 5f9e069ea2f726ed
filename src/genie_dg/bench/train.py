"""The loop: batch, step, now and then evaluate, record, save. It reads from top to bottom.

Everything random in step t is a function of (run, t), so a run that goes on from a checkpoint repeats what an
undisturbed one does, to the bit.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.amp import GradScaler

from genie_dg._types import MAIN, DomainBatch, StepContext
from genie_dg.config import canonical
from genie_dg.data.loaders import AugmentedEvaluation
from genie_dg.optim.swad import SWAD

from . import checkpoint as disk
from .assemble import Parts
from .evaluate import score
from .seeds import seed_of
from .step import take_step

Record = dict[str, Any]
"""``step``, ``epoch``, ``loss``, and by domain index the lists ``in_acc`` and ``out_acc``."""


AUTOCAST = {"float32": None, "bfloat16": torch.bfloat16, "float16": torch.float16}
"""The type of the forward pass for each precision."""


class NotFinite(RuntimeError):
    """The loss is no number any more."""


def train(
    parts: Parts, folder: Path, report: Callable[[int, Record | None], None] | None = None
) -> list[Record]:
    """Train to the end, from the last checkpoint when there is one; returns the records.

    Args:
        parts: from `assemble`.
        folder: of this run; created when missing.
        report: called after every step with the number of steps done, and the record where one was made.
    """
    with disk.alone(folder) if parts.world.first else nullcontext(), same_kernels():
        parts.world.wait()
        return _train(parts, folder, report)


@contextmanager
def same_kernels() -> Iterator[None]:
    """CuDNN chooses the same, deterministic kernels every time, as DomainBed asks of it."""
    tf32 = torch.backends.cudnn.allow_tf32
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=tf32):
        yield


def _train(parts: Parts, folder: Path, report: Callable[[int, Record | None], None] | None) -> list[Record]:
    config, algorithm = parts.config, parts.algorithm
    world = parts.world
    if world.first:
        begin(parts, folder)
    world.wait()
    if (folder / disk.DONE).exists():
        return finished(folder)
    averaging = SWAD(algorithm) if config.swad else None
    autocast = AUTOCAST[config.precision]
    scaler = GradScaler(parts.device.type) if autocast == torch.float16 else None
    start, records = resume(parts, folder, averaging, scaler)
    step_seed, losses = seed_of("steps", config), [0.0, 0.0]
    algorithm.train()
    clock = time.perf_counter()
    for step in range(start, config.steps):
        batch = world.share(batch_of(parts.training.at(step), parts.device))
        torch.manual_seed((step_seed + step + world.rank * 2**40) % 2**63)  # dropout
        context = StepContext(step, step_seed, parts.create_graph)
        loss = take_step(algorithm, parts.optimizers, batch, context, autocast, scaler, world).get(MAIN)
        if loss is not None:
            if not math.isfinite(loss):
                raise NotFinite(
                    f"The loss of step {step} is {loss}; lower the learning rate of {config.optimizer} "
                    f"(settings {dict(config.optimizer_settings)}), or try another draw."
                )
            losses = [losses[0] + loss, losses[1] + 1]
        if averaging is not None:
            averaging.update(algorithm)
        record = None
        if step % config.checkpoint_every == 0 or step == config.steps - 1:
            record = evaluate(parts, step, losses)
            if averaging is not None:
                averaging.evaluated(record["validation_loss"])
            spent, losses = time.perf_counter() - clock, [0.0, 0.0]
            records.append(record)
            if world.first:
                disk.append_line(folder / disk.RECORDS, record)
                save(parts, folder, step + 1, len(records), averaging, scaler)
                disk.append_line(folder / disk.TIMINGS, {"step": step, "seconds": spent})
            clock = time.perf_counter()
        if report is not None:
            report(step + 1, record)
    finish(parts, folder, averaging)
    return records


def begin(parts: Parts, folder: Path) -> None:
    """Write what the run is; a folder of another run is refused."""
    for left_over in folder.glob("*.part"):  # of a process that was killed while it wrote
        left_over.unlink()
    path, text = folder / disk.CONFIG, canonical(parts.config)
    if path.exists() and path.read_text(encoding="utf-8").strip() != text:
        raise disk.RunError(f"{folder} holds another run; choose another folder, or remove it.")
    if not path.exists():
        disk.write_whole(path, (text + "\n").encode("utf-8"))
    if not (folder / disk.META).exists():
        disk.write_json(
            folder / disk.META,
            {"domains": list(parts.domains), "torch": torch.__version__, "device": str(parts.device)},
        )


def batch_of(pairs: list[tuple[Tensor, Tensor]], device: torch.device) -> DomainBatch:
    """The loader's pairs as a batch on a device."""
    images, labels = zip(*((x.to(device), y.to(device)) for x, y in pairs), strict=True)
    return DomainBatch(tuple(images), tuple(labels))


def evaluate(parts: Parts, step: int, losses: list[float]) -> Record:
    """A record: accuracies of every domain's parts, and the mean training loss since the last one."""
    scores = {}
    for key, batches in parts.evaluations.items():
        if isinstance(batches, AugmentedEvaluation):
            batches.at_step(step)
        scores[key] = score(parts.algorithm, batches, parts.device, parts.world)
    count = len(parts.domains)
    shortest = min(len(parts.training.samplers[k].positions) for k in range(len(parts.sources)))
    return {
        "step": step,
        "epoch": step * parts.config.batch_size / shortest,
        "loss": losses[0] / losses[1] if losses[1] else None,
        "validation_loss": sum(scores[k, "out"].loss for k in parts.sources) / len(parts.sources),
        "in_acc": [scores[k, "in"].accuracy for k in range(count)],
        "out_acc": [scores[k, "out"].accuracy for k in range(count)],
    }


def save(
    parts: Parts, folder: Path, step: int, records: int, averaging: SWAD | None, scaler: GradScaler | None
) -> None:
    """Everything that is needed to go on from ``step``; saved right after a record, so no loss is pending."""
    disk.save_tensors(
        folder / disk.CHECKPOINT,
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
    path = folder / disk.CHECKPOINT
    parts.world.wait()
    if not path.exists():
        if parts.world.first:
            disk.cut_records(folder / disk.RECORDS, [])
        return 0, []
    state = disk.load_tensors(path, parts.device)
    parts.algorithm.load_state_dict(state["algorithm"])
    for role, optimizer in parts.optimizers.items():
        optimizer.load_state_dict(state["optimizers"][role])
    if averaging is not None:
        averaging.load_state_dict(state["averaging"])
    if scaler is not None:
        scaler.load_state_dict(state["scaler"])
    records = disk.read_records(folder / disk.RECORDS, int(state["records"]))
    parts.world.wait()
    if parts.world.first:
        disk.cut_records(folder / disk.RECORDS, records)
    return int(state["step"]), records


def finish(parts: Parts, folder: Path, averaging: SWAD | None) -> None:
    """The final weights, then the mark that the run is complete."""
    weights = parts.algorithm.state_dict()
    if parts.world.first:
        disk.save_tensors(folder / disk.MODEL, {"algorithm": weights, "config": asdict(parts.config)})
    if averaging is not None:
        averaged = {**weights, **averaging.average()}
        parts.algorithm.load_state_dict(averaged)
        record = {**evaluate(parts, parts.config.steps - 1, [0.0, 0.0]), "swad": True}
        if parts.world.first:
            disk.write_json(folder / "swad.json", record)
            disk.save_tensors(folder / "swad.pt", {"algorithm": averaged})
    if parts.world.first:
        disk.write_whole(folder / disk.DONE, b"")
        (folder / disk.CHECKPOINT).unlink(missing_ok=True)


def finished(folder: Path) -> list[Record]:
    """The records of a complete run."""
    (folder / disk.CHECKPOINT).unlink(missing_ok=True)  # killed right after the mark was made
    lines = (folder / disk.RECORDS).read_bytes().splitlines()
    return disk.read_records(folder / disk.RECORDS, len(lines))
