"""DomainBed's words in ours: its data sets, arguments, hyper-parameters and records."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from genie_dg.runs.record import RunConfig

from .schema import ResultsError

DOMAINS: Mapping[str, tuple[str, ...]] = {
    "PACS": ("art_painting", "cartoon", "photo", "sketch"),
    "VLCS": ("Caltech101", "LabelMe", "SUN09", "VOC2007"),
    "OfficeHome": ("Art", "Clipart", "Product", "Real World"),
    "TerraIncognita": ("location_100", "location_38", "location_43", "location_46"),
    "DomainNet": ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
    "RotatedMNIST": ("0", "15", "30", "45", "60", "75"),
    "ColoredMNIST": ("+90%", "+80%", "-90%"),
}
"""The domains of DomainBed's data sets, in its order; those of other sets are numbered."""

SMALL = ("RotatedMNIST", "ColoredMNIST", "Debug28")
"""Data sets of small images: DomainBed's own network, 28 pixels, no augmentation."""

CHECKPOINTS: Mapping[str, int] = {"DomainNet": 1000, **dict.fromkeys(SMALL, 100)}
"""How often DomainBed evaluates when it is not told; every 300 steps for data sets that are not here."""

_DISCRIMINATOR = ("weight_decay_d", "d_steps_per_g_step", "grad_penalty", "beta1", "lr_d")
_ADVERSARIAL = {n: n for n in (*_DISCRIMINATOR, "mlp_width", "mlp_depth", "mlp_dropout")} | {
    "lambda": "lambda_"
}

SETTINGS: Mapping[str, Mapping[str, str]] = {
    "IRM": {n: n for n in ("irm_lambda", "irm_penalty_anneal_iters")},
    "VREx": {n: n for n in ("vrex_lambda", "vrex_penalty_anneal_iters")},
    "GroupDRO": {"groupdro_eta": "groupdro_eta"},
    "Mixup": {"mixup_alpha": "mixup_alpha"},
    "MLDG": {n: n for n in ("mldg_beta", "n_meta_test")},
    "MMD": {"mmd_gamma": "mmd_gamma"},
    "CORAL": {"mmd_gamma": "mmd_gamma"},
    "DANN": _ADVERSARIAL,
    "CDANN": _ADVERSARIAL,
    "MTL": {"mtl_ema": "mtl_ema"},
    "SagNet": {"sag_w_adv": "sag_w_adv"},
    "RSC": {n: n for n in ("rsc_f_drop_factor", "rsc_b_drop_factor")},
    "Fish": {"meta_lr": "meta_lr"},
    "Fishr": {"lambda": "lambda_", "penalty_anneal_iters": "penalty_anneal_iters", "ema": "ema"},
    "ANDMask": {"tau": "tau"},
    "SANDMask": {"tau": "tau", "k": "k"},
    "IGA": {"penalty": "penalty"},
}
"""By algorithm: DomainBed's name of a hyper-parameter and ours."""


def config_of(args: Mapping[str, Any], hparams: Mapping[str, Any]) -> RunConfig:
    """DomainBed's arguments as a configuration of ours.

    DomainBed trains with Adam. A run that held back another share than 20 %, or had samples of the test domain
    for adaptation, follows other rules; its protocol is called ``domainbed-other``.
    """
    small, algorithm = args["dataset"] in SMALL, str(args["algorithm"])
    usual = (args.get("holdout_fraction", 0.2), args.get("uda_holdout_fraction", 0)) == (0.2, 0)
    usual = usual and args.get("task", "domain_generalization") == "domain_generalization"
    generator = "_g" if "lr_g" in hparams and algorithm in ("DANN", "CDANN") else ""
    names = {"lr": f"lr{generator}", "weight_decay": f"weight_decay{generator}"}
    return RunConfig(
        dataset=str(args["dataset"]),
        test_domains=tuple(int(k) for k in args["test_envs"]),
        algorithm=algorithm,
        optimizer="adam",
        backbone="cnn" if small else "resnet18" if hparams.get("resnet18") else "resnet50",
        algorithm_settings=_renamed(hparams, SETTINGS.get(algorithm, {})),
        optimizer_settings={ours: hparams[name] for ours, name in names.items() if name in hparams},
        batch_size=int(hparams.get("batch_size", 64 if small else 32)),
        dropout=float(hparams.get("resnet_dropout", 0.0)),
        pretrained=not small,
        image_size=28 if small else 224,
        augment=not small and bool(hparams.get("data_augmentation", True)),
        eval_augment="none" if small else "train",
        steps=int(args.get("steps") or 5001),
        checkpoint_every=int(args.get("checkpoint_freq") or CHECKPOINTS.get(args["dataset"], 300)),
        trial_seed=int(args["trial_seed"]),
        hparams_seed=int(args["hparams_seed"]),
        protocol="domainbed" if usual else "domainbed-other",
    )


def record_of(line: Mapping[str, Any]) -> dict[str, Any]:
    """One line of DomainBed as a record of ours; it measured no validation loss, and a loss of NaN is none."""
    return {
        "step": line["step"],
        "epoch": clean(line.get("epoch")),
        "loss": clean(line.get("loss")),
        "validation_loss": None,
        "in_acc": accuracies(line, "in"),
        "out_acc": accuracies(line, "out"),
    }


def checked(line: Any) -> dict[str, Any]:
    if not isinstance(line, dict) or not all(isinstance(line.get(key), dict) for key in ("args", "hparams")):
        raise ResultsError("it has no args and hparams")
    if isinstance(line.get("step"), bool) or not isinstance(line.get("step"), int):
        raise ResultsError("its step is no whole number")
    if not accuracies(line, "in"):
        raise ResultsError("it has no env0_in_acc")
    return line


def accuracies(line: Mapping[str, Any], part: str) -> list[Any]:
    found: list[Any] = []
    while f"env{len(found)}_{part}_acc" in line:
        found.append(line[f"env{len(found)}_{part}_acc"])
    return found


def _renamed(hparams: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    return {ours: hparams[theirs] for theirs, ours in names.items() if theirs in hparams}


def clean(value: Any) -> Any:
    """The same without NaN and infinity, which are no JSON: numbers become null, inside of others text."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {
            key: str(x) if isinstance(x, float) and not math.isfinite(x) else clean(x)
            for key, x in value.items()
        }
    return [clean(x) for x in value] if isinstance(value, (list, tuple)) else value
