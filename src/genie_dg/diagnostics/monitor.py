"""Attach measurements to a training loop in two lines: one that creates a monitor, one that calls it.

    monitor = Monitor(watch_gsnr(model, loss, batch), every(200), to="gsnr.jsonl")
    for step, (x, y) in enumerate(loader):
        ...
        optimizer.step()
        monitor(step)

A monitor cannot change the run: random streams, ``.grad``, buffers, train/eval switches and weights are the
same after it as before. What cannot be measured (a NaN gradient at three in the morning) is a warning and a
line in the log, not the end of the run.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from torch import nn
from torch.optim import Optimizer

from genie_dg.check import whole_number
from genie_dg.files import append_line

from ._isolation import own_randomness
from ._losses import Batch, Loss, MeasurementError
from .gsnr import gsnr
from .measured import measure_osgr
from .osgr import osgr_of_batch
from .per_sample import gradient_moments
from .preconditioners import preconditioner, reader_of
from .sharpness import Direction, first_order_flatness, loss_rise
from .updates import UpdateRecorder

Gauge: TypeAlias = "Callable[[int], Mapping[str, float]]"
"""From a step to plain numbers."""

Schedule: TypeAlias = "Callable[[int], bool]"
"""From a step to whether to measure."""


Sink: TypeAlias = "Any"
"""A path, TensorBoard's ``SummaryWriter``, or a function of a record."""


def every(interval: int, start: int = 0) -> Schedule:
    """At ``start``, and every ``interval`` steps after it.

    >>> [step for step in range(10) if every(4)(step)]
    [0, 4, 8]
    """
    whole_number("interval", interval, error=MeasurementError)
    return lambda step: step >= start and (step - start) % interval == 0


def log_steps(count: int, last: int = 10_000) -> Schedule:
    """About ``count`` steps from 1 to ``last``, evenly spaced on a logarithmic scale, and on at the same pace.

    >>> [step for step in range(1200) if log_steps(4, last=1000)(step)]
    [1, 10, 100, 1000]
    """
    whole_number("count", count, 2, error=MeasurementError)
    whole_number("last", last, 2, error=MeasurementError)
    pace = (count - 1) / math.log(last)

    def due(step: int) -> bool:
        if step < 1:
            return False
        k = round(math.log(step) * pace)  # the k-th is the whole number nearest to exp(k / pace)
        return step in (round(math.exp(j / pace)) for j in (k - 1, k, k + 1) if j >= 0)

    return due


class Monitor:
    """Call it with the step number; when the schedule says so it measures, keeps and writes plain numbers.

    Args:
        gauges: a function of the step that returns ``{name: float}``, or several by name (then every number is
            called ``gauge/number``). The ``watch_...`` functions of this module make them.
        when: a schedule, such as ``every(200)`` or ``log_steps(50)``.
        to: where records go besides ``monitor.records``: the path of a JSONL file (appended to, one line a
            record), a ``SummaryWriter`` of TensorBoard, a function, or a list of these. In JSONL a number that
            is not finite is ``null``.
    """

    def __init__(
        self, gauges: Gauge | Mapping[str, Gauge], when: Schedule | None = None, to: Sink = ()
    ) -> None:
        self.gauges: Mapping[str, Gauge] = gauges if isinstance(gauges, Mapping) else {"": gauges}
        self.when = every(200) if when is None else when
        self.records: list[dict[str, float]] = []
        several = to if isinstance(to, (list, tuple)) else [to]
        self._sinks = [_sink(s) for s in several]

    def __call__(self, step: int) -> dict[str, float] | None:
        """Measure if it is time; returns what was measured, or ``None``."""
        if not self.when(step):
            return None
        record: dict[str, float] = {"step": step}
        problems: list[str] = []
        for name, gauge in self.gauges.items():
            try:
                with own_randomness():
                    numbers = gauge(step)
            except MeasurementError as error:
                problems.append(f"{name}: {error}" if name else str(error))
                warnings.warn(f"Step {step} could not be measured. {error}", stacklevel=2)
                continue
            record |= {f"{name}/{key}" if name else key: float(value) for key, value in numbers.items()}
        self.records.append(record)
        for sink in self._sinks:
            sink(record, problems)
        return record


def _sink(to: Sink) -> Callable[[dict[str, float], list[str]], None]:
    if isinstance(to, (str, Path)):
        path = Path(to)
        path.parent.mkdir(parents=True, exist_ok=True)
        return lambda record, problems: _append(path, record, problems)
    add_scalar = getattr(to, "add_scalar", None)
    if add_scalar is not None:
        return lambda record, problems: [  # type: ignore[return-value]
            add_scalar(name, value, int(record["step"])) for name, value in record.items() if name != "step"
        ]
    if callable(to):
        return lambda record, problems: to(dict(record))
    raise MeasurementError(
        f"A monitor cannot write to a {type(to).__name__}; give the path of a JSONL file, a SummaryWriter or "
        "a function."
    )


def _append(path: Path, record: dict[str, float], problems: list[str]) -> None:
    """One line of JSON, in which numbers that are not finite are null."""
    line: dict[str, Any] = {name: value if math.isfinite(value) else None for name, value in record.items()}
    if problems:
        line["problem"] = " ".join(problems)
    append_line(path, line)


def watch_gsnr(model: nn.Module, loss: Loss, batch: Batch, **options: Any) -> Gauge:
    """GSNR of the whole model on a fixed batch; options as in `gradient_moments`."""
    return lambda step: gsnr(gradient_moments(model, loss, batch, **options)).as_floats()


def watch_osgr(
    model: nn.Module, optimizer: Optimizer, loss: Loss, data: Batch, n: int, **options: Any
) -> Gauge:
    """OSGR both ways: measured (``osgr``, ``osgr_first_order``), and in the theorem's form (``theorem_...``).

    The arguments are those of `measure_osgr`. The theorem's form uses all samples of ``data``, ignores
    ``held_out``, since it is about one distribution, and is left out while the optimizer has no state.
    """

    def gauge(step: int) -> dict[str, float]:
        numbers = measure_osgr(model, optimizer, loss, data, n, **options).as_floats()
        reader = reader_of(optimizer)
        if reader is not None and (optimizer.state or not reader[1]):  # SGD's p needs no state
            p = preconditioner(optimizer, model)
            form = osgr_of_batch(model, loss, data, p, n=n).as_floats()
            numbers |= {f"theorem_{name}": value for name, value in form.items()}
        return numbers

    return gauge


def watch_sharpness(
    model: nn.Module, loss: Loss, batch: Batch, radius: float, direction: Direction = "ascent", **options: Any
) -> Gauge:
    """Loss rise and first-order flatness in the same ball (``rise_...`` and ``flatness_...``).

    The arguments are those of `loss_rise`; ``options`` are ``steps`` and ``mode``.
    """

    def gauge(step: int) -> dict[str, float]:
        rise = loss_rise(model, loss, batch, radius, direction=direction, **options).as_floats()
        flat = first_order_flatness(model, loss, batch, radius, **options).as_floats()
        numbers = {f"rise_{name}": rise[name] for name in ("value", "highest")}
        numbers |= {f"flatness_{name}": flat[name] for name in ("value", "steepest")}
        return {**numbers, "radius": rise["radius"]}

    return gauge


class watch_updates:  # a function with a memory
    """Balance of the weight changes since the last measurement; ``recorder.heatmap()`` gives the picture."""

    def __init__(self, model: nn.Module, bins: int = 200) -> None:
        self.recorder = UpdateRecorder(model, bins=bins)

    def __call__(self, step: int) -> dict[str, float]:
        return self.recorder.record(step)
