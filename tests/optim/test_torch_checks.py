"""PyTorch's own optimizer checks, on GENIE: options, directions and gradients that do nothing.

Each test has the name of its counterpart in ``TestOptimRenewed`` of PyTorch's ``test/test_optim.py``, if it
has one, so that it can be looked up there. The other checks are in `test_torch_checks_paths` (loop, foreach
and fused), `test_torch_checks_state` (checkpoints and copies) and `test_torch_checks_hooks` (hooks,
schedulers, AMP). Left out is what needs CUDA or much memory, what is about other optimizers, what GENIE refuses
(complex, sparse, differentiable: see test_errors), and the hooks that it inherits unchanged.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch.nn import Parameter
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_optimizers import OptimizerErrorEnum
from torch.testing._internal.common_utils import parametrize

from genie_dg import GENIE

from .torch_info import INFO, Checks, LeastSquares, each, once


class TestUpdate(Checks):
    """What a step does to the parameters."""

    @once
    def test_optim_infos_do_not_specify_global_cliquey_kwargs(self, device, dtype, optim_info):
        """The checks choose the path; a setting that chose one too would hide the others."""
        for entry in optim_info.optim_inputs_func(device=device):
            self.assertTrue({"foreach", "fused", "differentiable"}.isdisjoint(entry.kwargs), entry.desc)

    @once
    def test_errors(self, device, dtype, optim_info):
        """Every wrong input is refused, when it is given or at the first step, with the right words."""
        for error in optim_info.optim_error_inputs_func(device=device, dtype=dtype):
            given, kind, regex = error.optimizer_error_input, error.error_type, error.error_regex
            expect = pytest.warns if issubclass(kind, Warning) else pytest.raises
            with self.subTest(regex):
                if error.error_on == OptimizerErrorEnum.STEP_ERROR:
                    optimizer = GENIE(given.params, **given.kwargs)
                    with expect(kind, match=regex):
                        optimizer.step()
                else:
                    with expect(kind, match=regex):
                        GENIE(given.params, **given.kwargs)

    def assertRightDirection(self, problem: LeastSquares, before: float, kwargs: dict[str, Any]) -> None:
        check = self.assertGreater if kwargs.get("maximize") else self.assertLess
        check(problem.loss().item(), before)

    @parametrize("contiguous", [True, False])
    @parametrize("with_lrsched", [True, False])
    @each
    def test_forloop_goes_right_direction(self, device, dtype, kwargs, contiguous, with_lrsched):
        """Twenty steps lower the loss (raise it, with maximize), whatever the memory layout."""
        for schedulers in INFO.scheduler_inputs if with_lrsched else [()]:
            problem = LeastSquares(device, dtype, contiguous)
            self.assertEqual(problem.weight.is_contiguous(), contiguous)
            optimizer, before = GENIE(problem.params, **deepcopy(kwargs)), problem.loss().item()
            problem.train(optimizer, 20, [make(optimizer) for make in schedulers])
            self.assertRightDirection(problem, before, kwargs)

    @once
    def test_param_group_with_lrscheduler_goes_right_direction(self, device, dtype, optim_info):
        """The same with two groups, each with its own step size."""
        for schedulers in optim_info.scheduler_inputs:
            problem = LeastSquares(device, dtype)
            optimizer = GENIE([{"params": [problem.weight]}, {"params": [problem.bias], "lr": 0.01}])
            before = problem.loss().item()
            problem.train(optimizer, 20, [make(optimizer) for make in schedulers])
            self.assertRightDirection(problem, before, {})
            self.assertGreater(optimizer.param_groups[0]["lr"], optimizer.param_groups[1]["lr"])

    @parametrize("num_dim", [0, 1, 2])
    @each
    def test_tensor_lr(self, device, dtype, kwargs, num_dim):
        """A step size in a tensor of one element is the same step size."""
        plain = LeastSquares(device, dtype)
        tensor = plain.twin()
        for problem, lr in ((plain, 1e-3), (tensor, torch.full((1,) * num_dim, 1e-3, device=device))):
            problem.train(GENIE(problem.params, **{**kwargs, "lr": lr}), 5)
        self.assertEqual(plain.params, tensor.params)

    @each
    def test_param_groups_weight_decay(self, device, dtype, kwargs):
        """One group with decay and one without, both given as groups."""
        problem = LeastSquares(device, dtype)
        groups = [
            {"params": [problem.weight], **kwargs},
            {"params": [problem.bias], **kwargs, "weight_decay": 0.0},
        ]
        optimizer, before = GENIE(groups), problem.loss().item()
        problem.train(optimizer, 20)
        self.assertRightDirection(problem, before, kwargs)

    @each
    def test_param_groups_lr(self, device, dtype, kwargs):
        """A group keeps its own step size; one with next to none stays where it is."""
        problem, idle = LeastSquares(device, dtype), Parameter(torch.randn(2, device=device, dtype=dtype))
        kept, before = idle.detach().clone(), problem.loss().item()
        optimizer = GENIE([{"params": problem.params, "lr": 1e-3, **kwargs}, {"params": [idle]}], lr=1e-28)
        for _ in range(20):
            idle.grad = torch.rand_like(idle)
            problem.train(optimizer, 1)
        self.assertRightDirection(problem, before, kwargs)
        self.assertSame(idle.detach(), kept)
        self.assertEqual(optimizer.state[idle]["step"], torch.tensor(20.0))

    @each
    def test_step_is_noop_when_params_have_no_grad(self, device, dtype, kwargs):
        """No gradient: no move, no state, and the closure's value comes back all the same."""
        p = torch.randn(2, 3, device=device, dtype=dtype)
        kept, loss = p.clone(), torch.ones(1)
        optimizer = GENIE([p], **kwargs)
        self.assertIs(optimizer.step(lambda: loss), loss)
        self.assertSame(p, kept)
        self.assertEqual(len(optimizer.state), 0)

    @each
    def test_step_is_noop_for_zero_grads(self, device, dtype, kwargs):
        """Zero gradients move nothing, unless there is weight decay; then they move towards zero."""
        p = torch.randn(5, 1, device=device, dtype=dtype, requires_grad=True)
        kept, optimizer = p.detach().clone(), GENIE([p], **kwargs)
        for _ in range(3):
            p.grad = torch.zeros_like(p)
            optimizer.step()
        if kwargs.get("weight_decay"):
            self.assertLess(p.norm(), kept.norm())
        else:
            self.assertSame(p.detach(), kept)

    @each
    def test_grads_are_never_inplaced_into(self, device, dtype, kwargs):
        """After a step each gradient is the same tensor with the same content."""
        problem = LeastSquares(device, dtype)
        optimizer = GENIE(problem.params, **kwargs)
        for _ in range(2):
            problem.backward()
            before = [(p.grad, p.grad.clone(), p.grad._version) for p in problem.params]
            optimizer.step()
            for p, (gradient, content, version) in zip(problem.params, before, strict=True):
                self.assertIs(p.grad, gradient)
                self.assertSame(p.grad, content)
                self.assertEqual(p.grad._version, version)


instantiate_device_type_tests(TestUpdate, globals(), only_for="cpu")
