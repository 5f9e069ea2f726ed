"""The loop, foreach and the path that is taken by default agree in every case that can be drawn.

A case is a few groups of parameters of any shape, layout, dtype and options, some steps of gradients of any
kind, and what may happen between two steps. The loop is the specification. No case and no entry is excepted.
How far two paths may be apart, a few units of rounding, is worked out by `tests.oracle.rounding`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter

from genie_dg import GENIE
from tests.oracle.rounding import Doubt

PATHS: dict[str, dict[str, Any]] = {"loop": {"foreach": False}, "foreach": {"foreach": True}, "default": {}}
SHAPES = [
    *((), (0,), (1,), (7,), (64,), (65,), (0, 3), (1, 1), (3, 5), (16, 16), (9, 31), (255, 3)),
    *((2, 3, 4), (5, 1, 7), (4, 3, 3, 3), (8, 16, 1, 1), (2, 5, 7, 2), (2, 1, 2, 3, 2), (1100,)),
]
LARGE = [(65_536,), (65_537,), (257, 256), (20_000,)]
DTYPES = [torch.float32] * 6 + [torch.float64, torch.bfloat16, torch.float16]


def saturated(x: Tensor, dtype: torch.dtype) -> Tensor:
    """A copy in another dtype, where what is too large is the largest number."""
    if x.dtype == dtype:
        return x.clone()
    largest = torch.finfo(dtype).max
    return x.double().clamp(-largest, largest).to(dtype)


def strided(x: Tensor) -> Tensor:
    """Every second element of a larger tensor, in each dimension."""
    larger = torch.zeros([2 * n for n in x.shape], dtype=x.dtype)
    view = larger[tuple(slice(0, 2 * n, 2) for n in x.shape)]
    return view.copy_(x)


def backwards(x: Tensor) -> Tensor:
    """The dimensions lie in memory in the opposite order."""
    order = tuple(reversed(range(x.dim())))
    return x.permute(order).contiguous().permute(order)


def channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else backwards(x)


LAYOUTS: list[Callable[[Tensor], Tensor]] = [torch.clone, torch.clone, backwards, channels_last, strided]


class Case:
    """One case: everything is drawn from its number."""

    def __init__(self, number: int) -> None:
        self.draw, self.generator = random.Random(number), torch.Generator().manual_seed(number)
        self.groups = [self.options() for _ in range(self.draw.choice([1, 1, 1, 2, 3]))]
        tensors = [[self.tensor() for _ in range(self.draw.choice([1, 1, 2, 3]))] for _ in self.groups]
        self.params = {name: [[self.copy(x) for x in own] for own in tensors] for name in PATHS}
        if self.draw.random() < 0.1:  # two more that lie in one another's gaps
            both = self.normal((6, 10), torch.float32)
            tensors[0] += [both[:, ::2], both[:, 1::2]]
            for groups in self.params.values():
                memory = both.clone()
                groups[0] += [Parameter(memory[:, ::2]), Parameter(memory[:, 1::2])]
        self.kinds = [[self.draw.choice(GRADIENTS) for _ in own] for own in tensors]
        self.scales = [[10.0 ** self.draw.uniform(-6, 3) for _ in own] for own in tensors]
        self.constant = [[self.normal(x.shape, torch.float64) for x in own] for own in tensors]
        seed = self.draw.choice([0, 1, -3, 2**40])
        self.optimizers = {
            name: GENIE(
                [{"params": own, **g} for own, g in zip(self.params[name], self.groups, strict=True)],
                seed=seed,
                **path,
            )
            for name, path in PATHS.items()
        }
        self.doubts = [[Doubt.none(x) for x in own] for own in tensors]
        self.changed: set[tuple[int, int]] = set()
        self.worst = 0.0

    def options(self) -> dict[str, Any]:
        pick = self.draw.choice
        return {
            "lr": 10.0 ** self.draw.uniform(-3, 0),
            "beta": pick([0.0, 0.01, 0.5, 0.9, 0.95, 0.95, 0.999]),
            "dropout": pick([0.0, 0.4, 0.4, 0.9]),
            "noise": pick([True, True, False]),
            "precondition": pick([True, True, False]),
            "formulation": pick(["released", "released", "algorithm1"]),
            "noise_std": pick([0.0, 0.1, 2.0]),
            "weight_decay": pick([0.0, 0.0, 1e-3, 0.3]),
            "decoupled_weight_decay": pick([True, False]),
            "maximize": pick([True, False, False]),
        }

    def normal(self, shape: Any, dtype: torch.dtype) -> Tensor:
        return torch.randn(shape, generator=self.generator, dtype=torch.float64).to(dtype)

    def tensor(self) -> Tensor:
        shape = self.draw.choice(LARGE if self.draw.random() < 0.004 else SHAPES)
        x = self.normal(shape, self.draw.choice(DTYPES)) * self.draw.choice([0.0, 1e-3, 1.0, 1.0])
        return self.draw.choice(LAYOUTS)(x)

    @staticmethod
    def copy(x: Tensor) -> Parameter:
        """In memory of its own, with the same strides."""
        reach = 1 + sum((n - 1) * stride for n, stride in zip(x.shape, x.stride(), strict=True))
        memory = torch.zeros(max(reach, 0) if x.numel() else 0, dtype=x.dtype)
        return Parameter(memory.as_strided(x.shape, x.stride()).copy_(x))

    def gradient(self, i: int, j: int, p: Tensor) -> Tensor | None:
        scale = self.scales[i][j]
        if self.draw.random() < 0.1:
            return None
        g = GRADIENTS_OF[self.kinds[i][j]](self, self.constant[i][j]) * scale
        g = g.to(p.dtype)
        if self.draw.random() < 0.05:
            return g.mean().expand(p.shape) if p.numel() else g  # as of a sum: strides of 0
        return self.draw.choice(LAYOUTS)(g)

    def between_steps(self) -> None:
        """What may happen between two steps, alike in all paths."""
        chance = self.draw.random()
        if chance < 0.2:
            self.swap_states()
        elif chance < 0.4:
            i = self.draw.randrange(len(self.groups))
            j = self.draw.randrange(len(self.params["loop"][i]))
            change, dtype = self.draw.choice(LAYOUTS), self.draw.choice([None, None, *dict.fromkeys(DTYPES)])
            for name in PATHS:
                p = self.params[name][i][j]
                p.grad = None
                p.data = change(p.data if dtype is None else saturated(p.data, dtype))
            self.changed.add((i, j))
        elif chance < 0.6:
            i, options = self.draw.randrange(len(self.groups)), self.options()
            for name in self.draw.sample(sorted(options), 2):
                for optimizer in self.optimizers.values():
                    optimizer.param_groups[i][name] = options[name]

    def swap_states(self) -> None:
        """Each path goes on with the weights and the saved state of another one."""
        saved = {name: optimizer.state_dict() for name, optimizer in self.optimizers.items()}
        weights = {name: [[p.detach().clone() for p in own] for own in self.params[name]] for name in PATHS}
        for name, other in zip(PATHS, [*list(PATHS)[1:], "loop"], strict=True):
            state = {**saved[other], "param_groups": [dict(g) for g in saved[other]["param_groups"]]}
            for group in state["param_groups"]:
                group.update({"foreach": None, **PATHS[name]})
            optimizer = GENIE([{"params": own} for own in self.params[name]])
            optimizer.load_state_dict(state)
            for own, new in zip(self.params[name], weights[other], strict=True):
                for p, x in zip(own, new, strict=True):
                    p.data.copy_(x)
            self.optimizers[name] = optimizer

    def tensors(self, name: str, i: int, j: int) -> list[Tensor]:
        """Weights and moments; with zeros for moments that are not there yet, in the dtype of the weights."""
        p = self.params[name][i][j]
        state = self.optimizers[name].state.get(p, {})
        moments = [state.get(key, torch.zeros_like(p)) for key in ("exp_avg", "exp_avg_sq")]
        return [saturated(x.detach(), p.dtype) for x in (p, *moments)]

    def step(self) -> None:
        places = [(i, j) for i, own in enumerate(self.params["loop"]) for j in range(len(own))]
        grads = {place: self.gradient(*place, self.params["loop"][place[0]][place[1]]) for place in places}
        for i, j in places:
            loop, others = self.tensors("loop", i, j), [self.tensors(n, i, j) for n in PATHS if n != "loop"]
            few_bits = loop[0].dtype in (torch.bfloat16, torch.float16)
            self.doubts[i][j].see(loop, others, exactly=few_bits or (i, j) in self.changed)
        self.changed.clear()
        before = {(i, j): self.params["loop"][i][j].detach().clone() for i, j in places}
        for name, optimizer in self.optimizers.items():
            for (i, j), g in grads.items():
                self.params[name][i][j].grad = None if g is None else self.copy_of_gradient(g)
            optimizer.step()
        for i, j in places:
            g, optimizer = grads[i, j], self.optimizers["loop"]
            if g is not None:
                t = int(self.count("loop", i, j))
                self.doubts[i][j].step(optimizer.param_groups[i], t, before[i, j], g)
            self.compare(i, j)

    @staticmethod
    def copy_of_gradient(g: Tensor) -> Tensor:
        return g if 0 in g.stride() else Case.copy(g).detach()

    def compare(self, i: int, j: int) -> None:
        """The weights with those of the loop, the moments with the float64 ones."""
        doubt, weights = self.doubts[i][j], self.params["loop"][i][j].detach()
        for name in PATHS:
            expected = zip(self.tensors(name, i, j), (weights, doubt.m, doubt.v), strict=True)
            for (x, y), bound in zip(expected, (doubt.of_p, doubt.of_m, doubt.of_v), strict=True):
                apart = (x.double() - y.double()).abs()
                shares = torch.where(apart == 0, 0.0, apart / bound).flatten()
                share = float(shares.max()) if len(shares) else 0.0
                assert share <= 1, (  # false for NaN
                    f"{name} is {share:.3g} times the bound away in "
                    f"{'weights' if y is weights else 'a moment'} of parameter {j} of group {i}, "
                    f"{tuple(x.shape)} {x.dtype}, gradient {self.kinds[i][j]} x {self.scales[i][j]:.2g}, "
                    f"options {dict(list(self.optimizers[name].param_groups[i].items())[1:])}"
                )
                self.worst = max(self.worst, share)
            assert self.count(name, i, j) == self.count("loop", i, j)

    def count(self, name: str, i: int, j: int) -> float:
        return float(self.optimizers[name].state.get(self.params[name][i][j], {}).get("step", 0.0))

    def run(self) -> float:
        """All steps. Returns the share of the bound that the largest difference takes."""
        for step in range(self.draw.choice([2, 2, 3, 3, 4, 5, 6, 8])):
            if step:
                self.between_steps()
            self.step()
        return self.worst


def sparse(case: Case, x: Tensor) -> Tensor:
    return case.normal(x.shape, torch.float64) * (case.normal(x.shape, torch.float64) > 1)


def of_two_sizes(case: Case, x: Tensor) -> Tensor:
    """Larger in the first half, so that whole blocks are calm beside live ones."""
    first = torch.arange(x.numel()).reshape(x.shape) < x.numel() // 2
    return case.normal(x.shape, torch.float64) * torch.where(first, 1.0, 1e-4)


GRADIENTS_OF: dict[str, Callable[[Case, Tensor], Tensor]] = {
    "normal": lambda case, x: case.normal(x.shape, torch.float64),
    "sparse": sparse,
    "of two sizes": of_two_sizes,
    "constant": lambda case, x: x,
    "nearly constant": lambda case, x: x * (1 + 1e-3 * case.normal(x.shape, torch.float64)),
    "zero": lambda case, x: torch.zeros_like(x),
}
GRADIENTS = [*GRADIENTS_OF, "normal", "constant"]


def check_cases(numbers: range) -> None:
    for number in numbers:
        try:
            Case(number).run()
        except Exception as error:
            raise AssertionError(f"case {number}: {error}") from error


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_paths_agree(first: int) -> None:
    check_cases(range(first, first + 20))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 5000, 250))
def test_paths_agree_in_five_thousand_cases(first: int) -> None:
    check_cases(range(first, first + 250))
