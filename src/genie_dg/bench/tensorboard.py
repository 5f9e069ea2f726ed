"""TensorBoard's view of a run, written beside its records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from genie_dg.runs.record import Record

from .assemble import Parts

Report = Callable[[int, Record | None], None]


@contextmanager
def logging_to(folder: Path, parts: Parts, report: Report | None) -> Iterator[Report]:
    """A report that also writes losses and accuracies, by domain and part, to ``folder/tensorboard``."""
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(folder / "tensorboard"))

    def logged(done: int, record: Record | None) -> None:
        if record is not None:
            for name in ("loss", "validation_loss"):
                if getattr(record, name) is not None:
                    writer.add_scalar(name, getattr(record, name), record.step)
            for k, domain in enumerate(parts.domains):
                kind = "unseen" if k in parts.config.test_domains else "seen"
                if (inside := record.in_acc[k]) is not None:
                    writer.add_scalar(f"{kind}/{domain}/in", inside, record.step)
                writer.add_scalar(f"{kind}/{domain}/out", record.out_acc[k], record.step)
        if report is not None:
            report(done, record)

    try:
        yield logged
    finally:
        writer.close()
