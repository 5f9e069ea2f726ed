"""The paper's appendix listing ("Python implementation of preconditioning updates"), written out plainly.

It is what a reader would type in from the paper: one parameter after the other, full-size temporaries,
three tensors kept per parameter (the two averages and the copy of the weights that is updated), torch's
global generator for mask and noise. It serves as the peer of the step-time benchmark and, with the
randomness switched off, as a second opinion on the released formulation after the first step.
"""

from __future__ import annotations

import torch
from torch import Tensor


class Listing:
    """State and step of the listing for a list of parameters."""

    def __init__(self, params: list[Tensor], lr: float = 0.015, beta: float = 0.95, p: float = 0.4) -> None:
        self.params, self.lr, self.beta, self.p = params, lr, beta, p
        self.weights = [q.detach().clone() for q in params]
        self.mean = [torch.zeros_like(q) for q in params]
        self.square = [torch.zeros_like(q) for q in params]
        self.scale = 0.0

    @torch.no_grad()
    def step(self, noise: bool = True) -> None:
        self.scale = self.beta * self.scale + 1.0
        scale1 = (1 - self.beta) * self.scale
        scale2 = 2.0 - scale1
        rho = (1.0 - self.beta) * scale2 / ((1.0 + self.beta) * scale1)
        for k, param in enumerate(self.params):
            grad = param.grad
            assert grad is not None
            self.mean[k] = self.mean[k] * self.beta + grad * (1.0 - self.beta)
            self.square[k] = self.square[k] * self.beta + (grad**2) * (1.0 - self.beta)
            mean = self.mean[k] / scale1
            var = self.square[k] / scale1 - mean.square()
            var = var / (1.0 - rho)
            var = torch.where(var > 0.0, var, torch.zeros_like(var) + 1e-8)
            inverse = torch.clamp(1 / var, min=0.0, max=10.0)
            mean_var = rho * var
            mean_var = torch.where(mean_var > 0.0, mean_var, torch.zeros_like(mean_var) + 1e-8)
            gate = torch.tanh(inverse)
            trusted = (1.0 / (1.0 + mean_var / (mean.square() + 1e-8))) * gate
            scale = torch.sum(gate * torch.abs(mean) * (1.0 / (1.0 + mean_var / (mean.square() + 1e-8))))
            scale = scale / torch.sum(gate)
            jitter = torch.normal(torch.zeros_like(grad), torch.ones_like(grad)) * scale
            jitter = (1 - gate) * jitter if noise else torch.zeros_like(grad)
            direction = self.mean[k] / scale1 * trusted.view_as(param)
            mask = (torch.rand_like(param) > self.p).to(param.dtype) / (1 - self.p)
            self.weights[k] -= (direction + jitter) * mask * self.lr
            param.copy_(self.weights[k])
