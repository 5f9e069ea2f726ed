"""Published hyper-parameters come out digit for digit, and every cell of the grid can be drawn."""

from __future__ import annotations

import doctest
import importlib
import json
from dataclasses import replace

import pytest
import torch
from numpy.random import RandomState

from genie_dg.algorithms.registry import ALGORITHMS
from genie_dg.facts import seed_hash
from genie_dg.optim.registry import OPTIMIZERS, build_optimizer
from genie_dg.protocols._profile import SMALL_IMAGES, Profile
from genie_dg.protocols.domainbed import DOMAINBED
from genie_dg.protocols.draws import Draw, draw
from genie_dg.protocols.genie_paper import GENIE_PAPER
from genie_dg.protocols.registry import PROTOCOLS
from genie_dg.registry import with_defaults
from genie_dg.search_space import Choice, Uniform, defaults

PROFILES = pytest.mark.parametrize("profile", [DOMAINBED, GENIE_PAPER], ids=lambda profile: profile.name)


def drawn(
    profile: Profile, algorithm: str, optimizer: str, hparams: int, trial: int, dataset: str = "PACS"
) -> Draw:
    return draw(profile, dataset, ALGORITHMS[algorithm], OPTIMIZERS[optimizer], hparams, trial)


@pytest.mark.parametrize("module", ["registry", "sweep", "tasks", "toml_file"])
def test_docstring_examples(module: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(f"genie_dg.protocols.{module}"))
    assert tried > 0
    assert failed == 0


def test_domainbed_check_values() -> None:
    found = drawn(DOMAINBED, "MMD", "adam", 1, 0)
    assert f"{found.optimizer_settings['lr']:.4e}" == "2.7029e-05"
    assert f"{found.optimizer_settings['weight_decay']:.4e}" == "4.4833e-04"
    assert (found.batch_size, found.dropout) == (39, 0.5)
    assert f"{found.algorithm_settings['mmd_gamma']:.5f}" == "1.42276"


def test_genie_paper_check_values() -> None:
    found = drawn(GENIE_PAPER, "ERM", "adam", 1, 0)
    assert f"{found.optimizer_settings['lr']:.4e}" == "5.0781e-05"
    assert f"{found.optimizer_settings['weight_decay']:.4e}" == "4.6410e-04"
    assert (found.batch_size, found.dropout) == (44, 0.1)


@pytest.mark.parametrize(
    ("trial", "hparams", "batch", "lr", "beta", "p", "dropout"),
    [
        (2, 9, 29, ".02427", ".9477", ".593", 0.0),
        (1, 12, 34, ".07002", ".9276", ".269", 0.1),
        (0, 16, 17, ".00253", ".9428", ".160", 0.0),
        (0, 18, 13, ".01280", ".9264", ".247", 0.1),
    ],
    ids=["art", "cartoon", "photo", "sketch"],
)
def test_the_four_tuned_runs_of_the_paper(
    trial: int, hparams: int, batch: int, lr: str, beta: str, p: str, dropout: float
) -> None:
    found = drawn(GENIE_PAPER, "ERM", "genie", hparams, trial)
    assert (found.batch_size, found.dropout) == (batch, dropout)
    assert f"{found.optimizer_settings['lr']:.5f}" == f"0{lr}"
    assert f"{found.optimizer_settings['beta']:.4f}" == f"0{beta}"
    assert f"{found.optimizer_settings['dropout']:.3f}" == f"0{p}"
    assert found.optimizer_settings.keys() == {"lr", "beta", "dropout"}  # weight decay had no effect there


@PROFILES
@pytest.mark.parametrize("trial", [0, 2])
def test_seed_0_gives_the_defaults(profile: Profile, trial: int) -> None:
    found = drawn(profile, "DANN", "adam", 0, trial)
    assert (found.batch_size, found.dropout) == (32, 0.0)
    assert found.optimizer_settings == {"lr": 5e-5, "weight_decay": 0.0}
    assert found.algorithm_settings == defaults(ALGORITHMS["DANN"].space)
    assert drawn(profile, "ERM", "sam", 0, trial).optimizer_settings == {"weight_decay": 0.0, "rho": 0.05}
    genie = drawn(profile, "ERM", "genie", 0, trial).optimizer_settings
    assert {key: genie[key] for key in ("lr", "beta", "dropout")} == {"lr": 0.015, "beta": 0.95, "dropout": 0.4}
    assert genie.get("weight_decay", 0.0) == 0.0


def named(hparams: int, trial: int, name: str) -> RandomState:
    return RandomState(seed_hash(seed_hash(hparams, trial), name))


def test_by_name_adversaries_have_their_own_names() -> None:
    found = drawn(DOMAINBED, "CDANN", "adam", 3, 1)
    assert found.optimizer_settings == {
        "lr": 10 ** named(3, 1, "lr_g").uniform(-5, -3.5),
        "weight_decay": 10 ** named(3, 1, "weight_decay_g").uniform(-6, -2),
    }
    assert found.algorithm_settings == {
        "lambda_": 10 ** named(3, 1, "lambda").uniform(-2, 2),
        "weight_decay_d": 10 ** named(3, 1, "weight_decay_d").uniform(-6, -2),
        "d_steps_per_g_step": int(2 ** named(3, 1, "d_steps_per_g_step").uniform(0, 3)),
        "grad_penalty": 10 ** named(3, 1, "grad_penalty").uniform(-2, 1),
        "beta1": named(3, 1, "beta1").choice([0.0, 0.5]),
        "mlp_width": int(2 ** named(3, 1, "mlp_width").uniform(6, 10)),
        "mlp_depth": named(3, 1, "mlp_depth").choice([3, 4, 5]),
        "mlp_dropout": named(3, 1, "mlp_dropout").choice([0.0, 0.1, 0.5]),
        "lr_d": 10 ** named(3, 1, "lr_d").uniform(-5, -3.5),
    }


def test_by_name_optimizers_have_published_names_where_they_search_as_published() -> None:
    adam = drawn(DOMAINBED, "ERM", "adam", 4, 2).optimizer_settings
    assert drawn(DOMAINBED, "ERM", "adamw", 4, 2).optimizer_settings == adam
    sam = drawn(DOMAINBED, "ERM", "sam", 4, 2).optimizer_settings
    assert sam == {**adam, "rho": named(4, 2, "sam/rho").choice([0.01, 0.02, 0.05, 0.1])}
    genie = drawn(DOMAINBED, "ERM", "genie", 4, 2).optimizer_settings
    assert genie == {
        "lr": 10 ** named(4, 2, "genie/lr").uniform(-3, -1),
        "weight_decay": adam["weight_decay"],
        "beta": named(4, 2, "genie/beta").uniform(0.9, 0.999),
        "dropout": named(4, 2, "genie/dropout").uniform(0.1, 0.8),
    }


def test_in_order_adversaries() -> None:
    found = drawn(GENIE_PAPER, "DANN", "adam", 5, 1)
    one = RandomState(seed_hash(5, 1))
    assert found.dropout == one.choice([0.0, 0.1, 0.5])
    one.uniform(-5, -3.5)  # lr, unused
    assert found.batch_size == int(2 ** one.uniform(3, 5.5))
    one.uniform(-6, -2)  # weight decay, unused
    ours, theirs = found.optimizer_settings, found.algorithm_settings
    assert ours["lr"] == 10 ** one.uniform(-5, -3.5)
    assert theirs["lr_d"] == 10 ** one.uniform(-5, -3.5)
    assert ours["weight_decay"] == 10 ** one.uniform(-6, -2)
    assert theirs["lambda_"] == 10 ** one.uniform(-2, 2)
    assert theirs["weight_decay_d"] == 10 ** one.uniform(-6, -2)
    assert theirs["d_steps_per_g_step"] == int(2 ** one.uniform(0, 3))
    assert theirs["grad_penalty"] == 10 ** one.uniform(-2, 1)
    assert theirs["beta1"] == one.choice([0.0, 0.5])
    assert theirs["mlp_width"] == int(2 ** one.uniform(6, 10))
    assert theirs["mlp_depth"] == one.choice([3, 4, 5])
    assert theirs["mlp_dropout"] == one.choice([0.0, 0.1, 0.5])


def after_shared(hparams: int, trial: int) -> RandomState:
    one = RandomState(seed_hash(hparams, trial))
    one.choice([0.0, 0.1, 0.5])
    one.uniform(size=3)
    return one


def test_in_order_differs_from_today_where_the_code_of_2020_did() -> None:
    assert drawn(GENIE_PAPER, "Mixup", "adam", 3, 0).algorithm_settings == {"mixup_alpha": 0.1}
    assert drawn(GENIE_PAPER, "MLDG", "adam", 3, 0).algorithm_settings.keys() == {"mldg_beta"}
    assert drawn(DOMAINBED, "Mixup", "adam", 3, 0).algorithm_settings["mixup_alpha"] != 0.1
    assert drawn(DOMAINBED, "MLDG", "adam", 3, 0).algorithm_settings.keys() == {"mldg_beta", "n_meta_test"}
    one = after_shared(3, 0)
    one.uniform()  # Mixup's value is always 0.1, and yet a draw
    rho = drawn(GENIE_PAPER, "Mixup", "sam", 3, 0).optimizer_settings["rho"]
    assert rho == one.choice([0.01, 0.02, 0.05, 0.1])


@PROFILES
def test_batch_sizes_of_domainnet_and_arm(profile: Profile) -> None:
    seeds = range(1, 60)
    usual = [drawn(profile, "ERM", "adam", k, 0).batch_size for k in seeds]
    large = [drawn(profile, "ERM", "adam", k, 0, "DomainNet").batch_size for k in seeds]
    assert 32 < max(usual) <= 45
    assert max(large) < 32
    arm = [drawn(profile, "ARM", "adam", k, 0) for k in range(4)]
    erm = [drawn(profile, "ERM", "adam", k, 0) for k in range(4)]
    assert [found.batch_size for found in arm] == [8] * 4
    assert [found.optimizer_settings for found in arm] == [found.optimizer_settings for found in erm]
    assert drawn(profile, "ARM", "adam", 0, 0, "RotatedMNIST").batch_size == 64


@PROFILES
@pytest.mark.parametrize("dataset", SMALL_IMAGES)
def test_small_images_have_rows_of_their_own(profile: Profile, dataset: str) -> None:
    found = drawn(profile, "DANN", "adam", 0, 0, dataset)
    assert (found.batch_size, found.optimizer_settings) == (64, {"lr": 1e-3, "weight_decay": 0.0})
    assert found.algorithm_settings["lr_d"] == 1e-3
    assert drawn(profile, "ERM", "sam", 0, 0, dataset).optimizer_settings["lr"] == 1e-3
    assert drawn(profile, "ERM", "genie", 0, 0, dataset).optimizer_settings["lr"] == 0.015
    many = [drawn(profile, "DANN", "adam", k, 0, dataset) for k in range(1, 40)]
    assert {found.optimizer_settings["weight_decay"] for found in many} == {0.0}
    assert max(found.batch_size for found in many) > 64
    for rates in ([d.optimizer_settings["lr"] for d in many], [d.algorithm_settings["lr_d"] for d in many]):
        assert 10**-4.5 <= min(rates) < 1e-4
        assert 10**-3.5 < max(rates) <= 10**-2.5
    if profile.draws == "in-order":
        one = RandomState(seed_hash(2, 0))
        one.choice([0.0, 0.1, 0.5])
        one.uniform(size=2)  # weight decay is no draw here
        assert drawn(profile, "MMD", "adam", 2, 0, dataset).algorithm_settings == {
            "mmd_gamma": 10 ** one.uniform(-1, 1)
        }


@PROFILES
@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_every_cell_can_be_drawn_and_its_settings_are_accepted(profile: Profile, optimizer: str) -> None:
    weights = [torch.nn.Parameter(torch.zeros(3))]
    for algorithm, row in ALGORITHMS.items():
        for hparams in (0, 1, 2):
            found = drawn(profile, algorithm, optimizer, hparams, 1)
            assert found == drawn(profile, algorithm, optimizer, hparams, 1)
            with_defaults(row.name, defaults(row.space), found.algorithm_settings)
            searched = {key for key, setting in row.space.items() if setting.rule is not None}
            assert found.algorithm_settings.keys() <= searched
            build_optimizer(optimizer, weights, **found.optimizer_settings)
            assert "seed" not in found.optimizer_settings  # the noise of a run has a stream of its own
            text = json.dumps([found.batch_size, found.dropout, dict(found.algorithm_settings)])
            assert json.loads(text) == [found.batch_size, found.dropout, dict(found.algorithm_settings)]


def test_rules_and_defaults_of_a_protocol_win() -> None:
    profile = Profile(
        "mine",
        "",
        {"default": 1},
        {"default": 1},
        "none",
        "by-name",
        "last",
        search={
            "adam.lr": Uniform(1, 2),
            "IRM.irm_lambda": None,
            "dropout": Choice((0.3,)),
            "batch_size": None,
        },
        defaults={"adam.lr": 1.5, "adam.eps": 1e-6, "batch_size": 7, "genie.weight_decay": 0.1, "lr": 0.25},
    )
    first, second = drawn(profile, "IRM", "adam", 0, 0), drawn(profile, "IRM", "adam", 1, 0)
    assert first.optimizer_settings == {"lr": 1.5, "weight_decay": 0.0, "eps": 1e-6}
    assert second.optimizer_settings["lr"] == named(1, 0, "adam/lr").uniform(1, 2)
    assert second.optimizer_settings["eps"] == 1e-6
    assert second.algorithm_settings.keys() == {"irm_penalty_anneal_iters"}
    assert (first.dropout, second.dropout) == (0.0, 0.3)
    assert (first.batch_size, second.batch_size) == (7, 7)
    assert drawn(profile, "ARM", "adam", 1, 0).batch_size == 7
    assert drawn(profile, "ERM", "genie", 0, 0).optimizer_settings["weight_decay"] == 0.1
    assert drawn(profile, "ERM", "sam", 0, 0).optimizer_settings["lr"] == 0.25


def test_facts_of_the_two_profiles() -> None:
    assert list(PROTOCOLS) == ["domainbed", "domainbed-2024", "genie-paper"]
    bed, paper = PROTOCOLS["DomainBed"], PROTOCOLS["genie-paper"]
    assert [bed.steps_of(name) for name in ("PACS", "DomainNet")] == [5001, 5001]
    assert [paper.steps_of(name) for name in ("PACS", "DomainNet")] == [5001, 15001]
    sets = ("VLCS", "PACS", "OfficeHome", "TerraIncognita", "DomainNet", "RotatedMNIST", "ColoredMNIST")
    assert [bed.checkpoint_every_of(name) for name in sets] == [300] * 4 + [1000, 100, 100]
    assert [paper.checkpoint_every_of(name) for name in sets] == [200] * 4 + [1000, 100, 100]
    assert (bed.eval_augment, bed.draws, bed.oracle) == ("train", "by-name", "last")
    assert (paper.eval_augment, paper.draws, paper.oracle) == ("train-in", "in-order", "best")


def test_the_generation_of_2024_has_another_network_and_nothing_else() -> None:
    bed, new = PROTOCOLS["domainbed"], PROTOCOLS["domainbed-2024"]
    assert new.backbone_of("PACS") == ("timm/resnet50.ram_in1k", True)
    assert new.backbone_of("RotatedMNIST") == ("cnn", False)
    assert new.freeze_statistics is False
    same = {"backbone": bed.backbone, "freeze_statistics": True, "name": bed.name, "summary": bed.summary}
    assert replace(new, **same) == bed
