"""TRM: features on which the best classifier of one domain serves the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, linear, one_hot

from genie_dg._types import MAIN, DomainBatch, Network, Objective, StepContext
from genie_dg.check import number
from genie_dg.search_space import LogUniform, Setting

from .algorithm import Algorithm, AlgorithmRow
from .groupdro import raised

_FIT_STEPS, _FIT_LR = 30, 0.1
"""Steps of gradient descent that a domain's classifier takes in each step of the network, and their size."""

_TERMS, _LARGEST = 10, 10.0
"""How far the series of `inverse_hessian_product` goes, and the entry at which it is cut as divergent."""


def weight_gradient(features: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
    r"""The gradient of the mean cross entropy in the weight of a linear layer, a row for each class.

    .. math:: \frac1n \sum_i e_i z_i^\top, \qquad e_i = \mathrm{softmax}(f_i) - \mathrm{onehot}(y_i)

    with features z and logits f.

    >>> weight_gradient(torch.tensor([[1.0], [3.0]]), torch.zeros(2, 2), torch.tensor([0, 0])).tolist()
    [[-1.0], [1.0]]
    """
    return _errors(logits, labels).T @ features / len(labels)


def _errors(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.softmax(1) - one_hot(labels, logits.shape[1])


def fitted_classifier(weight: Tensor, bias: Tensor, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """A linear classifier after 30 steps of gradient descent on the mean cross entropy.

    >>> z, y = torch.tensor([[1.0], [-1.0]]), torch.tensor([0, 1])
    >>> w, b = fitted_classifier(torch.zeros(2, 1), torch.zeros(2), z, y)
    >>> [round(v, 4) for v in (*w[:, 0].tolist(), *b.abs().tolist())]
    [0.8457, -0.8457, 0.0, 0.0]
    """
    for _ in range(_FIT_STEPS):
        errors = _errors(linear(features, weight, bias), labels)
        weight = weight - _FIT_LR * (errors.T @ features) / len(labels)
        bias = bias - _FIT_LR * errors.mean(0)
    return weight, bias


def inverse_hessian_product(vector: Tensor, features: Tensor, logits: Tensor) -> Tensor:
    r"""An estimate of :math:`H^{-1} v`, H the Hessian of the mean cross entropy in a linear layer's weight.

    .. math:: \sum_{k=0}^{10} (I - H)^k v, \qquad
        H v = \frac1n \sum_i \big(\mathrm{diag}(p_i) - p_i p_i^\top\big)\, v z_i z_i^\top

    :math:`p_i` are the softmax of the logits and :math:`z_i` the features of a sample; v has the shape of the
    weight. Neumann's series converges where H is below 2. It is cut after the first sum that has an entry above
    10 in size.

    >>> z, f = torch.tensor([[1.0]]), torch.zeros(1, 2)  # H v = v / 2 for this v
    >>> inverse_hessian_product(torch.tensor([[1.0], [-1.0]]), z, f).tolist()  # 2 - 1 / 2^10
    [[1.9990234375], [-1.9990234375]]
    """
    p = logits.softmax(1)
    term, total = vector, vector
    for _ in range(_TERMS):
        u = p * (features @ term.T)
        term = term - (u - p * u.sum(1, keepdim=True)).T @ features / len(p)
        total = total + term
        if total.abs().max() > _LARGEST:
            break
    return total


@final
class TRM(Algorithm):
    r"""The mean loss and the risk of each domain's own classifier on the other domains.

    .. math::
        L = \frac1N \sum_i \ell_i + \frac1D \sum_q \Big[ \sum_{p \ne q} \alpha_{qp} R_p(w_q)
            - \lambda\, v_q^\top \nabla_w R_q(w_q) \Big], \qquad
        v_q = H_q^{-1} \sum_{p \ne q} \alpha_{qp} \nabla_w R_p(w_q)

    after the first ``iters`` steps, which have the mean loss only. :math:`R_p(w)` is the mean cross entropy of
    the linear classifier w on the features of domain p. :math:`w_q`, the `fitted_classifier` of the features of
    domain q, and :math:`v_q`, an `inverse_hessian_product` with the Hessian of :math:`R_q`, are constants: the
    gradient in the features is that of the transfer risk at the optimal :math:`w_q`, by the implicit function
    theorem. Each row of :math:`\alpha` sums to 1 and follows the worst partner,

    .. math:: \alpha_{qp} \propto \alpha_{qp}\, e^{\eta\,\alpha_{qp} R_p(w_q)} .

    All domains go through the network together. The classifiers of the domains are buffers, since they are
    no part of the prediction; they and :math:`\alpha` are those of the first evaluation in a step, and are
    stored once, after it. Classifiers go on from where the last step left them.

    Args:
        cos_lambda: :math:`\lambda`; 1 gives the whole gradient of the transfer risk.
        iters: first steps with the mean loss only.
        groupdro_eta: :math:`\eta`; 0 keeps the weights equal.

    :math:`\lambda` and the factor :math:`\alpha_{qp}` in the exponent are as in DomainBed and in the authors'
    code. Differs from DomainBed's code in Neumann's series and in the weights of the gradient, see the row; in
    that weights and classifiers are part of the state dict; and in that its option for unbalanced classes (off
    by default) is left out.
    """

    weights: Tensor
    biases: Tensor
    alpha: Tensor

    def __init__(
        self,
        network: Network,
        domains: int,
        *,
        cos_lambda: float = 1e-4,
        iters: int = 200,
        groupdro_eta: float = 1e-2,
    ) -> None:
        super().__init__(network, domains)
        self.cos_lambda = number("cos_lambda", cos_lambda, 0)
        self.iters = number("iters", iters, 0)
        self.groupdro_eta = number("groupdro_eta", groupdro_eta, 0)
        like = next(network.parameters()).detach()
        layers = [nn.Linear(network.feature_size, network.classes) for _ in range(domains)]
        self.register_buffer("weights", torch.stack([layer.weight.detach() for layer in layers]).to(like))
        self.register_buffer("biases", torch.stack([layer.bias.detach() for layer in layers]).to(like))
        self.register_buffer("alpha", (1 - torch.eye(domains)).to(like) / max(domains - 1, 1))

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        new: list[tuple[Tensor, Tensor, Tensor]] = []

        def loss() -> Tensor:
            features = self.network.features(batch.all_images)
            mean = cross_entropy(self.network.head(features), batch.all_labels)
            if context.step < self.iters or self.domains == 1:
                return mean
            with torch.autocast(features.device.type, enabled=False):
                parts = torch.split(features.to(self.weights.dtype), batch.sizes)
                risk, state = self._transfer_risk(parts, batch.labels)
            new.append(state)
            return mean + risk

        yield Objective(MAIN, loss)
        if new:
            for buffer, value in zip((self.weights, self.biases, self.alpha), new[0], strict=True):
                buffer.copy_(value)

    def _transfer_risk(
        self, features: Sequence[Tensor], labels: Sequence[Tensor]
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """The second part of L, and the classifiers and weights for the next step."""
        parts, rows = [], []
        for q, alpha in enumerate(self.alpha.clone()):  # a backward pass may come after the next are stored
            with torch.no_grad():
                weight, bias = fitted_classifier(self.weights[q], self.biases[q], features[q], labels[q])
            logits = [linear(z, weight, bias) for z in features]
            risks = torch.stack([cross_entropy(f, y) for f, y in zip(logits, labels, strict=True)])
            with torch.no_grad():
                sides = zip(features, logits, labels, strict=True)
                gradients = torch.stack([weight_gradient(*side) for side in sides])
                others = (alpha[:, None, None] * gradients).sum(0)
                v = inverse_hessian_product(others, features[q], logits[q])
            match = (v * weight_gradient(features[q], logits[q], labels[q])).sum()
            parts.append((alpha * risks).sum() - self.cos_lambda * match)
            rows.append((weight, bias, raised(alpha, alpha * risks, self.groupdro_eta)))
        weights, biases, alphas = (torch.stack(column) for column in zip(*rows, strict=True))
        return torch.stack(parts).mean(), (weights, biases, alphas)


ROW = AlgorithmRow(
    "TRM",
    TRM,
    paper="Xu, Jaakkola, Learning Representations that Support Robust Transfer of Predictors, "
    "arXiv 2110.09940, 2021",
    space={
        "cos_lambda": Setting(1e-4, LogUniform(-5, 0), "DomainBed"),
        "iters": Setting(200, LogUniform(0, 4, whole=True), "DomainBed"),
        "groupdro_eta": Setting(1e-2, LogUniform(-3, -1), "DomainBed"),
    },
    plain_loss="its transfer risk rests on derivatives of the plain cross entropy, written out",
    differs="DomainBed's series for the inverse Hessian changes its first term in place, so that the term of "
    "power 0 is lost and that of power 1 counts twice; here every term counts once, which makes it the paper's "
    "inverse. DomainBed raises the weights in place before the backward pass, so that the gradient of the "
    "other domains' risks has weights that are raised and do not sum to 1; here it has those that the loss was "
    "computed with, as the paper's objective has. With both put right there, the updates are the same.",
    one_source="With one source domain TRM equals ERM: there is no other domain to transfer to.",
)
