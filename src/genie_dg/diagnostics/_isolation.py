"""Measuring without changing the run: what a measurement touches is restored, to the bit.

A measurement runs the model forward and backward. That may move random streams (dropout), batch-norm
statistics and any other buffer, the train/eval switch of each module and ``.grad``. `undisturbed` restores all
of them, also when the measurement fails. This package never writes weights: perturbed weights are passed
through ``torch.func.functional_call``, and steps are taken on copies.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from genie_dg._streams import own_randomness as own_randomness
from genie_dg.check import one_of

from ._losses import MeasurementError

Mode: TypeAlias = Literal["eval", "dropout", "train"]
MODES: tuple[Mode, ...] = ("eval", "dropout", "train")
"""How a model runs while it is measured.

- ``"eval"``: as in ``model.eval()``: no dropout, batch norm with its running statistics.
- ``"dropout"``: as in ``model.train()``, but normalisation layers keep their running statistics.
- ``"train"``: as in ``model.train()``: batch norm mixes the samples of a batch, so one sample has no gradient
  of its own, and only micro-batches and domains can be measured.
"""


def set_mode(model: nn.Module, mode: Mode) -> None:
    """Switch every module; see `MODES`."""
    model.train(mode != "eval")
    if mode == "dropout":
        for module in model.modules():
            if isinstance(module, nn.modules.batchnorm._NormBase):  # batch and instance norm
                module.train(False)


def _lend_buffers(holders: list[tuple[nn.Module, dict[str, Tensor | None]]]) -> None:
    """Give modules copies to write on; writing the originals, even back, would spoil a backward under way."""
    copies: dict[int, Tensor] = {}
    for module, held in holders:
        for name, buffer in held.items():
            if buffer is not None:
                module._buffers[name] = copies.setdefault(id(buffer), buffer.detach().clone())


@contextmanager
def undisturbed(model: nn.Module, mode: Mode = "eval", seed: int | None = 0) -> Iterator[None]:
    """Run what is inside with ``model`` in ``mode`` and gradients enabled; then restore everything.

    Args:
        model: its train/eval switches, buffers and ``.grad`` are restored.
        mode: see `MODES`.
        seed: where random numbers inside come from; ``None`` goes on from the current streams. Either way
            the streams are restored.
    """
    one_of("mode", mode, MODES, MeasurementError)
    switches = [(module, module.training) for module in model.modules()]
    holders = [(module, dict(module._buffers)) for module in model.modules() if module._buffers]
    gradients = [(p, p.grad, None if p.grad is None else p.grad._version) for p in model.parameters()]
    try:
        with own_randomness(seed), torch.enable_grad():
            set_mode(model, mode)
            _lend_buffers(holders)
            yield
    finally:
        for module, training in switches:
            module.training = training
        for module, held in holders:
            module._buffers.clear()
            module._buffers.update(held)
        for p, gradient, written in gradients:
            p.grad = gradient
            if gradient is not None and gradient._version != written:
                raise MeasurementError(
                    "The loss wrote into .grad while it was measured; give a loss that only returns a "
                    "scalar and leaves backward() to the caller."
                )
