"""PyTorch's own optimizer checks, on GENIE: hooks, schedulers and gradient scalers.

See `test_torch_checks` for the names, and for the list of what is checked and what cannot be.
"""

from __future__ import annotations

from copy import deepcopy

import torch
from torch.optim import lr_scheduler, swa_utils
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import parametrize

from genie_dg import GENIE

from .torch_info import Checks, LeastSquares, each, once

SCHEDULERS = {
    "LambdaLR": lambda o: lr_scheduler.LambdaLR(o, lambda t: 0.7**t),
    "MultiplicativeLR": lambda o: lr_scheduler.MultiplicativeLR(o, lambda t: 0.7),
    "StepLR": lambda o: lr_scheduler.StepLR(o, step_size=1),
    "MultiStepLR": lambda o: lr_scheduler.MultiStepLR(o, [1, 3]),
    "ConstantLR": lambda o: lr_scheduler.ConstantLR(o),
    "LinearLR": lambda o: lr_scheduler.LinearLR(o),
    "ExponentialLR": lambda o: lr_scheduler.ExponentialLR(o, 0.7),
    "PolynomialLR": lambda o: lr_scheduler.PolynomialLR(o),
    "CosineAnnealingLR": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=4),
    "CosineAnnealingWarmRestarts": lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, T_0=3),
    "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, mode="max", patience=0),
    "CyclicLR": lambda o: lr_scheduler.CyclicLR(o, 1e-3, 1e-2, step_size_up=2, cycle_momentum=False),
    "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, 1e-2, total_steps=9, cycle_momentum=False),
    "SWALR": lambda o: swa_utils.SWALR(o, swa_lr=1e-3, anneal_epochs=3),
}


class TestHooks(Checks):
    """Who may listen to an optimizer, and who steers it."""

    @parametrize("name", sorted(SCHEDULERS))
    @once
    def test_lr_scheduler(self, device, dtype, optim_info, name):
        """Every scheduler sets the step size, a number or a tensor. After PyTorch's test_lrscheduler.py."""
        plain = LeastSquares(device, dtype)
        tensor, rates = plain.twin(), []
        for problem, lr in ((plain, 0.01), (tensor, torch.tensor(0.01))):
            optimizer = GENIE(problem.params, lr=lr)
            scheduler, own = SCHEDULERS[name](optimizer), []
            for _ in range(6):
                own.append(float(optimizer.param_groups[0]["lr"]))
                problem.train(optimizer, 1, [scheduler])
            rates.append(own)
        self.assertEqual(*rates)
        self.assertGreater(len(set(rates[0])), 1)
        self.assertEqual(plain.params, tensor.params)

    @each
    def test_grad_scaling_autocast(self, device, dtype, kwargs):
        """A gradient scaler changes nothing when nothing overflows. After PyTorch's test_torch.py."""
        plain = LeastSquares(device, dtype)
        scaled, scaler = plain.twin(), torch.amp.GradScaler(device, init_scale=128.0)
        plain.train(GENIE(plain.params, **deepcopy(kwargs)), 4)
        optimizer = GENIE(scaled.params, **deepcopy(kwargs))
        for _ in range(4):
            optimizer.zero_grad()
            scaler.scale(scaled.loss()).backward()
            scaler.step(optimizer)
            scaler.update()
        self.assertSame(plain.params, scaled.params)

    @each
    def test_fused_does_not_step_if_foundinf(self, device, dtype, kwargs):
        """An infinite gradient costs the step and nothing else. Upstream: fused CUDA kernels only."""
        problem, scaler = LeastSquares(device, dtype), torch.amp.GradScaler(device, init_scale=128.0)
        optimizer = GENIE(problem.params, **kwargs)
        problem.train(optimizer, 2)
        before = deepcopy([problem.params, optimizer.state_dict()])
        scaler.scale(problem.backward()).detach()
        problem.bias.grad[0] = torch.inf
        scaler.step(optimizer)
        scaler.update()
        self.assertSame([problem.params, optimizer.state_dict()], before)
        self.assertEqual(scaler.get_scale(), 64.0)


instantiate_device_type_tests(TestHooks, globals(), only_for="cpu")
