"""PCGrad: gradient surgery where the gradients of domains pull in opposite directions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

import torch
from torch import Tensor

from genie_dg._types import MAIN, DomainBatch, Network, Objective, StepContext
from genie_dg.check import one_of
from genie_dg.search_space import Setting

from .algorithm import Algorithm, AlgorithmRow, at_least_float32
from .gradients import domain_gradients, trainable_parameters, with_gradient

_SURGERIES = ("pcgrad", "agr-sum", "agr-rand")


def projection_weights(gram: Tensor, orders: Sequence[Sequence[int]]) -> Tensor:
    r"""Weights :math:`w_d` with which :math:`\sum_d w_d\, g_d` is the mean of the projected gradients.

    The gradient of each domain i starts as :math:`\tilde g_i = g_i` and meets the others in turn:

    .. math::
        \tilde g_i \leftarrow \tilde g_i - \frac{\langle \tilde g_i, g_j \rangle}{\lVert g_j \rVert^2}\, g_j
        \quad \text{where } \langle \tilde g_i, g_j \rangle < 0 .

    It stays a sum of the :math:`g_d`, so the inner products of these are all that is needed.

    Args:
        gram: :math:`\langle g_i, g_j \rangle`, ``[domains, domains]``.
        orders: for each domain the order in which it meets the others; its own place in it is skipped.

    >>> g = torch.tensor([[1.0, 0.0], [-1.0, 1.0]])  # projected: (1/2, 1/2) and (0, 1)
    >>> projection_weights(g @ g.T, [[0, 1], [0, 1]]) @ g
    tensor([0.2500, 0.7500])
    """
    units = torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
    rows = []
    for i, order in enumerate(orders):
        row = units[i]
        for j in order:
            if j != i:
                inner = (row * gram[:, j]).sum().clamp_max(0)
                row = row - units[j] * inner / torch.where(gram[j, j] > 0, gram[j, j], 1.0)
        rows.append(row)
    return torch.stack(rows).mean(0)


def agreeing(gradients: Tensor) -> Tensor:
    """Where all domains have the same sign: 1 there, 0 elsewhere.

    >>> agreeing(torch.tensor([[1.0, 1.0, 0.0, 0.0], [3.0, -1.0, 0.0, 2.0]]))
    tensor([1., 0., 1., 0.])
    """
    signs = gradients.detach().sign()
    return (signs == signs[0]).all(0).to(gradients.dtype)


@final
class PCGrad(Algorithm):
    r"""A step along the domains' gradients from which their conflicts have been removed.

    With the gradient :math:`g_d` of each of D domains over all weights, and :math:`\bar g` their mean, the
    gradient that is prescribed is

    - ``"pcgrad"``: the mean of the :math:`g_d`, each of which was projected onto the plane across every
      :math:`g_j` that it conflicts with; see `projection_weights`.
    - ``"agr-sum"``: :math:`m \odot \bar g`, where m is 1 for weights on whose sign all domains agree and 0 for
      the others; see `agreeing`.
    - ``"agr-rand"``: :math:`m \odot \bar g + (1 - m) \odot s\,\xi` with :math:`\xi \sim N(0, I)` and s the mean
      of :math:`|\bar g_j|` over the weights that agree, so that the others take a random step of usual size.

    The value of the loss is the mean of the domains' losses. Every domain is sent through the network by
    itself. Without a conflict all three give :math:`\bar g`.

    Args:
        surgery: ``"pcgrad"`` (Yu et al.), ``"agr-sum"`` or ``"agr-rand"`` (Mansilla et al.).

    Differs from both papers in: means take the place of sums over domains, so that the learning rate of ERM
    fits. Differs from the public code of Mansilla et al. in: every domain meets the others in an order of its
    own, as Yu et al. have it (there: one order for all); weights whose gradient is zero in every domain agree
    and stay (there ``"agr-rand"`` shakes them); where no weight agrees, s is 0 (there: not a number).
    """

    def __init__(self, network: Network, domains: int, *, surgery: str = "pcgrad") -> None:
        super().__init__(network, domains)
        self.surgery = one_of("surgery", surgery, _SURGERIES)

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        parameters, generator, d = trainable_parameters(self.network), context.generator(), len(batch)
        orders: list[list[int]] = [torch.randperm(d, generator=generator).tolist() for _ in range(d)]
        noise: list[Tensor] = []
        if self.surgery == "agr-rand" and d > 1:
            noise = [torch.randn(p.shape, generator=generator).to(p.device, p.dtype) for p in parameters]

        def loss() -> Tensor:
            losses, gradients = domain_gradients(self, batch, context.create_graph)
            with torch.autocast(losses.device.type, enabled=False):
                pcgrad = self.surgery == "pcgrad"
                chosen = _projected(gradients, orders) if pcgrad else _agreed(gradients, noise)
            return with_gradient(losses.mean(), parameters, chosen)

        yield Objective(MAIN, loss)


def _projected(gradients: list[Tensor], orders: Sequence[Sequence[int]]) -> list[Tensor]:
    """From ``[domains, *shape]`` for each tensor of weights to what PCGrad prescribes for it."""
    wide = [at_least_float32(g) for g in gradients]
    gram = torch.stack([g.flatten(1) @ g.flatten(1).T for g in wide]).sum(0)
    weights = projection_weights(gram, orders)
    return [torch.tensordot(weights, w, 1).to(g.dtype) for g, w in zip(gradients, wide, strict=True)]


def _agreed(gradients: list[Tensor], noise: list[Tensor]) -> list[Tensor]:
    """The mean where the domains agree, and elsewhere zero, or noise where there is some."""
    masks = [agreeing(g) for g in gradients]
    kept = [g.mean(0) * mask for g, mask in zip(gradients, masks, strict=True)]
    if not noise:
        return kept
    count = torch.stack([mask.sum() for mask in masks]).sum()
    scale = torch.stack([g.abs().sum() for g in kept]).sum() / count.clamp_min(1)
    return [g + (1 - mask) * scale * xi for g, mask, xi in zip(kept, masks, noise, strict=True)]


ROW = AlgorithmRow(
    "PCGrad",
    PCGrad,
    paper="Yu et al., Gradient Surgery for Multi-Task Learning, NeurIPS 2020; Mansilla et al., Domain "
    "Generalization via Gradient Surgery, ICCV 2021",
    space={"surgery": Setting("pcgrad", None, "Yu et al.")},
    one_source="With one source domain there is nothing to conflict with: PCGrad equals ERM.",
    inner_gradients=True,
)
