"""PyTorch's own optimizer checks, on GENIE: the loop, native, foreach, fused and a compiled step agree.

See `test_torch_checks` for the names, and for the list of what is checked and what cannot be.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any
from unittest.mock import patch

import torch
from torch.nn import Parameter
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_optimizers import TensorTracker, optims
from torch.testing._internal.common_utils import parametrize

from genie_dg import GENIE
from genie_dg.optim import _plan

from .torch_info import INFO, Checks, by_kernel, once

PATHS = ({}, {"foreach": False}, {"foreach": True}, {"fused": True})
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-7, torch.bfloat16: 1.6e-2, torch.float16: 2e-3}


class TestPaths(Checks):
    """One update, five ways to compute it."""

    def assertPathsAgree(self, device: Any, dtype: Any, kwargs: dict[str, Any], flag: str | None) -> None:
        """Seven steps by the loop and by another path, on every kind of parameter and gradient.

        After each step parameters and state are compared and then made equal, so that rounding does not
        grow. Gradients are quiet and loud (with noise, that is); some come late or not at all.
        """
        shapes = [(3, 2), (3,), (1, 3), (40,), (), (0,), (1,)]
        first = [torch.randn(shape, device=device, dtype=dtype) for shape in shapes]
        sides = [[Parameter(p.clone()) for p in first] for _ in range(2)]
        paths = ({"foreach": False, "fused": False}, {flag: True} if flag else {})
        loop, other = (GENIE(p, **{**deepcopy(kwargs), **path}) for p, path in zip(sides, paths, strict=True))
        tracker = TensorTracker({"rtol": ROUNDING[dtype], "atol": ROUNDING[dtype]})
        for i in range(7):
            for k, pair in enumerate(zip(*sides, strict=True)):
                loud = 3.0 if k % 2 else 0.05
                gradient = torch.randn_like(pair[0]) * loud
                absent = i == 2 or (k in (2, 3) and i in (3, 4))
                for p in pair:
                    p.grad = None if absent else gradient.clone()
            loop.step()
            other.step()
            for left, right in zip(*sides, strict=True):
                self.assertEqual(list(loop.state[left]), list(other.state[right]))
                self.assertEqual(loop.state[left]["step"].dtype, torch.float32)
                for a, b in [
                    (left, right),
                    *((loop.state[left][n], other.state[right][n]) for n in loop.state[left]),
                ]:
                    tracker.add(a)
                    tracker.pop_check_set(b, self)
        self.assertTrue(tracker.all_popped())
        self.assertEqual([int(loop.state[p]["step"]) for p in sides[0]], [6, 6, 4, 4, 6, 6, 6])

    @optims([INFO], dtypes=FLOATS)
    def test_foreach_matches_forloop(self, device, dtype, optim_info):
        """Upstream asks it of float64; GENIE's foreach path has code of its own for float32."""
        for entry in optim_info.optim_inputs_func(device=device):
            with self.subTest(entry.desc):
                self.assertPathsAgree(device, dtype, entry.kwargs, "foreach")

    @optims([INFO], dtypes=FLOATS)
    def test_fused_matches_forloop(self, device, dtype, optim_info):
        """By the kernel in every dtype, for few rules because each is compiled; the golden files have more."""
        wanted = {"no noise"} if dtype.itemsize == 2 else {"default", "Tensor lr"}
        for entry in optim_info.optim_inputs_func(device=device):
            if entry.desc in wanted:
                with self.subTest(entry.desc), by_kernel():
                    self.assertPathsAgree(device, dtype, entry.kwargs, "fused")

    @parametrize("impl", ["foreach", "fused"])
    @once
    def test_mixed_device_dtype(self, device, dtype, optim_info, impl):
        """Parameters of two dtypes in each of two groups. Upstream: on two GPUs as well."""
        first = [torch.rand(2, 3, device=device).to(kind) for kind in FLOATS for _ in range(2)]
        results = []
        for path in ({"foreach": False}, {impl: True}):
            params = [Parameter(p.clone()) for p in first]
            groups = [{"params": params[:4]}, {"params": params[4:], "noise": False, "dropout": 0.0}]
            optimizer = GENIE(groups, **path)
            for i in range(4):
                for p in params:
                    p.grad = (1.0 + i * first[0]).to(p.dtype)
                with by_kernel():
                    optimizer.step()
            results.append([(p.detach(), optimizer.state[p]) for p in params])
        for (loop, loop_state), (other, other_state), start in zip(*results, first, strict=True):
            tolerance = 5 * ROUNDING[loop.dtype]
            self.assertNotEqual(loop, start)
            self.assertEqual(loop, other, rtol=tolerance, atol=tolerance)
            self.assertEqual(loop_state, other_state, rtol=tolerance, atol=tolerance)

    @once
    def test_gradient_of_another_dtype(self, device, dtype, optim_info):
        """A bfloat16 gradient of a float32 parameter acts like its float32 copy. No counterpart upstream."""
        if not hasattr(Parameter, "grad_dtype"):
            self.skipTest("this torch has no grad_dtype: a gradient always has the dtype of its parameter")
        for path in PATHS:
            with self.subTest(str(path)), by_kernel():
                wide, narrow = (Parameter(torch.ones(20, device=device)) for _ in range(2))
                narrow.grad_dtype = torch.bfloat16
                optimizers = [GENIE([p], **path) for p in (wide, narrow)]
                for scale in (0.1, 0.1, 3.0):
                    narrow.grad = (torch.randn(20, device=device) * scale).to(torch.bfloat16)
                    wide.grad = narrow.grad.float()
                    for optimizer in optimizers:
                        optimizer.step()
                self.assertEqual(wide, narrow)
                self.assertEqual(optimizers[1].state[narrow]["exp_avg_sq"].dtype, torch.float32)

    @once
    def test_defaults_changed_to_foreach(self, device, dtype, optim_info):
        """Without a choice of path it is native, or foreach where that cannot serve. Upstream: on CUDA only."""
        for kind, name in ((torch.float32, "NativePlan"), (torch.float64, "DevicePlan")):
            p = Parameter(torch.ones(3, device=device, dtype=kind))
            p.grad = torch.ones_like(p)
            for entry in optim_info.optim_inputs_func(device=device):
                path = "DevicePlan" if entry.kwargs.get("capturable") else name
                with self.subTest(entry.desc), patch.object(_plan, path) as plan:
                    GENIE([p], **entry.kwargs).step()
                    plan.assert_called_once()


instantiate_device_type_tests(TestPaths, globals(), only_for="cpu")
