"""Every algorithm with every optimizer, on several sources and on one: the promises of a cell of the grid."""

from __future__ import annotations

import io
from dataclasses import is_dataclass
from typing import Any

import pytest
import torch
from _pytest.mark import ParameterSet
from torch import Tensor
from torch.optim import Optimizer

from genie_dg._types import DomainBatch, StepContext
from genie_dg.algorithms.algorithm import Algorithm
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.bench.build import build_optimizers, create_graph
from genie_dg.bench.step import step_objective, take_step
from genie_dg.data.digits import rotated_digits
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.registry import with_defaults
from genie_dg.runs.config import RunConfig
from genie_dg.search_space import defaults

from ..algorithms.networks import small_network

Digits = list[tuple[Tensor, Tensor]]
STEPS = 4
RATES = {"genie": 0.3, "sgd": 0.05, "msvag": 0.05}
"""Learning rates that move float32 weights visibly in four steps; 1e-3 otherwise."""
SOONER = {"ERM++": {"linear_steps": 1, "sma_start_iter": 3}}
"""Settings that make everything an algorithm does happen within four steps; defaults otherwise."""


@pytest.fixture(scope="module")
def digits() -> Digits:
    return [(domain.images, domain.labels) for domain in rotated_digits()]


def config_of(optimizer: str, algorithm: str) -> RunConfig:
    settings = {"lr": RATES.get(optimizer, 1e-3)}
    return RunConfig("digits", (5,), algorithm, optimizer, optimizer_settings=settings)


def cell(algorithm: str, optimizer: str, domains: int) -> tuple[Algorithm, dict[str, Optimizer]]:
    """A fresh cell; its weights are always the same."""
    row = ALGORITHMS[algorithm]
    network = small_network(0, channels=1 + row.extra_channels, classes=10, dtype=torch.float32)
    settings = with_defaults(row.name, defaults(row.space), SOONER.get(row.name, {}))
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        built = row.build(network, domains, **settings)
    built.train()
    return built, build_optimizers(config_of(optimizer, algorithm), built)


def batch_of(digits: Digits, domains: int, step: int) -> DomainBatch:
    rows = slice(8 * step, 8 * step + 8)
    images, labels = zip(*digits[:domains], strict=True)
    return DomainBatch(tuple(x[rows] for x in images), tuple(y[rows] for y in labels))


def run(
    algorithm: Algorithm, optimizers: dict[str, Optimizer], digits: Digits, steps: range, graph: bool
) -> list[float]:
    losses = []
    for step in steps:
        torch.manual_seed(100 + step)  # as the loop does: what is random in a step belongs to the step
        batch = batch_of(digits, algorithm.domains, step)
        losses += take_step(algorithm, optimizers, batch, StepContext(step, 7, graph)).values()
    return losses


def saved(algorithm: Algorithm, optimizers: dict[str, Optimizer]) -> io.BytesIO:
    file = io.BytesIO()
    state = {role: optimizer.state_dict() for role, optimizer in optimizers.items()}
    torch.save({"algorithm": algorithm.state_dict(), "optimizers": state}, file)
    file.seek(0)
    return file


def assert_same(left: Algorithm, right: Algorithm) -> None:
    mine, other = left.state_dict(), right.state_dict()
    assert mine.keys() == other.keys()
    for name in mine:
        assert torch.equal(mine[name], other[name]), name


def cells() -> list[ParameterSet]:
    """Every cell; those that differ from others in kind run always, all of them in ``make test-slow``.

    Always: every algorithm with a plain optimizer, one that makes several passes and one that differentiates
    the gradient; with a single domain under GENIE; and every optimizer with algorithms of one role, of two
    roles and of a prescribed gradient.
    """
    listed = []
    for algorithm in ALGORITHMS:
        for optimizer in OPTIMIZERS:
            differs = optimizer in ("genie", "sam", "adahessian") or algorithm in ("ERM", "DANN", "ANDMask")
            for domains in (3, 1):
                always = differs if domains == 3 else optimizer == "genie"
                marks = () if always else (pytest.mark.slow,)
                name = f"{algorithm}-{optimizer}-{domains}"
                listed.append(pytest.param(algorithm, optimizer, domains, id=name, marks=marks))
    return listed


@pytest.mark.parametrize(("algorithm", "optimizer", "domains"), cells())
def test_cell(algorithm: str, optimizer: str, domains: int, digits: Digits) -> None:
    """Finite losses, moving parameters, and a restart from a file that continues bit for bit."""
    graph = create_graph(config_of(optimizer, algorithm))
    first, stepping = cell(algorithm, optimizer, domains)
    start = {name: p.detach().clone() for name, p in first.network.named_parameters()}
    losses = run(first, stepping, digits, range(STEPS // 2), graph)
    file = saved(first, stepping)
    losses += run(first, stepping, digits, range(STEPS // 2, STEPS), graph)
    assert losses
    assert all(loss == loss and abs(loss) < float("inf") for loss in losses)
    stepped = {id(p) for p in first.roles()["main"].parameters}
    for name, p in first.network.named_parameters():
        assert torch.isfinite(p).all(), name
        assert torch.equal(p, start[name]) == (id(p) not in stepped), f"{name} moves where its role is stepped"

    second, restarted = cell(algorithm, optimizer, domains)
    state = torch.load(file, weights_only=True)
    second.load_state_dict(state["algorithm"])
    for role, one in restarted.items():
        one.load_state_dict(state["optimizers"][role])
    run(second, restarted, digits, range(STEPS // 2, STEPS), graph)
    assert_same(first, second)
    logits = first.eval().predict(digits[5][0][:6])
    assert logits.isfinite().all()
    assert logits.shape == (6, 10)


@pytest.mark.parametrize("domains", [3, 1], ids=["several", "one"])
@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_roles_are_stepped_as_declared(algorithm: str, domains: int, digits: Digits) -> None:
    """An objective moves parameters of its role and no others; every role gets its turn."""
    built, optimizers = cell(algorithm, "sgd", domains)
    roles = built.roles()
    owned = {id(p) for p in built.parameters()}
    for role in roles.values():
        assert {id(p) for p in role.parameters} <= owned
        assert len({id(p) for p in role.parameters}) == len(role.parameters)
    seen = set()
    for step in range(STEPS):
        context = StepContext(step, 7)
        torch.manual_seed(100 + step)
        for objective in built.objectives(batch_of(digits, domains, step), context):
            before = [(p, p.detach().clone()) for p in built.parameters()]
            step_objective(objective, optimizers[objective.role], context)
            moved = {id(p) for p, old in before if not torch.equal(p, old)}
            assert moved <= {id(p) for p in roles[objective.role].parameters}, objective.role
            seen.add(objective.role)
    assert seen == set(roles)


@pytest.mark.parametrize("domains", [3, 1], ids=["several", "one"])
@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_a_loss_can_be_asked_for_twice(algorithm: str, domains: int, digits: Digits) -> None:
    """Optimizers with several passes ask again: same weights, same loss, same gradients, same state."""
    built, optimizers = cell(algorithm, "sgd", domains)
    run(built, optimizers, digits, range(2), False)
    for objective in built.objectives(batch_of(digits, domains, 2), StepContext(2, 7)):
        parameters = [p for p in built.roles()[objective.role].parameters if p.requires_grad]
        statistics = {n: b.clone() for n, b in built.named_buffers() if "running" in n or "tracked" in n}
        torch.manual_seed(0)
        first = objective.loss()
        gradients = torch.autograd.grad(first, parameters, allow_unused=True)
        state = {n: b.clone() for n, b in built.named_buffers() if n not in statistics}
        torch.manual_seed(0)
        second = objective.loss()
        again = torch.autograd.grad(second, parameters, allow_unused=True)
        torch.testing.assert_close((first, gradients), (second, again), rtol=0, atol=0)
        for name, buffer in built.named_buffers():
            if name not in statistics:
                assert torch.equal(buffer, state[name]), name


def plain_values(algorithm: Algorithm) -> dict[str, Any]:
    """What an algorithm keeps besides tensors and modules, and the settings of its own optimizers."""
    kinds = (str, int, float, tuple)
    kept = {k: v for k, v in vars(algorithm).items() if isinstance(v, kinds) or is_dataclass(v)}
    roles = [(role.optimizer, dict(role.settings)) for role in algorithm.roles().values()]
    return {**kept, "restarts": getattr(algorithm, "restarts", None), "roles": roles}


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_defaults_are_the_same_in_row_and_class(name: str) -> None:
    row = ALGORITHMS[name]

    def build(**settings: Any) -> Algorithm:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(1)
            return row.build(small_network(channels=1 + row.extra_channels), 3, **settings)

    bare, given = build(), build(**defaults(row.space))
    assert plain_values(bare) == plain_values(given)
    assert_same(bare, given)
    assert row.paper
    with pytest.raises(TypeError, match="no_such_setting"):
        build(no_such_setting=1)
