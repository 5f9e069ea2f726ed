"""The registry of optimizers: one row each, open to the user's own, and `build_optimizer`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.optim import Optimizer, RMSprop

from genie_dg import check
from genie_dg._types import Group
from genie_dg.registry import Registry, with_defaults
from genie_dg.search_space import Choice, LogUniform, SearchRule, Setting, Space, Uniform, checked, defaults

from ._builders import SGD, Adam, AdamW, Groups, build_adahessian, library_builder, torch_builder
from .fad import FAD
from .gam import GAM
from .genie import GENIE
from .msvag import MSVAG
from .passes import Passes
from .sagm import SAGM
from .sam import SAM


@dataclass(frozen=True)
class OptimizerRow:
    """One optimizer.

    Args:
        name: as results and the command line call it.
        build: ``(groups, **settings)``; the groups are torch's, each with parameters and its own lr.
        paper: authors, title, venue, year.
        space: its settings, whose names are the keywords of ``build``. ``source`` of a setting says whether
            default and rule are "published" or "ours".
        passes: forward and backward passes in a step; above 1, ``step`` needs the closure.
        create_graph: the closure must leave gradients with their graph.
    """

    name: str
    build: Callable[..., Optimizer]
    paper: str
    space: Space
    passes: int = 1
    create_graph: bool = False


def _published(default: Any, rule: SearchRule | None = None) -> Setting:
    """A setting as its paper, or the benchmark, has it."""
    return Setting(default, rule, "published")


def _ours(default: Any, rule: SearchRule | None = None) -> Setting:
    """A setting that is chosen here."""
    return Setting(default, rule, "ours")


_DECAY = _published(0.0, LogUniform(-6, -2))
_OWN_DECAY = _ours(0.0, LogUniform(-6, -2))
_ADAM_LR, _SGD_LR, _GENIE_LR = LogUniform(-5, -3.5), LogUniform(-4, -2), LogUniform(-3, -1)
_LIKE_ADAM = {"lr": _ours(5e-5, _ADAM_LR), "weight_decay": _OWN_DECAY}
_BETAS = {"beta1": _published(0.9), "beta2": _published(0.999)}
_RADII = Choice((0.01, 0.02, 0.05, 0.1))
_WITH_BASE = {
    "base": _ours("adam"),
    "lr": _ours(None, _ADAM_LR),  # None: the default of the base; the rule is Adam's
    "weight_decay": _DECAY,
    "seed": _ours(0),  # of a base that adds noise
}


def build_optimizer(name: str, parameters_or_groups: Iterable[Tensor | Group], **settings: Any) -> Optimizer:
    """The optimizer of a row over parameters.

    Args:
        name: of a row of `OPTIMIZERS`.
        parameters_or_groups: parameters, or `Group`\\ s, whose lr is ``lr`` times their factor.
        settings: of the row's space; what is not given has its default.

    >>> import torch
    >>> group = Group((torch.nn.Parameter(torch.zeros(2)),), lr_factor=10.0)
    >>> build_optimizer("adam", [group], lr=1e-4).param_groups[0]["lr"]
    0.001
    >>> build_optimizer("adam", [group], beta_1=0.5)
    Traceback (most recent call last):
    genie_dg.registry.UnknownName: adam has no setting 'beta_1'; its settings are lr, weight_decay, beta1, \
beta2, eps; did you mean 'beta1'?
    """
    row = OPTIMIZERS[name]
    settings = with_defaults(row.name, defaults(row.space), checked(row.name, row.space, settings))
    if "base" in settings and settings["lr"] is None:
        settings["lr"] = _base_row(settings["base"]).space["lr"].default
    return row.build(_groups(parameters_or_groups, settings.get("lr")), **settings)


def _groups(given: Iterable[Tensor | Group], lr: Any) -> Groups:
    members = list(given)
    if members and all(isinstance(member, Tensor) for member in members):
        return [{"params": members, "lr": lr}]
    if not members or not all(isinstance(member, Group) for member in members):
        raise check.InputError("got no list of parameters; expected one or more, as in model.parameters().")
    lr = check.number("lr", lr)
    return [{"params": list(g.parameters), "lr": lr * g.lr_factor} for g in members if isinstance(g, Group)]


def _base_row(name: str) -> OptimizerRow:
    """The row of the optimizer that takes the step of SAM, GAM, FAD or SAGM."""
    row = OPTIMIZERS[name]
    if row.passes > 1 or row.create_graph:
        plain = ", ".join(r.name for r in OPTIMIZERS.values() if r.passes == 1 and not r.create_graph)
        reason = "makes several passes itself" if row.passes > 1 else "needs the graph of the gradient"
        raise check.InputError(f"got base={row.name!r}, which {reason}; expected one of {plain}.")
    return row


def _around_base(wrapper: Callable[..., Passes]) -> Callable[..., Optimizer]:
    """The ``build`` of SAM, GAM, FAD or SAGM, around the optimizer of the row ``base``.

    What is not given to that optimizer has the default of its own row.
    """

    def build(
        groups: Groups, *, base: str, lr: float | None, weight_decay: float, seed: int, **settings: Any
    ) -> Optimizer:
        row = _base_row(base)
        given: dict[str, Any] = {} if lr is None else {"lr": lr}
        if weight_decay:
            given["weight_decay"] = weight_decay
        if "seed" in row.space:
            given["seed"] = seed
        options = with_defaults(row.name, defaults(row.space), given)
        return wrapper(row.build(groups, **options), **settings)

    return build


ROWS = (
    # GENIE's authors ran it with lr 5e-5 and momentum 0, which trains little.
    OptimizerRow(
        "sgd",
        torch_builder(SGD),
        "Robbins, Monro, A Stochastic Approximation Method, Annals of Mathematical Statistics, 1951",
        {"lr": _ours(1e-3, _SGD_LR), "weight_decay": _DECAY, "momentum": _ours(0.9), "nesterov": _ours(False)},
    ),
    OptimizerRow(
        "adam",
        torch_builder(Adam),
        "Kingma, Ba, Adam: A Method for Stochastic Optimization, ICLR, 2015",
        {"lr": _published(5e-5, _ADAM_LR), "weight_decay": _DECAY, **_BETAS, "eps": _published(1e-8)},
    ),
    OptimizerRow(
        "adamw",
        torch_builder(AdamW),
        "Loshchilov, Hutter, Decoupled Weight Decay Regularization, ICLR, 2019",
        {**_LIKE_ADAM, **_BETAS, "eps": _published(1e-8)},
    ),
    OptimizerRow(
        "rmsprop",
        torch_builder(RMSprop),
        "Tieleman, Hinton, RMSprop, Coursera: Neural Networks for Machine Learning, lecture 6, 2012",
        {**_LIKE_ADAM, "alpha": _ours(0.99), "eps": _ours(1e-8)},
    ),
    # eps is added to the second moment in every step, and stays in it, and again under the fraction. The rule
    # of its paper is rectify=False; the runs of GENIE's authors have rectify=True.
    OptimizerRow(
        "adabelief",
        library_builder("AdaBelief"),
        "Zhuang et al., AdaBelief Optimizer: Adapting Stepsizes by the Belief in Observed Gradients, "
        "NeurIPS, 2020",
        {**_LIKE_ADAM, **_BETAS, "eps": _published(1e-16), "rectify": _published(False)},
    ),
    # With Adam's bias corrections, which the paper does not have. Both averages, not only the second, start at
    # `initial`, so weights move a little where gradients are zero.
    OptimizerRow(
        "yogi",
        library_builder("Yogi"),
        "Zaheer et al., Adaptive Methods for Nonconvex Optimization, NeurIPS, 2018",
        {**_LIKE_ADAM, **_BETAS, "eps": _published(1e-3), "initial": _published(1e-6)},
    ),
    OptimizerRow(
        "adahessian",
        build_adahessian,
        "Yao et al., ADAHESSIAN: An Adaptive Second Order Optimizer for Machine Learning, AAAI, 2021",
        {"lr": _ours(1e-3, _SGD_LR), "weight_decay": _OWN_DECAY, **_BETAS, "eps": _published(1e-4)}
        | {"hessian_power": _published(1.0), "average": _published(True), "seed": _ours(0)},
        create_graph=True,
    ),
    # The range of lr is GENIE's, whose rule without mask and gate this is.
    OptimizerRow(
        "msvag",
        MSVAG,
        "Balles, Hennig, Dissecting Adam: The Sign, Magnitude and Variance of Stochastic Gradients, ICML, 2018",
        {"lr": _ours(0.015, _GENIE_LR), "weight_decay": _DECAY, "beta": _ours(0.9, Uniform(0.9, 0.999))},
    ),
    # GENIE's authors ran SAM around SGD with momentum 0.9: base='sgd'.
    OptimizerRow(
        "sam",
        _around_base(SAM),
        "Foret et al., Sharpness-Aware Minimization for Efficiently Improving Generalization, ICLR, 2021",
        {**_WITH_BASE, "rho": _published(0.05, _RADII)},
        passes=2,
    ),
    # The ranges span the paper's settings for ResNets; that they are searched uniformly is chosen here.
    OptimizerRow(
        "gam",
        _around_base(GAM),
        "Zhang et al., Gradient Norm Aware Minimization Seeks First-Order Flatness and Improves "
        "Generalization, CVPR, 2023",
        {**_WITH_BASE, "rho": _published(0.2), "rho_prime": _ours(0.02, Uniform(0.02, 0.03))}
        | {"beta0": _ours(0.1, Uniform(0.1, 0.5)), "beta1": _ours(0.1, Uniform(0.1, 0.6))}
        | {"gamma": _ours(0.03, Uniform(0.03, 0.05))},
        passes=4,
    ),
    # Derived from the published objective; there is no public code.
    OptimizerRow(
        "fad",
        _around_base(FAD),
        "Zhang et al., Flatness-Aware Minimization for Domain Generalization, ICCV, 2023",
        {**_WITH_BASE, "rho": _ours(0.05, _RADII)}
        | {"alpha": _ours(0.5, Uniform(0.0, 1.0)), "beta": _ours(0.1, LogUniform(-2, 0))},
        passes=4,
    ),
    # alpha is drawn from the values that the paper uses; the public code's search, 0.01 to 0.1, holds none of
    # them, and its runs keep rho at 0.05.
    OptimizerRow(
        "sagm",
        _around_base(SAGM),
        "Wang et al., Sharpness-Aware Gradient Matching for Domain Generalization, CVPR, 2023",
        {**_WITH_BASE, "rho": _published(0.05, _RADII), "alpha": _published(0.001, Choice((0.0005, 0.001)))},
        passes=2,
    ),
    # In the authors' runs weight_decay, and a setting `momentum` that is not here, had no effect; here
    # weight_decay has one.
    OptimizerRow(
        "genie",
        GENIE,
        "Cho, Kim, Kim, One-Step Generalization Ratio Guided Optimization for Domain Generalization, "
        "ICML, 2025",
        {"lr": _published(0.015, _GENIE_LR), "weight_decay": _DECAY}
        | {"beta": _published(0.95, Uniform(0.9, 0.999)), "dropout": _published(0.4, Uniform(0.1, 0.8))}
        | {"noise": _published(True), "precondition": _published(True), "formulation": _published("released")}
        | {"noise_std": _ours(0.1), "decoupled_weight_decay": _published(False)}
        | {"seed": _ours(0), "scale_free": _ours(False)},
    ),
)

OPTIMIZERS = Registry("optimizer", ROWS, OptimizerRow, "genie_dg.optimizers")
"""By name, in the order of listings. ``OPTIMIZERS.register(OptimizerRow(...))`` adds one."""
