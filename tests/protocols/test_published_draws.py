"""The draws of the algorithms that joined later, against DomainBed's rules written out one by one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from numpy.random import RandomState

from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.facts import seed_hash
from genie_dg.optim.registry import OPTIMIZERS
from genie_dg.protocols.domainbed import DOMAINBED
from genie_dg.protocols.draws import draw
from genie_dg.search_space import defaults

SETS = ("PACS", "VLCS", "OfficeHome", "TerraIncognita", "DomainNet", "RotatedMNIST", "ColoredMNIST")
SMALL = ("RotatedMNIST", "ColoredMNIST")
Rule = tuple[Any, Callable[[RandomState], Any]]


def power(low: float, high: float) -> Callable[[RandomState], float]:
    return lambda r: 10 ** r.uniform(low, high)


def whole(low: float, high: float) -> Callable[[RandomState], int]:
    return lambda r: int(10 ** r.uniform(low, high))


def always(value: Any) -> Rule:
    return value, lambda r: value


def rdm(dataset: str) -> dict[str, Rule]:
    lambdas: dict[str, Rule] = {
        "DomainNet": (0.5, lambda r: r.uniform(0.1, 1.0)),
        "PACS": (5.0, lambda r: r.uniform(1.0, 10.0)),
        "TerraIncognita": (5.0, lambda r: r.uniform(1.0, 10.0)),
    }
    large = dataset == "DomainNet"
    steps: Rule = (1500, lambda r: int(r.uniform(800, 2700)))
    variance: Rule = (0.004, lambda r: r.uniform(0.001, 0.007))
    return {
        "rdm_lambda": lambdas.get(dataset, (5.0, lambda r: r.uniform(0.1, 10.0))),
        "rdm_penalty_anneal_iters": (2400, lambda r: int(r.uniform(1500, 3000))) if large else steps,
        "variance_weight": always(0.0) if large or dataset in ("TerraIncognita", "OfficeHome") else variance,
        "rdm_lr": (1.5e-5, lambda r: r.uniform(8e-6, 2e-5)),
    }


def urm(dataset: str) -> dict[str, Rule]:
    small = dataset in SMALL
    return {
        "urm_adv_lambda": (0.1, lambda r: r.uniform(0, 0.2)),
        "urm_discriminator_label_smoothing": always(0),
        "urm_discriminator_optimizer": always("adam"),
        "urm_discriminator_hidden_layers": (1, lambda r: int(r.choice([1, 2, 3]))),
        "urm_generator_output": ("tanh", lambda r: str(r.choice(["tanh", "relu"]))),
        "urm_discriminator_lr": (1e-3, power(-5.5, -3.5)) if small else (5e-5, power(-6, -4.5)),
        "weight_decay": always(0.0) if small else (0.0, power(-6, -2)),
    }


CAD: dict[str, Rule] = {
    "lmbda": (0.1, lambda r: r.choice([1e-4, 1e-3, 1e-2, 1e-1, 1, 1e1, 1e2])),
    "temperature": (0.1, lambda r: r.choice([0.05, 0.1])),
    "is_normalized": always(False),
    "is_project": always(False),
    "is_flipped": always(True),
}
BOTTLENECK: dict[str, Rule] = {
    "ib_lambda": (100.0, power(-1, 5)),
    "ib_penalty_anneal_iters": (500, whole(0, 4)),
}
INVARIANT: dict[str, Rule] = {
    "irm_lambda": (100.0, power(-1, 5)),
    "irm_penalty_anneal_iters": (500, whole(0, 4)),
}
ADRMX: dict[str, Rule] = {
    "cnt_lambda": always(1.0),
    "dclf_lambda": always(1.0),
    "disc_lambda": always(0.75),
    "rmxd_lambda": always(1.0),
    "d_steps_per_g_step": always(2),
    "beta1": always(0.5),
    "mlp_width": always(256),
    "mlp_depth": (9, lambda r: int(r.choice([8, 9, 10]))),
}
PUBLISHED: dict[str, Callable[[str], dict[str, Rule]]] = {
    "SD": lambda _: {"sd_reg": (0.1, power(-5, -1))},
    "SelfReg": lambda _: {},
    "TRM": lambda _: {
        "cos_lambda": (1e-4, power(-5, 0)),
        "iters": (200, whole(0, 4)),
        "groupdro_eta": (1e-2, power(-3, -1)),
    },
    "IB-ERM": lambda _: BOTTLENECK,
    "IB-IRM": lambda _: {**INVARIANT, **BOTTLENECK},
    "CAD": lambda _: CAD,
    "CondCAD": lambda _: CAD,
    "Transfer": lambda _: {
        "t_lambda": (1.0, power(-2, 1)),
        "delta": (2.0, lambda r: r.uniform(0.1, 3.0)),
        "d_steps_per_g": (10, lambda r: int(r.choice([1, 2, 5]))),
        "lr_d": (1e-3, power(-4.5, -2.5)),
    },
    "CausIRL-CORAL": lambda _: {"mmd_gamma": (1.0, power(-1, 1))},
    "CausIRL-MMD": lambda _: {"mmd_gamma": (1.0, power(-1, 1))},
    "EQRM": lambda _: {
        "eqrm_quantile": (0.75, lambda r: r.uniform(0.5, 0.99)),
        "eqrm_burnin_iters": (2500, power(2.5, 3.5)),
        "eqrm_lr": (1e-6, power(-7, -5)),
    },
    "RDM": rdm,
    "ADRMX": lambda dataset: {**ADRMX, "lr": shared("ADRMX", dataset)["lr"]},
    "URM": urm,
    "ERM++": lambda _: {"linear_lr": (5e-5, power(-5, -3.5))},
}


def shared(algorithm: str, dataset: str) -> dict[str, Rule]:
    """What every algorithm has; dropout has no effect on small images."""
    small = dataset in SMALL
    rules: dict[str, Rule] = {
        "lr": (1e-3, power(-4.5, -2.5)) if small else (5e-5, power(-5, -3.5)),
        "weight_decay": always(0.0) if small else (0.0, power(-6, -2)),
        "batch_size": (32, lambda r: int(2 ** r.uniform(3, 5.5))),
    }
    if algorithm == "ADRMX" and small:
        rules["lr"] = (3e-3, lambda r: r.choice([5e-4, 1e-3, 2e-3, 3e-3]))
    elif algorithm == "ADRMX":
        rules["lr"] = (3e-5, lambda r: r.choice([2e-5, 3e-5, 4e-5, 5e-5]))
    if small:
        rules["batch_size"] = (64, lambda r: int(2 ** r.uniform(3, 9)))
    elif algorithm == "RDM" and dataset in ("DomainNet", "TerraIncognita"):
        rules["batch_size"] = (40, lambda r: int(r.uniform(30, 60)))
    elif algorithm == "RDM":
        rules["batch_size"] = (88, lambda r: int(r.uniform(70, 100)))
    elif dataset == "DomainNet":
        rules["batch_size"] = (32, lambda r: int(2 ** r.uniform(3, 5)))
    return rules


@pytest.mark.parametrize("dataset", SETS)
@pytest.mark.parametrize("algorithm", PUBLISHED)
def test_draws_are_the_published_ones(algorithm: str, dataset: str) -> None:
    rules = {**shared(algorithm, dataset), **PUBLISHED[algorithm](dataset)}
    dropout: Rule = (0.0, lambda r: r.choice([0.0, 0.1, 0.5]))
    for hparams_seed in range(20):
        for trial in (0, 2):
            seed = seed_hash(hparams_seed, trial)

            def value(name: str, rule: Rule, seed: int = seed, first: bool = hparams_seed == 0) -> Any:
                return rule[0] if first else rule[1](RandomState(seed_hash(seed, name)))

            found = draw(DOMAINBED, dataset, ALGORITHMS[algorithm], OPTIMIZERS["adam"], hparams_seed, trial)
            expected = {name: value(name, rule) for name, rule in rules.items()}
            settings = {**defaults(ALGORITHMS[algorithm].space), **found.algorithm_settings}  # not searched
            own = {key.rstrip("_"): item for key, item in settings.items()}
            assert {key: own[key] for key in PUBLISHED[algorithm](dataset)} == {
                key: expected[key] for key in PUBLISHED[algorithm](dataset)
            }
            for key in ("lr", "weight_decay"):
                assert found.optimizer_settings[key] == expected[key], key
            assert found.batch_size == expected["batch_size"]
            assert found.dropout == (0.0 if dataset in SMALL else value("resnet_dropout", dropout))


@pytest.mark.parametrize("algorithm", PUBLISHED)
def test_no_setting_is_searched_beyond_the_published_ones(algorithm: str) -> None:
    searched = {key.rstrip("_") for key, item in ALGORITHMS[algorithm].space.items() if item.rule is not None}
    assert searched <= set(PUBLISHED[algorithm]("PACS"))
