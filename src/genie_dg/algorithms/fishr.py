"""Fishr: a penalty on differences between the domains' variances of the classifier's gradients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any, final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot

from genie_dg._types import MAIN, DomainBatch, Network, Objective, Restart, StepContext
from genie_dg.check import InputError, number
from genie_dg.search_space import LogUniform, Setting, Uniform

from .algorithm import Algorithm, AlgorithmRow


def gradient_variances(inputs: Tensor, logits: Tensor, labels: Tensor, bias: bool) -> Tensor:
    r"""The variance over samples of the gradient in every entry of a linear layer ``logits = W inputs + b``.

    The cross entropy of sample i alone has the gradients :math:`\nabla_W \ell_i = e_i h_i^\top` and
    :math:`\nabla_b \ell_i = e_i` with :math:`e_i = \mathrm{softmax}(z_i) - \mathrm{onehot}(y_i)`. Hence, with
    means over the n samples (divided by n, not n - 1),

    .. math:: v_{ck} = \overline{e_c^2\, h_k^2} - \bigl(\overline{e_c\, h_k}\bigr)^2 ,
              \qquad v_c = \overline{e_c^2} - \bigl(\overline{e_c}\bigr)^2 ,

    which needs two products of matrices and no gradient of a single sample.

    Args:
        inputs: :math:`h_i`, of shape ``[n, features]``.
        logits: :math:`z_i`, of shape ``[n, classes]``.
        labels: :math:`y_i`.
        bias: the layer has one.

    Returns:
        the weight's variances, row by row, then the bias's.

    >>> h, z, y = torch.tensor([[1.0], [2.0]]), torch.zeros(2, 2), torch.tensor([0, 0])
    >>> gradient_variances(h, z, y, bias=True)  # gradients -+0.5 and -+1.0 in W, -+0.5 twice in b
    tensor([0.0625, 0.0625, 0.0000, 0.0000])
    """
    if bias:
        inputs = torch.cat([inputs, torch.ones_like(inputs[:, :1])], 1)
    errors = logits.softmax(1) - one_hot(labels, logits.shape[1])
    second = errors.square().T @ inputs.square() / len(labels)
    variances = second - (errors.T @ inputs / len(labels)).square()
    return torch.cat([variances[:, :-1].flatten(), variances[:, -1]]) if bias else variances.flatten()


def last_linear(head: nn.Module, classes: int) -> nn.Linear:
    """The layer that makes the logits."""
    layers = [module for module in head.modules() if isinstance(module, nn.Linear)]
    if not layers or layers[-1].out_features != classes:
        raise InputError(
            f"Fishr got the head {type(head).__name__}; expected one whose last layer is an nn.Linear with "
            f"{classes} outputs."
        )
    return layers[-1]


@final
class Fishr(Algorithm):
    r"""The mean loss and the spread of the domains' gradient variances in the last linear layer.

    With :math:`v_d` the vector of `gradient_variances` of domain d at this step,

    .. math::
        \bar v_d \leftarrow \gamma\,\bar v_d + (1 - \gamma)\,v_d , \qquad u_d = \frac{\bar v_d}{1 - \gamma} ,
        \qquad \text{loss} = \frac1N \sum_i \ell_i + w_t\, \frac1D \sum_d \frac1P \lVert u_d - \bar u \rVert^2

    with :math:`\bar u` the mean of the :math:`u_d`, P the number of weights and biases of the layer, and
    :math:`w_t` zero in the first ``penalty_anneal_iters`` steps and ``lambda_`` after them. The average starts
    from zero and has no correction for that start. The gradient flows through this step's :math:`v_d` into the
    layer and the featurizer, with factor 1 whatever :math:`\gamma` is (this is what the division by
    :math:`1 - \gamma` is for); the past is a constant. The average is stored once a step, from the first time
    that the loss is computed; it runs from the first step on, while the penalty is still off.

    Args:
        network: makes the predictions; its head must end in an ``nn.Linear``. Dropout before it is fine: the
            gradients are those of the features that reached the layer.
        lambda_: the weight of the penalty; ``lambda`` in DomainBed, which is a keyword of Python.
        penalty_anneal_iters: how many first steps go without the penalty.
        ema: :math:`\gamma` from 0 up to, not including, 1.

    Differs from the paper in the mean over the P entries (the paper has the squared norm) and in the average
    divided by :math:`1 - \gamma`; both are as in the public code (DomainBed), for which the published settings
    were chosen. Differs from that code in: gradients of single samples are written out instead of taken from
    BackPACK; the average is part of the state dict. As there, the optimizer starts afresh when the penalty sets
    in.
    """

    variances: Tensor

    def __init__(
        self,
        network: Network,
        domains: int,
        *,
        lambda_: float = 1000.0,
        penalty_anneal_iters: int = 1500,
        ema: float = 0.95,
    ) -> None:
        super().__init__(network, domains)
        self.lambda_ = number("lambda_", lambda_, 0)
        self.penalty_anneal_iters = number("penalty_anneal_iters", penalty_anneal_iters, 0)
        self.ema = number("ema", ema, 0, 1, excluding=(1,))
        layer = last_linear(network.head, network.classes)
        size = layer.weight.numel() + (0 if layer.bias is None else layer.bias.numel())
        self.register_buffer("variances", layer.weight.detach().new_zeros(domains, size))

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        images, labels = batch.all_images, batch.all_labels
        weight = self.lambda_ if context.step >= self.penalty_anneal_iters else 0.0
        averages: list[Tensor] = []

        def loss() -> Tensor:
            inputs, logits = self._last_layer(images)
            with nullcontext() if weight else torch.no_grad():
                now = self._variances(inputs, logits, labels, batch.sizes)
                average = self.ema * self.variances + (1 - self.ema) * now
                scaled = average / (1 - self.ema)
                penalty = (scaled - scaled.mean(0)).square().mean()
            averages.append(average.detach())
            return cross_entropy(logits, labels) + weight * penalty

        yield Objective(MAIN, loss, Restart() if context.step == self.penalty_anneal_iters else None)
        if averages:
            self.variances.copy_(averages[0])

    def _variances(self, inputs: Tensor, logits: Tensor, labels: Tensor, sizes: list[int]) -> Tensor:
        """One row of variances for each domain, in the precision of the weights even under autocast."""
        bias = last_linear(self.network.head, self.network.classes).bias is not None
        inputs, logits = inputs.to(self.variances.dtype), logits.to(self.variances.dtype)
        parts = zip(*(torch.split(t, sizes) for t in (inputs, logits, labels)), strict=True)
        with torch.autocast(inputs.device.type, enabled=False):
            return torch.stack([gradient_variances(h, z, y, bias) for h, z, y in parts])

    def _last_layer(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """What goes into the last layer and the logits that come out of it."""
        seen: list[tuple[Tensor, Tensor]] = []

        def keep(module: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> None:
            seen.append((inputs[0], output))

        handle = last_linear(self.network.head, self.network.classes).register_forward_hook(keep)
        try:
            logits = self.network(images)
        finally:
            handle.remove()
        if len(seen) != 1 or seen[0][1] is not logits:
            raise InputError(
                f"The head {type(self.network.head).__name__} changes what its last nn.Linear returns; Fishr's "
                "gradients hold for a head that ends there, so use one that does."
            )
        return seen[0]


ROW = AlgorithmRow(
    "Fishr",
    Fishr,
    paper="Rame et al., Fishr: Invariant Gradient Variances for Out-of-Distribution Generalization, ICML 2022",
    space={
        "lambda_": Setting(1000.0, LogUniform(1, 4), "DomainBed, there called lambda"),
        "penalty_anneal_iters": Setting(1500, Uniform(0, 5000, whole=True), "DomainBed"),
        "ema": Setting(0.95, Uniform(0.90, 0.99), "DomainBed"),
    },
    plain_loss="its penalty rests on gradients of the plain cross entropy, written out",
    one_source="With one source domain there is nothing to compare and the penalty is zero: Fishr equals ERM.",
    domainbed=1e-10,
)
