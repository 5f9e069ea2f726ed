"""PyTorch's own optimizer checks, on GENIE: state, checkpoints and copies.

See `test_torch_checks` for the names, and for the list of what is checked and what cannot be.
"""

from __future__ import annotations

import io
import pickle
from copy import deepcopy
from typing import Any

import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests
from torch.testing._internal.common_utils import parametrize

from genie_dg import GENIE
from tests.versions import NAMED

from .torch_info import INFO, Checks, LeastSquares, each


def unnamed(state: dict[str, Any]) -> dict[str, Any]:
    """A state dict without the names of parameters, which may differ."""
    groups = [{k: v for k, v in group.items() if k != "param_names"} for group in state["param_groups"]]
    return {**state, "param_groups": groups}


class TestState(Checks):
    """What an optimizer remembers."""

    @parametrize("is_named_optim0", NAMED)
    @parametrize("is_named_optim1", NAMED)
    @each
    def test_state_dict_deterministic(self, device, dtype, kwargs, is_named_optim0, is_named_optim1):
        """An optimizer that loads a checkpoint goes on exactly like the one that wrote it."""
        problem = LeastSquares(device, dtype)
        optimizer = GENIE(problem.named(is_named_optim0), **deepcopy(kwargs))
        problem.train(optimizer, 5)
        twin = problem.twin()
        loaded = GENIE(twin.named(is_named_optim1), **deepcopy(kwargs))
        loaded.load_state_dict(deepcopy(optimizer.state_dict()))
        for _ in range(5):
            problem.train(optimizer, 1)
            twin.train(loaded, 1)
            self.assertSame(problem.params, twin.params)
        self.assertSame(unnamed(optimizer.state_dict()), unnamed(loaded.state_dict()))
        loaded.param_groups.extend(loaded.param_groups)  # a repeated group gets the same numbers again
        groups = unnamed(loaded.state_dict())["param_groups"]
        self.assertEqual(groups[-1], unnamed(optimizer.state_dict())["param_groups"][-1])

    @each
    def test_can_load_older_state_dict(self, device, dtype, kwargs):
        """Options that a checkpoint does not have come from the constructor, and the next step is the same."""
        problem = LeastSquares(device, dtype)
        optimizer = GENIE(problem.params, **deepcopy(kwargs))
        problem.train(optimizer, 3)
        old = deepcopy(optimizer.state_dict())
        for flag in INFO.not_og_supported_flags:
            del old["param_groups"][0][flag]
        twin = problem.twin()
        loaded = GENIE(twin.params, **deepcopy(kwargs))
        loaded.load_state_dict(old)
        self.assertEqual(set(loaded.param_groups[0]), set(optimizer.param_groups[0]))
        problem.train(optimizer, 2)
        twin.train(loaded, 2)
        self.assertSame(problem.params, twin.params)

    @parametrize("is_named_optim", NAMED)
    @each
    def test_save_load_equality_with_weights_only(self, device, dtype, kwargs, is_named_optim):
        """A file has what was saved, and can be read without running code."""
        problem = LeastSquares(device, dtype)
        optimizer = GENIE(problem.named(is_named_optim), **kwargs)
        problem.train(optimizer, 3)
        file = io.BytesIO()
        torch.save(optimizer.state_dict(), file)
        for weights_only in (True, False):
            file.seek(0)
            self.assertSame(torch.load(file, weights_only=weights_only), optimizer.state_dict())

    @each
    def test_load_nontensor_step(self, device, dtype, kwargs):
        """A step count that was saved as a number becomes a tensor again and goes on counting."""
        problem = LeastSquares(device, dtype)
        optimizer = GENIE(problem.params, **kwargs)
        problem.train(optimizer, 3)
        state = deepcopy(optimizer.state_dict())
        for own in state["state"].values():
            own["step"] = own["step"].item()
        optimizer.load_state_dict(state)
        problem.train(optimizer, 1)
        for p in problem.params:
            self.assertEqual(optimizer.state[p]["step"], torch.tensor(4.0))

    @each
    def test_deepcopy_copies_all_public_attrs(self, device, dtype, kwargs):
        """A copy has the attributes of the original, its state, and parameters of its own."""
        problem = LeastSquares(device, dtype)
        optimizer = GENIE(problem.params, **kwargs)
        problem.train(optimizer, 3)
        copy = deepcopy(optimizer)
        public = [{name for name in vars(o) if not name.startswith("_")} for o in (optimizer, copy)]
        self.assertEqual(*public)
        self.assertSame(copy.state_dict(), optimizer.state_dict())
        copied = copy.param_groups[0]["params"][0]
        self.assertIsNot(copied, problem.weight)
        copied.grad = torch.ones_like(copied)
        before = problem.weight.detach().clone()
        copy.step()
        self.assertSame(problem.weight.detach(), before)
        self.assertEqual(optimizer.state[problem.weight]["step"], torch.tensor(3.0))

    @each
    def test_pickle(self, device, dtype, kwargs):
        """An optimizer comes back from a pickle and takes the same next step. No counterpart upstream."""
        problem = LeastSquares(device, dtype)
        optimizer = GENIE(problem.params, **kwargs)
        problem.train(optimizer, 3)
        back = pickle.loads(pickle.dumps(optimizer))
        self.assertSame(back.state_dict(), optimizer.state_dict())
        problem.backward()
        params = back.param_groups[0]["params"]
        for p, original in zip(params, problem.params, strict=True):
            p.grad = original.grad.clone()
        optimizer.step()
        back.step()
        self.assertSame(params, problem.params)


instantiate_device_type_tests(TestState, globals(), only_for="cpu")
