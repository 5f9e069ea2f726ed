"""SWAD: the dense average of the weights over the flat part of the validation loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from genie_dg import check
from genie_dg.check import InputError

_Weights = Mapping[str, Tensor]


@dataclass
class Segment:
    """The mean of the iterates between two evaluations, how many they are, and the loss at the later one.

    ``mean`` holds floating-point entries in float32 or wider; other entries are those of the last iterate.
    """

    mean: dict[str, Tensor]
    count: int = 0
    loss: float = math.nan

    @torch.no_grad()
    def add(self, weights: _Weights) -> None:
        """Count one more iterate: ``mean <- mean + (weights - mean) / n``."""
        self.count += 1
        means, news = [], []
        for name, new in weights.items():
            if new.is_floating_point() and name in self.mean:
                mean = self.mean[name] = self.mean[name].to(new.device)
                means.append(mean)
                news.append(new.to(mean.dtype))
            else:  # the first iterate, or an entry that has no mean, such as a count
                self.mean[name] = _wide(new).clone()
        if means:
            torch._foreach_lerp_(means, news, 1 / self.count)

    def joined(self, later: Segment) -> Segment:
        """One segment of the iterates of both."""
        count = self.count + later.count
        share = later.count / count
        mean = {
            name: torch.lerp(x, later.mean[name], share) if x.is_floating_point() else later.mean[name]
            for name, x in self.mean.items()
        }
        return Segment(mean, count, later.loss)

    def on_cpu(self) -> Segment:
        return Segment({name: x.cpu() for name, x in self.mean.items()}, self.count, self.loss)

    @staticmethod
    def of(saved: Mapping[str, Any]) -> Segment:
        """The segment whose ``vars`` are saved."""
        mean = {name: x.clone() for name, x in saved["mean"].items()}
        return Segment(mean, int(saved["count"]), float(saved["loss"]))


def _wide(x: Tensor) -> Tensor:
    """Without graph; half precision in float32."""
    x = x.detach()
    return x.to(torch.promote_types(x.dtype, torch.float32)) if x.is_floating_point() else x


def _weights_of(source: nn.Module | _Weights) -> _Weights:
    """The state dict of a module, or the mapping itself."""
    return source.state_dict() if isinstance(source, nn.Module) else source


class SWAD:
    r"""Stochastic Weight Averaging Densely: the mean of the weights of all steps from t_s to t_e.

    The k-th evaluation gives the validation loss :math:`E_k`; its *segment* are the steps after evaluation
    :math:`k-1` up to and with evaluation :math:`k`. With :math:`N_s` = ``n_converge``, :math:`N_e` =
    ``n_tolerance`` and :math:`r` = ``tolerance_ratio``

    - the average begins with the segment of the first :math:`k` for which
      :math:`E_k = \min(E_k, \dots, E_{k+N_s-1})`; from these losses comes the threshold
      :math:`l = (1 + r) \frac{1}{N_s} \sum_{i=0}^{N_s-1} E_{k+i}`;
    - it ends with the segment of evaluation :math:`j - N_e`, where :math:`j` is the first evaluation after
      those with :math:`l < \min(E_{j-N_e+1}, \dots, E_j)`; without such a :math:`j` it goes on to the
      last step.

    Every step counts once, whatever the lengths of the segments. Without a beginning, `average` gives
    the mean over the last closed segment.

    All floating-point entries of the state dict are averaged, running statistics of batch norms among them:
    where these are frozen this changes nothing, elsewhere recompute them for the averaged weights
    (``torch.optim.swa_utils.update_bn``). Other entries, such as counts, are those of the last step averaged.
    Means are float32 or wider. One mean is on the device of the weights, at most max(N_s, N_e + 1) more on the
    CPU.

    Args:
        module: the module, or its state dict; names, shapes and types are taken from it, not its values.
        n_converge: :math:`N_s`, evaluations that must not fall below the first of them.
        n_tolerance: :math:`N_e`, evaluations that must all lie above the threshold.
        tolerance_ratio: :math:`r`, at least 0.

    Example:
        >>> swad = SWAD({"w": torch.zeros(1)}, n_converge=2, n_tolerance=1, tolerance_ratio=0.3)
        >>> for w, loss in [(9.0, 3.0), (1.0, 1.0), (2.0, 1.2), (6.0, 1.3), (8.0, 5.0)]:
        ...     swad.update({"w": torch.tensor([w])})
        ...     swad.evaluated(loss)
        >>> swad.finished, swad.average()["w"]  # from 1.0 to 6.0; 5.0 lies above 1.3 * (1.0 + 1.2) / 2
        (True, tensor([3.]))

    Differs from the authors' code in: it follows the paper's algorithm, so the average does not reach back to
    segments before the minimum, and at the end of the training no segment is taken away; segments count by
    their number of steps.

    References:
        J. Cha, S. Chun, K. Lee, H. Cho, S. Park, Y. Lee, S. Park, "SWAD: Domain Generalization by Seeking Flat
        Minima", NeurIPS 2021.
    """

    def __init__(
        self,
        module: nn.Module | _Weights,
        n_converge: int = 3,
        n_tolerance: int = 6,
        tolerance_ratio: float = 0.3,
    ) -> None:
        self.n_converge = check.whole_number("n_converge", n_converge)
        self.n_tolerance = check.whole_number("n_tolerance", n_tolerance)
        self.tolerance_ratio = check.number("tolerance_ratio", tolerance_ratio, 0)
        self._like = {name: (x.dtype, x.shape) for name, x in _weights_of(module).items()}
        self._open = Segment({})
        self._recent: list[Segment] = []  # before the beginning: the last N_s; after it: the last N_e
        self._kept: Segment | None = None  # what surely belongs to the average
        self._threshold = math.nan
        self._finished = False

    @property
    def finished(self) -> bool:
        """Whether the average has ended: later steps change nothing."""
        return self._finished

    @property
    def converged(self) -> bool:
        """Whether the average has begun."""
        return not math.isnan(self._threshold)

    def update(self, module: nn.Module | _Weights) -> None:
        """Count the weights after one step."""
        if self._finished:
            return
        weights = _weights_of(module)
        shapes = {name: x.shape for name, x in weights.items()}
        if shapes != {name: shape for name, (_, shape) in self._like.items()}:
            raise InputError(
                "SWAD got weights with other names or shapes than it was built with; give it the same module."
            )
        self._open.add(weights)

    def evaluated(self, loss: float) -> None:
        """Close the segment with the validation loss of the present weights."""
        if self._finished:
            return
        if math.isnan(loss) or loss < 0:
            raise InputError(
                f"got loss={loss!r}; expected a number of at least 0, for example the mean cross-entropy, "
                f"because SWAD compares losses with a multiple of a loss."
            )
        if self._open.count == 0:
            raise InputError(
                "SWAD got an evaluation without a step before it; call update(module) in each step."
            )
        closed = self._open.on_cpu()
        closed.loss = float(loss)
        self._open = Segment({})
        self._recent.append(closed)
        losses = [segment.loss for segment in self._recent]
        if self.converged:
            self._keep_all_but_the_window()
            if self._kept is not None and min(losses[-self.n_tolerance :]) > self._threshold:
                self._finished, self._recent = True, []
            return
        self._recent, losses = self._recent[-self.n_converge :], losses[-self.n_converge :]
        if len(losses) == self.n_converge and losses[0] == min(losses) and math.isfinite(sum(losses)):
            self._threshold = (1 + self.tolerance_ratio) * sum(losses) / len(losses)
            self._keep_all_but_the_window()

    def _keep_all_but_the_window(self) -> None:
        """Segments older than the last N_e can no longer be cut off."""
        while len(self._recent) > self.n_tolerance:
            oldest = self._recent.pop(0)
            self._kept = oldest if self._kept is None else self._kept.joined(oldest)

    def average(self) -> dict[str, Tensor]:
        """The averaged weights on the CPU, by name, in the types of the module; see the class for the cases."""
        if self.converged:
            parts = [segment for segment in (self._kept, *self._recent) if segment is not None]
            if self._open.count:
                parts.append(self._open.on_cpu())
        else:
            parts = self._recent[-1:] or [self._open.on_cpu()]
        result = parts[0]
        for part in parts[1:]:
            result = result.joined(part)
        if result.count == 0:
            raise InputError("SWAD has no weights to average yet; call update(module) after each step.")
        return {name: result.mean[name].to(dtype, copy=True) for name, (dtype, _) in self._like.items()}

    def state_dict(self) -> dict[str, Any]:
        """Tensors and numbers from which `load_state_dict` goes on, bit for bit."""
        return {
            "settings": [self.n_converge, self.n_tolerance, self.tolerance_ratio],
            "open": dict(vars(self._open)),
            "recent": [dict(vars(segment)) for segment in self._recent],
            "kept": [] if self._kept is None else [dict(vars(self._kept))],
            "threshold": self._threshold,
            "finished": self._finished,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what `state_dict` gave; the settings must be the same."""
        own = [self.n_converge, self.n_tolerance, self.tolerance_ratio]
        if list(state["settings"]) != own:
            raise InputError(
                f"SWAD was saved with n_converge, n_tolerance, tolerance_ratio = {list(state['settings'])} and "
                f"is now {own}; build it with the saved settings."
            )
        self._open = Segment.of(state["open"])
        self._recent = [Segment.of(saved).on_cpu() for saved in state["recent"]]
        self._kept = next((Segment.of(saved).on_cpu() for saved in state["kept"]), None)
        self._threshold, self._finished = float(state["threshold"]), bool(state["finished"])
