r"""How evenly training moves the parameters, from the weights themselves and not from gradients.

Between two records parameter :math:`j` moves by :math:`x_j = |\theta_j - \theta_j^{\text{before}}|`. With
:math:`n` parameters, and :math:`x_{(1)} \le \dots \le x_{(n)}` the same numbers in order,

.. math::
    G = \frac{\sum_i (2i - n - 1)\, x_{(i)}}{n \sum_i x_{(i)}}, \qquad
    T_p = \frac{\sum_{i > n - k} x_{(i)}}{\sum_i x_{(i)}}, \quad k = \lceil p\,n \rceil, \qquad
    N_{\text{eff}} = \frac{\left(\sum_i x_{(i)}\right)^2}{\sum_i x_{(i)}^2} .

When all move alike, :math:`G = 0`, :math:`T_p = k/n` and :math:`N_{\text{eff}} = n`; when one moves alone,
:math:`G = 1 - 1/n`, :math:`T_p = 1` and :math:`N_{\text{eff}} = 1`. None depends on the unit of the updates,
so that optimizers with different learning rates can be compared. Sums are accumulated in float64.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor, nn

from genie_dg.check import number, whole_number

from ._losses import MeasurementError as MeasurementError

CHUNK = 1 << 22
"""Entries that are widened to float64 at a time."""


def gini(x: Tensor) -> float:
    """The Gini coefficient G of non-negative numbers: 0 when all are equal, 1 - 1/n when one has everything.

    >>> gini(torch.tensor([1.0, 1.0, 2.0, 0.0]))
    0.375
    """
    return _gini(_ascending(_checked(x)))


def top_share(x: Tensor, fraction: float = 0.01) -> float:
    """The part of the sum that the largest k = ceil(fraction n) of n non-negative numbers hold; k >= 1.

    >>> top_share(torch.tensor([1.0, 1.0, 2.0, 0.0]), fraction=0.25)
    0.5
    """
    number("fraction", fraction, 0, 1, excluding=(0,), error=MeasurementError)
    x = _checked(x)
    return _share(x.topk(_top_count(x.numel(), fraction), sorted=False).values, x)


def effective_number(x: Tensor) -> float:
    r"""The participation ratio :math:`(\sum x)^2 / \sum x^2` of n non-negative numbers, between 1 and n.

    If m of the n numbers are equal and the others zero it is m, so that it counts how many parameters do the
    work. Divided by n it is the effective share: 1 when all are equal, 2/pi = 0.64 for the absolute
    values of independent normal numbers, 1/n when one has everything.

    >>> effective_number(torch.tensor([3.0, 0.0, 3.0, 0.0]))
    2.0
    """
    return _effective(_checked(x))


@dataclass(frozen=True)
class Heatmap:
    """Mean |update| by training step and parameter ID.

    Attributes:
        steps: the step of each row; a row is what moved since the row before.
        values: one row for each step, one number for each group of parameters.
        edges: group b holds the IDs edges[b] to edges[b + 1] - 1.
        boundaries: the first ID of each tensor, by name, in order.
    """

    steps: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]
    edges: tuple[int, ...]
    boundaries: dict[str, int]

    def normalised(self) -> Heatmap:
        """Each row divided by its maximum; a row in which nothing moved stays zero.

        The caption of the paper's Figure 1 says "normalized parameter update magnitudes" and not by what.
        """
        rows = tuple(tuple(v / (max(row) or 1.0) for v in row) for row in self.values)
        return replace(self, values=rows)


class UpdateRecorder:
    r"""Measures how training moved the trainable weights between two calls of `record`.

    It keeps one copy of the weights; while it records, it needs about five more for a moment (the updates, and
    the updates in order). IDs count the entries of the trainable parameters in the order of
    ``named_parameters()``, each tensor row by row; a tied tensor counts once.

    Args:
        parameters: a module, or pairs of name and tensor as ``named_parameters()`` gives them. Tensors
            without ``requires_grad`` are left out.
        bins: the IDs are cut into this many groups of consecutive IDs for the heatmap, group b starting at ID
            ``b n // bins``, so that sizes differ by one at most. With fewer parameters than bins, each
            parameter is a group. Or the edges themselves: ``[0, 3, 4]`` makes two groups of four parameters.

    >>> layer = torch.nn.Linear(3, 1)
    >>> recorder = UpdateRecorder(layer, bins=2)
    >>> with torch.no_grad():
    ...     _ = layer.bias.add_(0.5)
    >>> numbers = recorder.record(step=1)
    >>> round(numbers["gini"], 6), round(numbers["effective_share"], 6), round(numbers["moved_share"], 6)
    (0.75, 0.25, 0.25)
    >>> [round(value, 6) for value in recorder.heatmap().values[0]]
    [0.0, 0.25]

    Differs from the paper in that the rows are means over groups of IDs, since 25 million columns do not fit.
    """

    def __init__(
        self, parameters: nn.Module | Iterable[tuple[str, Tensor]], bins: int | Sequence[int] = 200
    ) -> None:
        named = parameters.named_parameters() if isinstance(parameters, nn.Module) else parameters
        self._parameters: dict[str, Tensor] = {}
        self._boundaries: dict[str, int] = {}
        n, seen = 0, set()
        for name, p in named:
            if not p.requires_grad or id(p) in seen:
                continue
            seen.add(id(p))
            self._parameters[name] = p
            self._boundaries[name] = n
            n += p.numel()
        if n == 0:
            raise MeasurementError("There is no trainable parameter to record; set requires_grad on some.")
        self._edges = _edges(bins, n)
        self._before = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._steps: list[int] = []
        self._rows: list[tuple[float, ...]] = []

    def record(self, step: int) -> dict[str, float]:
        """What moved since the last record, or since the recorder was created, as plain numbers.

        - ``norm``, ``mean``, ``largest``: of all updates as one vector, of their absolute values.
        - ``moved_share``: the part of the parameters that moved at all.
        - ``gini``, ``top_1_percent``, ``effective_share``: how evenly they moved; see the module. When
          nothing moved these three do not exist and are **left out**, ``moved_share`` is 0, and the
          heatmap gets a row of zeros.

        Weights that are no longer finite are refused, and nothing is recorded then.
        """
        moved = self._moved()
        n, largest = moved.numel(), moved.max().item()
        unit = largest or 1.0
        numbers = {
            "norm": unit * math.sqrt(_sum(moved, unit, 2)),
            "mean": unit * _sum(moved, unit) / n,
            "largest": largest,
            "moved_share": torch.count_nonzero(moved).item() / n,
        }
        means = torch.stack([moved[a:b].double().mean() for a, b in pairwise(self._edges)])
        self._rows.append(tuple(means.tolist()))
        self._steps.append(step)
        for name, p in self._parameters.items():
            self._before[name].copy_(p.detach())
        if largest > 0:
            ordered = _ascending(moved)
            numbers["gini"] = _gini(ordered)
            numbers["top_1_percent"] = _share(ordered[n - _top_count(n, 0.01) :], ordered)
            numbers["effective_share"] = _effective(ordered) / n
        return numbers

    def heatmap(self) -> Heatmap:
        """The rows recorded so far."""
        return Heatmap(tuple(self._steps), tuple(self._rows), self._edges, dict(self._boundaries))

    def _moved(self) -> Tensor:
        """All |updates| as one vector, in float32 or wider."""
        pieces = []
        for name, p in self._parameters.items():
            before = self._before[name]
            wide = torch.promote_types(p.dtype, torch.float32)
            pieces.append((p.detach().to(wide) - before.to(p.device, wide)).abs().flatten())
        home = pieces[0].device
        moved = torch.cat([piece.to("cpu" if home.type == "mps" else home) for piece in pieces])
        if not math.isfinite(moved.max().item()):
            bad = [name for name, x in zip(self._parameters, pieces, strict=True) if not x.isfinite().all()]
            raise MeasurementError(
                f"The update of {', '.join(bad[:3])}{' and others' if len(bad) > 3 else ''} is not finite; "
                "stop the training or go back to finite weights."
            )
        return moved


def _edges(bins: int | Sequence[int], n: int) -> tuple[int, ...]:
    """The first ID of each group, and the number of parameters."""
    if not isinstance(bins, Sequence):
        bins = min(whole_number("bins", bins, error=MeasurementError), n)
        return tuple(b * n // bins for b in range(bins + 1))
    return tuple(bins)


def _checked(x: Tensor) -> Tensor:
    """One vector of finite, non-negative numbers that are not all zero."""
    if x.numel() == 0:
        raise MeasurementError("The tensor is empty, so that nothing can be shared; give at least one number.")
    flat = x.detach().flatten()
    if not flat.is_floating_point() or flat.element_size() < 4:
        flat = flat.to(torch.float32 if flat.is_floating_point() else torch.float64)
    low, high = (bound.item() for bound in flat.aminmax())
    if not (low >= 0 and 0 < high < math.inf):
        raise MeasurementError(
            f"The numbers lie between {low:g} and {high:g}; give finite non-negative ones, not all zero."
        )
    return flat


def _ascending(x: Tensor) -> Tensor:
    """Sorted. Non-negative floats are ordered like their bits (-0.0 first), and integers sort faster."""
    if x.device.type != "cpu":
        return x.sort().values
    bits = torch.int32 if x.dtype == torch.float32 else torch.int64
    return x.view(bits).sort().values.view(x.dtype)


def _scaled_part(x: Tensor, start: int, unit: float) -> Tensor:
    """A new float64 tensor with a part of x / unit; a unit of the largest entry keeps squares from overflow."""
    return x[start : start + CHUNK].to(torch.float64, copy=True).div_(unit)


def _sum(x: Tensor, unit: float, power: int = 1) -> float:
    """The sum of (x / unit)^power."""
    starts = range(0, x.numel(), CHUNK)
    return math.fsum(_scaled_part(x, start, unit).pow_(power).sum().item() for start in starts)


def _gini(ordered: Tensor) -> float:
    n, unit = ordered.numel(), ordered[-1].item()
    weighted = []
    for start in range(0, n, CHUNK):
        part = _scaled_part(ordered, start, unit)
        rank = torch.arange(start + 1, start + 1 + part.numel(), dtype=torch.float64, device=part.device)
        weighted.append(part.mul_(rank.mul_(2).sub_(n + 1)).sum().item())
    value = math.fsum(weighted) / (n * _sum(ordered, unit))
    return min(max(value, 0.0), (n - 1) / n)  # what rounding adds beyond the bounds


def _top_count(n: int, fraction: float) -> int:
    return max(1, math.ceil(round(fraction * n, 6)))  # 0.07 * 100 is 7.000000000000001


def _share(top: Tensor, x: Tensor) -> float:
    unit = x.max().item()
    return min(_sum(top, unit) / _sum(x, unit), 1.0)


def _effective(x: Tensor) -> float:
    unit = x.max().item()
    value = _sum(x, unit) ** 2 / _sum(x, unit, 2)
    return min(max(value, 1.0), float(x.numel()))
