"""What SAM, GAM, FAD and SAGM share: gradients at several points, and an optimizer around an optimizer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp import GradScaler
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parameter import is_lazy
from torch.optim.optimizer import Optimizer
from torch.utils.hooks import RemovableHandle

from ._local import SumOverRanks, is_sharded, local, local_gradient, shard_groups
from ._options import OptionError, check_parameter
from ._update import compute_dtype

ParameterVector = list[Tensor | None]
"""One tensor for each parameter, float32 or wider; None where there is no gradient, which counts as zero."""


def weighted_sum(*terms: tuple[float | Tensor, ParameterVector]) -> ParameterVector:
    """The sum of factor times vector. A factor of 0 does not hide a NaN."""
    result: ParameterVector = []
    for parts in zip(*(vector for _, vector in terms), strict=True):
        entry: Tensor | None = None
        for (factor, _), part in zip(terms, parts, strict=True):
            if part is not None:
                by = factor.to(part.device) if isinstance(factor, Tensor) else factor
                entry = part * by if entry is None else entry + part * by
        result.append(entry)
    return result


class ClosureGradient:
    """The gradient of a closure's loss, at the weights and at points near them.

    Attributes:
        loss: what the closure returned in the first pass.
    """

    def __init__(
        self,
        params: list[Tensor],
        closure: Callable[[], Any],
        norms: list[_NormBase] | None,
        scaler: GradScaler | None,
    ) -> None:
        self.params, self.closure, self.norms, self.scaler = params, closure, norms, scaler
        self.loss: Any = None
        self._first = True

    def at(self, offset: ParameterVector | None = None) -> ParameterVector:
        """The gradient at weights + offset; the weights are back, bit for bit, when this returns or raises."""
        steady: AbstractContextManager[None] = nullcontext() if self._first else steady_statistics(self.norms)
        with shifted(self.params, offset), steady, torch.enable_grad():
            try:
                loss = self.closure()
            finally:
                torch.clear_autocast_cache()  # it holds casts of the weights of this pass
        if self._first:
            self.loss, self._first = loss, False
        return [self._gradient(p) for p in self.params]

    @property
    def scale(self) -> float:
        """What the loss, and so every gradient, is multiplied by; 1 without a scaler."""
        return 1.0 if self.scaler is None else self.scaler.get_scale()

    def dot(self, a: ParameterVector, b: ParameterVector) -> Tensor:
        """The inner product over all parameters, and over all ranks that hold shards of them."""
        parts: dict[tuple[Any, ...], list[Tensor]] = defaultdict(list)
        for p, x, y in zip(self.params, a, b, strict=True):
            if x is not None and y is not None:
                parts[shard_groups(p)].append(torch.dot(x.reshape(-1), y.reshape(-1)))
        products = [x for terms in parts.values() for x in terms]
        device = products[0].device if products else torch.device("cpu")
        dtype = torch.float64 if any(x.dtype == torch.float64 for x in products) else torch.float32
        result = torch.zeros((), dtype=dtype, device=device)
        for groups, terms in parts.items():
            result = result + SumOverRanks(groups)(torch.stack([x.to(device, dtype) for x in terms]).sum())
        return result

    def sphere(self, radius: float, direction: ParameterVector) -> ParameterVector:
        """The vector of length radius along a direction; zero where the direction is zero or not finite."""
        length = self.dot(direction, direction).sqrt()
        usable = torch.isfinite(length) & (length > 0)
        return [
            None if x is None else torch.where(usable.to(x.device), x * (radius / length).to(x.device), 0.0)
            for x in direction
        ]

    def _gradient(self, p: Tensor) -> Tensor | None:
        g = p.grad
        return None if g is None else widened(local_gradient(p, g), copy=True)


def gather_gradients(
    optimizer: Optimizer, closure: Callable[[], Any], scaler: GradScaler | None = None
) -> tuple[Any, Optimizer]:
    """Call the closure as often as a step needs, and leave the gradient in ``p.grad`` without a step.

    Args:
        optimizer: any; of SAM and its kin all passes are made, for others the closure is called once.
        closure: clears gradients, computes the loss, calls backward and returns the loss.
        scaler: the one that scales the loss in the closure.

    Returns:
        The loss at the weights, and the optimizer whose ``step()`` takes the step: of SAM and its kin the base.
    """
    if isinstance(optimizer, Passes):
        return optimizer.gather(closure, scaler), optimizer.base
    with torch.enable_grad():
        return closure(), optimizer


def backward(loss: Tensor, optimizer: Optimizer, create_graph: bool) -> None:
    """Write the gradients of a loss to the parameters of an optimizer and, where it must be so, their graph.

    With a graph, ``torch.autograd.grad`` takes the place of ``loss.backward``, which would tie parameters and
    gradients into a cycle and warn of it.
    """
    if not create_graph:
        loss.backward()  # type: ignore[no-untyped-call]
        return
    parameters = [p for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    gradients = torch.autograd.grad(loss, parameters, create_graph=True, allow_unused=True)
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient


def widened(x: Tensor, copy: bool = False) -> Tensor:
    """In float32, or as it is where it is wider."""
    return x.to(compute_dtype(x.dtype), copy=copy)


@contextmanager
def shifted(params: list[Tensor], offset: ParameterVector | None) -> Iterator[None]:
    """Weights + offset inside, and afterwards the bits that were there before."""
    moved = [] if offset is None else [(p, e) for p, e in zip(params, offset, strict=True) if e is not None]
    before = [local(p.detach()).clone() for p, _ in moved]
    try:
        for p, e in moved:
            place = local(p.detach())
            place.copy_(widened(place) + e)
        yield
    finally:
        for (p, _), old in zip(moved, before, strict=True):
            local(p.detach()).copy_(old)


@contextmanager
def steady_statistics(norms: list[_NormBase] | None) -> Iterator[None]:
    """Inside, batch norms work as always; afterwards their running statistics are what they were before.

    Args:
        norms: the modules; None: whatever is called inside, which a global hook sees.
    """
    before: dict[_NormBase, dict[str, Tensor]] = {}
    seen: set[nn.Module] = set()

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def remember(module: nn.Module, _: Any = None) -> None:
        if module not in seen:  # all inside at once: a compiled module calls its parts without hooks
            parts = [part for part in module.modules() if part not in seen]
            seen.update(parts)
            for part in parts:
                if isinstance(part, _NormBase):
                    buffers = part.named_buffers(recurse=False)
                    before[part] = {name: b.clone() for name, b in buffers if not is_lazy(b)}

    handle: RemovableHandle | None = None
    if norms is None:
        handle = register_module_forward_pre_hook(remember)
    else:
        for norm in norms:
            remember(norm)
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()
        with torch.no_grad():
            for part, buffers in before.items():
                for name, old in buffers.items():
                    part.get_buffer(name).copy_(old)


class Passes(Optimizer):
    """An optimizer around another: several passes make one gradient, with which ``base`` steps once.

    Parameter groups, state and state dict are those of ``base``; nothing else has to be saved. A subclass gives
    `combined`, which must be of degree one in the gradients, divided by their ``scale`` where they stand
    for a move of the weights: a scaled loss then scales the result alike.

    Args:
        base: any optimizer whose ``step`` needs no closure.
        model: its batch norms are those whose statistics only the first pass may change; None: those that the
            closure calls. Give it where the model is compiled.
    """

    base: Optimizer
    norms: list[_NormBase] | None

    def __init__(self, base: Optimizer, model: nn.Module | None) -> None:
        name = type(self).__name__
        if not isinstance(base, Optimizer):
            raise OptionError(
                f"{name} got base={type(base).__name__}; expected the optimizer that takes the step, for "
                f"example {name}(torch.optim.SGD(model.parameters(), lr=0.1))."
            )
        norms = None if model is None else [m for m in model.modules() if isinstance(m, _NormBase)]
        # torch's own __init__ would make groups and state; this makes the hooks alone
        self.__setstate__({"base": base, "norms": norms})

    def combined(self, gradient: ClosureGradient) -> ParameterVector:
        """The gradient to step with."""
        raise NotImplementedError

    @torch.no_grad()
    def gather(self, closure: Callable[[], Any], scaler: GradScaler | None = None) -> Any:
        """All passes, no step: the combined gradient is left in ``p.grad``, the weights are as they were.

        Args:
            closure: clears gradients, computes the loss, calls backward and returns the loss.
            scaler: the one that scales the loss in the closure; SAGM needs it, the others do without.

        Returns:
            What the closure returned in the first pass, at the weights themselves.
        """
        if any(group.get("maximize") for group in self.param_groups):
            raise OptionError(
                f"{type(self).__name__} got a base with maximize=True; it looks for the highest loss nearby, "
                "so negate the loss and use maximize=False."
            )
        params = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        for p in params:
            check_parameter(p)
        gradient = ClosureGradient(params, closure, self.norms, scaler)
        for p, value in zip(params, self.combined(gradient), strict=True):
            if value is None or p.grad is None or is_sharded(p):
                p.grad = None if value is None else torch.empty_like(p)
            if value is not None and p.grad is not None:
                local(p.grad).copy_(value)
        return gradient.loss

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """All passes, then one step of ``base``.

        Args:
            closure: required; clears gradients, computes the loss, calls backward and returns the loss.

        Returns:
            What the closure returned in the first pass, at the weights before the step.
        """
        if closure is None:
            raise OptionError(
                f"{type(self).__name__}.step got no closure; it needs several gradients, so pass a function "
                f"that clears the gradients, computes the loss, calls backward and returns the loss (with a "
                f"GradScaler: gather(closure, scaler), then scaler.step(optimizer.base))."
            )
        loss = self.gather(closure)
        self.base.step()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients."""
        self.base.zero_grad(set_to_none)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add a group to ``base``."""
        self.base.add_param_group(param_group)

    def state_dict(self) -> dict[str, Any]:
        """The state dict of ``base``."""
        return self.base.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state dict of ``base``, or of any of these around a base of its kind."""
        self.base.load_state_dict(state_dict)

    def register_state_dict_pre_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """Register on ``base``, which makes the state dict."""
        return self.base.register_state_dict_pre_hook(hook, prepend)

    def register_state_dict_post_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """Register on ``base``, which makes the state dict."""
        return self.base.register_state_dict_post_hook(hook, prepend)

    def register_load_state_dict_pre_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """Register on ``base``, which loads the state dict."""
        return self.base.register_load_state_dict_pre_hook(hook, prepend)

    def register_load_state_dict_post_hook(self, hook: Any, prepend: bool = False) -> RemovableHandle:
        """Register on ``base``, which loads the state dict."""
        return self.base.register_load_state_dict_post_hook(hook, prepend)

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles carry: as in torch, no hooks and no trace of a scheduler."""
        return {name: value for name, value in vars(self).items() if name[0] != "_" and name != "step"}

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """The groups of ``base``."""
        return self.base.param_groups

    @property
    def state(self) -> Any:  # type: ignore[override]
        """The state of ``base``."""
        return self.base.state

    @property
    def defaults(self) -> dict[str, Any]:  # type: ignore[override]
        """The defaults of ``base``."""
        return self.base.defaults
