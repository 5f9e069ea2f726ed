"""What every algorithm of the registry promises besides its formula; the grid of `tests.contracts` trains all.

The files beside this one hold each algorithm to a twin in float64 and test what is special about it.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from genie_dg._types import MAIN, DomainBatch, Objective, StepContext
from genie_dg.algorithms.algorithm import Algorithm, AlgorithmRow, OneLoss
from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.models._featurizer import Featurizer as Backbone
from genie_dg.models.classifier import Classifier
from genie_dg.search_space import defaults

from .networks import Featurizer, batch, cut, small_network

LATE = 10_001
"""A step of the network after all first steps in which a penalty is off."""
EACH = pytest.mark.parametrize("row", ALGORITHMS.values(), ids=lambda row: row.name)


def built(
    row: AlgorithmRow, domains: int = 3, dtype: torch.dtype = torch.float64, **settings: Any
) -> Algorithm:
    """The algorithm on a small network; its own weights are always the same."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(1)
        network = small_network(channels=1 + row.extra_channels, dtype=dtype)
        return row.build(network, domains, **settings).to(dtype)


def first_objective(algorithm: Algorithm, data: DomainBatch, context: StepContext) -> Objective:
    """The first objective of a step, which is the only one of most algorithms."""
    return next(iter(algorithm.objectives(data, context)))


def flat(tensors: Any) -> Tensor:
    return torch.cat([t.flatten() for t in tensors if t is not None])


AT_THE_END_OF_ITS_RANGE: list[tuple[tuple[str, ...], Any]] = [
    (("beta1", "mlp_dropout", "ema", "p", "eqrm_quantile"), 1.0),
    (("mixup_alpha", "mixstyle_alpha", "k", "temperature", "miro_lr_mult", "eqrm_quantile"), 0.0),
    (("tau", "mtl_ema", "mixstyle_p", "rsc_f_drop_factor", "rsc_b_drop_factor"), 1.1),
    (("urm_discriminator_label_smoothing",), 1.1),
    (("mlp_width", "d_steps_per_g_step", "d_steps_per_g", "n_meta_test", "sma_start_iter"), 0),
    (("mlp_width", "d_steps_per_g_step", "linear_steps", "urm_discriminator_hidden_layers"), 2.5),
    (("mlp_depth",), 1),
    (("mixstyle_points",), ("nowhere",)),
]
"""Settings, and the nearest value that they cannot have."""


def wrong_values() -> list[Any]:
    """For every setting of every row what it cannot be, by the kind of its default and by its range."""
    cases = []
    for row in ALGORITHMS.values():
        for name, default in defaults(row.space).items():
            is_number = isinstance(default, (int, float)) and not isinstance(default, bool)
            usual = [-1, math.nan, math.inf, "much"] if is_number else ["nothing of this name"]
            values = [*([] if isinstance(default, tuple) else usual)]
            values += [value for names, value in AT_THE_END_OF_ITS_RANGE if name in names]
            cases += [pytest.param(row, name, value, id=f"{row.name}-{name}-{value}") for value in values]
    return cases


@pytest.mark.parametrize(("row", "name", "value"), wrong_values())
def test_wrong_settings_are_refused_in_a_sentence(row: AlgorithmRow, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=rf"^got {name}=.*; expected .*\.$|^got {name}=.*; did you mean .*\?$"):
        built(row, **{name: value})


@EACH
def test_a_domain_with_too_few_samples_is_refused(row: AlgorithmRow) -> None:
    algorithm, data = built(row, 2), cut((6, 1))
    least = algorithm.least_samples if isinstance(algorithm, OneLoss) else 1
    if least == 1:
        assert first_objective(algorithm, data, StepContext(LATE)).loss().isfinite()
    else:
        expected = (
            rf"^\w+ got a batch with \[6, 1\] samples per domain; expected {least} or more of each, .*\.$"
        )
        with pytest.raises(ValueError, match=expected):
            first_objective(algorithm, data, StepContext(LATE))


@EACH
def test_domains_may_have_different_sizes(row: AlgorithmRow) -> None:
    data = cut((5, 2, 6))
    for step in (0, LATE):
        for objective in built(row).objectives(data, StepContext(step)):
            assert objective.loss().isfinite()


@pytest.mark.parametrize("blank", [False, True], ids=["pictures", "blank"])
@pytest.mark.parametrize("step", [0, LATE])
@pytest.mark.parametrize(
    "row", [row for row in ALGORITHMS.values() if "equals ERM" in row.one_source], ids=lambda row: row.name
)
def test_with_one_source_it_equals_erm_where_its_row_says_so(row: AlgorithmRow, step: int, blank: bool) -> None:
    """On blank pictures too, where some entries have a gradient of exactly zero."""
    algorithm, data = built(row, 1), batch(1)
    data = DomainBatch((data.images[0] * (not blank),), data.labels)
    loss = first_objective(algorithm, data, StepContext(step)).loss()
    parameters = list(algorithm.network.parameters())
    erm = cross_entropy(algorithm.network(data.images[0]), data.labels[0])
    torch.testing.assert_close(loss, erm, rtol=1e-12, atol=0)
    ours, plain = torch.autograd.grad(loss, parameters), torch.autograd.grad(erm, parameters)
    torch.testing.assert_close(ours, plain, rtol=1e-9, atol=1e-13)


def test_some_equal_erm() -> None:
    assert sum("equals ERM" in row.one_source for row in ALGORITHMS.values()) > 10


@pytest.mark.parametrize("create_graph", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@EACH
def test_equal_blank_domains_give_finite_gradients(
    row: AlgorithmRow, dtype: torch.dtype, create_graph: bool
) -> None:
    """All samples are the same picture, all domains the same: variances, distances and conflicts are zero."""
    whole = batch(2, dtype=dtype)
    data = DomainBatch(tuple(x * 0 for x in whole.images), (whole.labels[0], whole.labels[0]))
    algorithm = built(row, 2, dtype)
    contexts = (StepContext(step, create_graph=create_graph) for step in (0, LATE))
    for objective in (objective for context in contexts for objective in algorithm.objectives(data, context)):
        loss, parameters = objective.loss(), algorithm.roles()[objective.role].parameters
        first = torch.autograd.grad(loss, parameters, create_graph=create_graph, allow_unused=True)
        assert loss.isfinite()
        assert flat(first).isfinite().all()
        if create_graph and flat(first).requires_grad:
            second = torch.autograd.grad(flat(first).square().sum(), parameters, allow_unused=True)
            assert flat(second).isfinite().all()


@pytest.mark.parametrize("step", [0, LATE])
@EACH
def test_autocast_changes_the_loss_a_little(row: AlgorithmRow, step: int) -> None:
    """What is not computed in half precision has its own tests; here it is the network alone."""
    algorithm, data = built(row, dtype=torch.float32), batch(dtype=torch.float32)
    objective = first_objective(algorithm, data, StepContext(step))
    with torch.autocast("cpu", torch.bfloat16):
        half = objective.loss()
    torch.testing.assert_close(half.float(), objective.loss(), rtol=0.1, atol=0.02)
    gradients = torch.autograd.grad(half, algorithm.roles()[objective.role].parameters, allow_unused=True)
    assert flat(gradients).dtype == torch.float32
    assert flat(gradients).isfinite().all()


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ANDMask", {"tau": 0.6}),
        ("SANDMask", {"tau": 0.2, "k": 1e-4}),
        ("GSNRDropout", {}),
        ("PCGrad", {"surgery": "pcgrad"}),
        ("PCGrad", {"surgery": "agr-sum"}),
        ("PCGrad", {"surgery": "agr-rand"}),
        ("Fish", {"fish_inner_lr": 0.3}),
    ],
    ids=str,
)
def test_a_prescribed_gradient_carries_its_derivative(name: str, settings: dict[str, Any]) -> None:
    """The Jacobian of the prescribed field between two vectors: autograd against central differences."""
    algorithm, whole = built(ALGORITHMS[name], **settings), batch()
    images = tuple(whole.images[0] + 0.3 * x for x in whole.images)  # labels contradict: gradients conflict
    data = DomainBatch(images, tuple((whole.labels[0] + k) % 3 for k in range(3)))
    parameters, g = list(algorithm.network.parameters()), torch.Generator().manual_seed(0)
    v = [torch.randn(p.shape, generator=g, dtype=p.dtype) for p in parameters]
    z = flat(torch.randn(p.shape, generator=g, dtype=p.dtype) for p in parameters)

    def field(create_graph: bool) -> Tensor:
        """What is written to the parameters, along z."""
        loss = first_objective(algorithm, data, StepContext(0, create_graph=create_graph)).loss()
        return flat(torch.autograd.grad(loss, parameters, create_graph=create_graph)) @ z

    exact = (flat(torch.autograd.grad(field(True), parameters)) @ flat(v)).item()
    sides = []
    for h in (1e-6, -2e-6):
        with torch.no_grad():
            torch._foreach_add_(parameters, v, alpha=h)
        sides.append(field(False).item())
    assert exact == pytest.approx((sides[0] - sides[1]) / 2e-6, rel=1e-5)
    assert abs(exact) > 1e-3


def is_moved_by_every_pass(name: str) -> bool:
    """The statistics of batch norms change whenever samples pass."""
    return "running" in name or "tracked" in name


@EACH
def test_what_a_step_stores_is_of_its_first_evaluation_and_stored_after_it(row: AlgorithmRow) -> None:
    """Optimizers such as SAM evaluate the loss again, at other weights."""
    stored, data = [], batch()
    for evaluations in (1, 2):
        algorithm = built(row)
        for objective in algorithm.objectives(data, StepContext(LATE)):
            before = {name: x.clone() for name, x in algorithm.state_dict().items()}
            for k in range(evaluations):
                for weight in algorithm.network.parameters():
                    weight.data *= 2.0**k
                objective.loss()
                for weight in algorithm.network.parameters():
                    weight.data *= 0.5**k  # exactly as it was
            assert all(
                torch.equal(x, before[name])
                for name, x in algorithm.state_dict().items()
                if not is_moved_by_every_pass(name)
            )
        stored.append(algorithm.state_dict())
    for name, x in stored[0].items():
        assert is_moved_by_every_pass(name) or torch.equal(x, stored[1][name]), name


@EACH
def test_the_features_that_an_algorithm_sees_have_dropout(row: AlgorithmRow) -> None:
    """As in DomainBed, where dropout is the end of the featurizer: the losses are the same to the bit."""

    def losses(inside: float, after: float) -> list[Tensor]:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(1)
            points = small_network().point_channels
            body = nn.Sequential(Featurizer(1 + row.extra_channels), nn.Dropout(inside))
            places = {"early": "0.early", "late": "0.late"}
            network = Classifier(Backbone(body, 6, places, points, False), 3, after)
            algorithm = row.build(network, 3).double().train()
            torch.default_generator.manual_seed(2)
            steps = (algorithm.objectives(batch(), StepContext(step)) for step in (0, LATE))
            return [objective.loss().detach() for step in steps for objective in step]

    seen = losses(0.0, 0.5)
    torch.testing.assert_close(seen, losses(0.5, 0.0), rtol=0, atol=0)
    assert any(not torch.equal(a, b) for a, b in zip(seen, losses(0.0, 0.0), strict=True))


@EACH
def test_frozen_weights_get_no_gradient(row: AlgorithmRow) -> None:
    algorithm, data = built(row), batch()
    frozen = algorithm.network.featurizer.early.weight
    frozen.requires_grad_(False)
    objectives = algorithm.objectives(data, StepContext(LATE))
    next(objective for objective in objectives if objective.role == MAIN).loss().backward()
    assert frozen.grad is None
    assert algorithm.network.featurizer.late.weight.grad is not None
