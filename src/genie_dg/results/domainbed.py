"""DomainBed's result folders as run folders of ours, so that both fill the same tables.

A folder of DomainBed holds ``results.jsonl``, one line for each checkpoint with ``args``, ``hparams``,
``step``, ``epoch``, ``loss``, ``env<i>_in_acc``, ``env<i>_out_acc``, and at the end ``done``. It becomes a
folder ``<run_id>`` with ``config.json``, ``meta.json``, ``records.jsonl`` and ``done``. Hyper-parameters that
our configuration has a place for go there; ``meta.json`` keeps all arguments and hyper-parameters as they were.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import msgspec

from genie_dg.check import InputError, folder
from genie_dg.files import json_line, read_lines, read_whole, write_whole
from genie_dg.runs.config import RunConfig, canonical
from genie_dg.runs.folder import CONFIG, DONE, META, RECORDS
from genie_dg.runs.record import Record, record_from
from genie_dg.runs.seal import digest, seal_text

from .frame import ResultsError

DOMAINBED_DOMAINS: Mapping[str, tuple[str, ...]] = {
    "PACS": ("art_painting", "cartoon", "photo", "sketch"),
    "VLCS": ("Caltech101", "LabelMe", "SUN09", "VOC2007"),
    "OfficeHome": ("Art", "Clipart", "Product", "Real World"),
    "TerraIncognita": ("location_100", "location_38", "location_43", "location_46"),
    "DomainNet": ("clipart", "infograph", "painting", "quickdraw", "real", "sketch"),
    "RotatedMNIST": ("0", "15", "30", "45", "60", "75"),
    "ColoredMNIST": ("+90%", "+80%", "-90%"),
}
"""The domains of DomainBed's data sets, in its order; those of other sets are numbered."""

_FILES = (CONFIG, META, RECORDS, DONE)
_AUGMIX = "resnet50_augmix"
"""The setting that DomainBed has since July 2024; runs without it are of its first generation."""

_SMALL = ("RotatedMNIST", "ColoredMNIST", "Debug28")
"""Data sets of small images: DomainBed's own network, 28 pixels, no augmentation."""

_CHECKPOINTS: Mapping[str, int] = {"DomainNet": 1000, **dict.fromkeys(_SMALL, 100)}
"""How often DomainBed evaluates when it is not told; every 300 steps for data sets that are not here."""

_ADVERSARIAL = (
    "lambda weight_decay_d d_steps_per_g_step grad_penalty beta1 lr_d mlp_width mlp_depth mlp_dropout"
)
ALGORITHM_SETTINGS: Mapping[str, tuple[str, ...]] = {
    algorithm: tuple(listed.split())
    for algorithm, listed in {
        "IRM": "irm_lambda irm_penalty_anneal_iters",
        "VREx": "vrex_lambda vrex_penalty_anneal_iters",
        "GroupDRO": "groupdro_eta",
        "Mixup": "mixup_alpha",
        "MLDG": "mldg_beta n_meta_test",
        "MMD": "mmd_gamma",
        "CORAL": "mmd_gamma",
        "DANN": _ADVERSARIAL,
        "CDANN": _ADVERSARIAL,
        "MTL": "mtl_ema",
        "SagNet": "sag_w_adv",
        "RSC": "rsc_f_drop_factor rsc_b_drop_factor",
        "Fish": "meta_lr",
        "Fishr": "lambda penalty_anneal_iters ema",
        "ANDMask": "tau",
        "SANDMask": "tau k",
        "IGA": "penalty",
        "SD": "sd_reg",
        "TRM": "cos_lambda iters groupdro_eta",
        "IB-ERM": "ib_lambda ib_penalty_anneal_iters",
        "IB-IRM": "irm_lambda irm_penalty_anneal_iters ib_lambda ib_penalty_anneal_iters",
        "CAD": "lmbda temperature is_normalized is_project is_flipped",
        "CondCAD": "lmbda temperature is_normalized is_project is_flipped",
        "Transfer": "t_lambda delta d_steps_per_g lr_d",
        "CausIRL-CORAL": "mmd_gamma",
        "CausIRL-MMD": "mmd_gamma",
        "EQRM": "eqrm_quantile eqrm_burnin_iters eqrm_lr",
        "RDM": "rdm_lambda rdm_penalty_anneal_iters variance_weight rdm_lr",
        "ADRMX": "cnt_lambda dclf_lambda disc_lambda rmxd_lambda d_steps_per_g_step beta1 mlp_width mlp_depth",
        "URM": "urm_adv_lambda urm_discriminator_label_smoothing urm_discriminator_optimizer "
        "urm_discriminator_hidden_layers urm_generator_output urm_discriminator_lr",
        "ERM++": "linear_lr linear_steps",
    }.items()
}
"""By algorithm DomainBed's names of its hyper-parameters; ours are the same, but for ``lambda_``."""

_NAMES: Mapping[str, str] = {
    "ERMPlusPlus": "ERM++",
    **{name.replace("-", "_"): name for name in ("IB-ERM", "IB-IRM", "CausIRL-CORAL", "CausIRL-MMD")},
}
"""What algorithms are called here, where DomainBed's class has another name."""


@dataclass(frozen=True)
class Imported:
    """What an import did: folders written, folders that were there already, and a sentence for each problem."""

    written: int
    present: int
    problems: tuple[str, ...]


def import_domainbed(source: str | os.PathLike[str], out: str | os.PathLike[str]) -> Imported:
    """Import every folder at or below ``source`` that holds ``results.jsonl``.

    The same import again changes nothing, except that records of a run that has gone on since are added. A
    folder that holds anything else under the run's name is left as it is, with a sentence about it.
    """
    folder(Path(source), "name one that holds DomainBed's result folders", ResultsError)
    problems: list[str] = []
    seen: dict[str, str] = {}
    written = present = 0
    for path, children, files in os.walk(source):
        children.sort()
        if "results.jsonl" not in files:
            continue
        converted = convert(path, DONE in files, problems)
        if converted is None:
            continue
        run_id, contents = converted
        if run_id in seen:
            problems.append(f"{path} and {seen[run_id]} are runs of one configuration; the second is left out.")
            continue
        seen[run_id] = path
        try:
            new = write_run(Path(out) / run_id, contents)
        except ResultsError as error:
            problems.append(str(error))
            continue
        written, present = written + new, present + (not new)
    if not seen and not problems:
        raise ResultsError(
            f"{os.fspath(source)} has no results.jsonl in it or below; name the folder that DomainBed wrote."
        )
    return Imported(written, present, tuple(problems))


def convert(path: str, done: bool, problems: list[str]) -> tuple[str, dict[str, bytes]] | None:
    """One folder of DomainBed: the run_id, and what our files of it hold; ``None`` when nothing can be read."""
    file = os.path.join(path, "results.jsonl")
    attempt = _last_attempt(file, problems)
    if not attempt:
        problems.append(f"{file} has no record; the folder is left out.")
        return None
    size = len(_accuracies(attempt[0], "in"))
    records = []
    for line in attempt:
        try:
            records.append(_record(line, size))
        except InputError as error:
            problems.append(f"Step {line['step']} of {file} is not a record ({error}); it is left out.")
    args, hparams = attempt[-1]["args"], attempt[-1]["hparams"]
    try:
        config = _config(args, hparams)
        text = canonical(config)
    except (ValueError, KeyError, TypeError, OverflowError) as error:
        problems.append(f"{file} is of no run that can be read ({error!r}); the folder is left out.")
        return None
    known = DOMAINBED_DOMAINS.get(config.dataset, ())
    meta = {
        "domains": list(known) if len(known) == size else [f"domain {k}" for k in range(size)],
        "imported_from": "DomainBed",
        **msgspec.json.decode(msgspec.json.encode({"args": args, "hparams": hparams})),  # no NaN, but null
    }
    texts = {
        CONFIG: text + "\n",
        META: json.dumps(meta, indent=1, sort_keys=True) + "\n",
        RECORDS: "".join(json_line(record.to_json()) for record in records),
    }
    contents = {name: data.encode("utf-8") for name, data in texts.items()}
    if done:
        contents[DONE] = seal_text({name: digest(data) for name, data in contents.items()})
    return config.run_id, contents


def _last_attempt(file: str, problems: list[str]) -> list[dict[str, Any]]:
    """The lines of the last attempt: DomainBed starts again at step 0 in the same file."""
    lines, unread = read_lines(file)
    usable = []
    for line in lines:
        has_texts = all(isinstance(line.get(key), dict) for key in ("args", "hparams"))
        if has_texts and type(line.get("step")) is int and "env0_in_acc" in line:
            usable.append(line)
        else:
            unread = [*unread, f"A line of {file} is not a record of DomainBed; it is left out."]
    start = max((k for k in range(1, len(usable)) if usable[k]["step"] <= usable[k - 1]["step"]), default=0)
    problems += unread
    if start:
        problems.append(f"{file} has {start} records of earlier attempts; those of the last one are kept.")
    return usable[start:]


def _accuracies(line: Mapping[str, Any], part: str) -> list[Any]:
    names = takewhile(line.__contains__, (f"env{k}_{part}_acc" for k in count()))
    return [line[name] for name in names]


def _record(line: Mapping[str, Any], domains: int) -> Record:
    """One line of DomainBed as a record of ours; it measured no validation loss, and a loss of NaN is none."""
    data = {name: line.get(name) for name in ("step", "epoch", "loss")}
    data = {name: None if isinstance(x, float) and not math.isfinite(x) else x for name, x in data.items()}
    parts = {f"{part}_acc": _accuracies(line, part) for part in ("in", "out")}
    return record_from({**data, "validation_loss": None, **parts}, domains)


def _config(args: Mapping[str, Any], hparams: Mapping[str, Any]) -> RunConfig:
    """DomainBed's arguments as a configuration of ours.

    DomainBed trains with Adam. A run that held back another share than 20 %, or had samples of the test domain
    for adaptation, follows other rules; its protocol is called ``domainbed-other``. One with the network of
    2024 is ``domainbed-2024``.
    """
    small, algorithm = args["dataset"] in _SMALL, str(args["algorithm"])
    algorithm, augmix = _NAMES.get(algorithm, algorithm), not small and bool(hparams.get(_AUGMIX))
    usual = (args.get("holdout_fraction", 0.2), args.get("uda_holdout_fraction", 0)) == (0.2, 0)
    usual = usual and args.get("task", "domain_generalization") == "domain_generalization"
    adversarial = ALGORITHM_SETTINGS.get(algorithm) == tuple(_ADVERSARIAL.split())
    generator = "_g" if "lr_g" in hparams and adversarial else ""
    stepping = {"lr": f"lr{generator}", "weight_decay": f"weight_decay{generator}"}
    resnet = "resnet18" if hparams.get("resnet18") else "resnet50"  # of which AugMix has the second alone
    settings = [name for name in ALGORITHM_SETTINGS.get(algorithm, ()) if name in hparams]
    if not args["test_envs"]:
        raise InputError("test_envs is empty")
    return RunConfig(
        dataset=str(args["dataset"]),
        test_domains=tuple(int(k) for k in args["test_envs"]),
        algorithm=algorithm,
        optimizer="adam",
        backbone="cnn" if small else "timm/resnet50.ram_in1k" if augmix else resnet,
        algorithm_settings={"lambda_" if name == "lambda" else name: hparams[name] for name in settings},
        optimizer_settings={ours: hparams[name] for ours, name in stepping.items() if name in hparams},
        batch_size=int(hparams.get("batch_size", 64 if small else 32)),
        dropout=float(hparams.get("resnet_dropout", 0.0)),
        pretrained=not small,
        freeze_statistics=bool(hparams.get("freeze_bn")) if augmix else None,
        image_size=28 if small else 224,
        augment=not small and bool(hparams.get("data_augmentation", True)),
        eval_augment="none" if small else "train",
        steps=int(args.get("steps") or 5001),
        checkpoint_every=int(args.get("checkpoint_freq") or _CHECKPOINTS.get(args["dataset"], 300)),
        trial_seed=int(args["trial_seed"]),
        hparams_seed=int(args["hparams_seed"]),
        protocol=("domainbed-2024" if augmix else "domainbed") if usual else "domainbed-other",
    )


def write_run(path: Path, contents: Mapping[str, bytes]) -> bool:
    """Write a run's folder; ``False`` when it is there already. Nothing else is ever overwritten.

    A folder may grow: records that begin with those that are there replace them.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        there = {name: read_whole(path / name) for name in _FILES if (path / name).exists()}
    except OSError as error:
        why = f"{error.filename} cannot be used ({error.strerror})"
        raise ResultsError(f"{why}; choose another --out.") from error
    known, records = there.get(RECORDS, b""), contents[RECORDS]
    grown = known == records or (DONE not in there and records.startswith(known))
    if not grown or any(there.get(name, contents[name]) != contents[name] for name in (CONFIG, META)):
        raise ResultsError(f"{path} holds another run; it is left as it is, so move it away first.")
    missing = {name: data for name, data in contents.items() if there.get(name) != data}
    if there.get(DONE) == b"":  # imported before runs were sealed, and the same in all else
        missing.pop(DONE, None)
    for name, data in missing.items():  # in this order: `done` comes last
        write_whole(path / name, data)
    return bool(missing)
