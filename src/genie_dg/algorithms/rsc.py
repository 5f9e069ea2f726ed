"""RSC: mute the features that the prediction leans on most."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor

from genie_dg._types import DomainBatch, Network, StepContext
from genie_dg.check import number
from genie_dg.search_space import Setting, Uniform

from .algorithm import AlgorithmRow, OneLoss


def quantile(values: Tensor, fraction: float) -> Tensor:
    r"""The ``fraction`` quantile along the last dimension, linear between neighbours: NumPy's ``percentile``.

    With the n values in order, :math:`v_0 \le v_1 \le \dots`, and :math:`h = \text{fraction}\,(n-1)`, it is
    :math:`v_{\lfloor h \rfloor} + (h - \lfloor h \rfloor)(v_{\lfloor h \rfloor + 1} - v_{\lfloor h \rfloor})`.
    An h that misses a whole number by rounding alone is that number: comparisons with the result must not hang
    on it.

    >>> quantile(torch.tensor([5.0, 1.0, 3.0, 2.0]), 1 - 1 / 3).item()
    3.0
    >>> quantile(torch.tensor([[0.0, 10.0], [4.0, 2.0]]), 0.25).tolist()
    [2.5, 2.5]
    """
    last = values.shape[-1] - 1
    h = fraction * last
    h = round(h) if math.isclose(h, round(h), rel_tol=0, abs_tol=1e-9) else h
    low = math.floor(h)
    ordered = values.sort(dim=-1).values
    return torch.lerp(ordered[..., low], ordered[..., min(low + 1, last)], h - low)


@final
class RSC(OneLoss):
    r"""Representation self-challenging on the pooled batch.

    With features z, head h, the label's logit :math:`h(z)_y`, and :math:`q_s` the s quantile (`quantile`):

    .. math::
        g_i = \partial h(z_i)_{y_i} / \partial z_i, \qquad
        m_{ij} = [\,g_{ij} < q_{1-f}(g_{i1}, \dots, g_{id})\,]

        c_i = \mathrm{softmax}(h(z_i))_{y_i} - \mathrm{softmax}(h(z_i \odot m_i))_{y_i}, \qquad
        m_i \leftarrow 1 \;\text{ where }\; c_i < q_{1-b}(c_1, \dots, c_N)

        \text{loss} = \tfrac1N \sum_i \ell(h(z_i \odot m_i), y_i) .

    In words: in each sample the fraction f of features with the largest gradient is muted, and this only in the
    fraction b of samples that lose the most. The mask is a constant of the loss; nothing random is in it.

    Args:
        rsc_f_drop_factor: f.
        rsc_b_drop_factor: b.

    Differs from the paper (equations 1 to 5) in: features are muted as in DomainBed, in the final vector; the
    paper mutes whole channels or places of the last activation map, one of the two by chance in each step.
    Differs from DomainBed's code in nothing but that quantiles stay on the device.
    """

    def __init__(
        self,
        network: Network,
        domains: int,
        *,
        rsc_f_drop_factor: float = 1 / 3,
        rsc_b_drop_factor: float = 1 / 3,
    ) -> None:
        super().__init__(network, domains)
        self.f = number("rsc_f_drop_factor", rsc_f_drop_factor, 0, 1)
        self.b = number("rsc_b_drop_factor", rsc_b_drop_factor, 0, 1)

    def loss(self, batch: DomainBatch, context: StepContext) -> Tensor:
        features, labels = self.network.features(batch.all_images), batch.all_labels
        mask = self._mask(features.detach(), labels)
        return self.classification_loss(self.network.head(features * mask), labels)

    def _mask(self, features: Tensor, labels: Tensor) -> Tensor:
        """1 where a feature is kept, 0 where it is muted."""
        index = labels[:, None]
        with torch.enable_grad():
            leaf = features.requires_grad_()
            logits = self.network.head(leaf)
            (slopes,) = torch.autograd.grad(logits.gather(1, index).sum(), leaf)
        with torch.no_grad():
            keep = slopes < quantile(slopes, 1 - self.f)[:, None]
            muted = self.network.head(features * keep)
            drop = (logits.softmax(1) - muted.softmax(1)).gather(1, index).squeeze(1)
            spared = drop < quantile(drop, 1 - self.b)
            mask: Tensor = (keep | spared[:, None]).to(features.dtype)
            return mask


ROW = AlgorithmRow(
    "RSC",
    RSC,
    paper="Huang et al., Self-Challenging Improves Cross-Domain Generalization, ECCV 2020",
    space={
        "rsc_f_drop_factor": Setting(1 / 3, Uniform(0.0, 0.5), "DomainBed"),
        "rsc_b_drop_factor": Setting(1 / 3, Uniform(0.0, 0.5), "DomainBed"),
    },
    domainbed=1e-10,
)
