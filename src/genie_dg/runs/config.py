"""What a run is: its configuration and its identity.

Paths, devices, the number of workers and progress bars are not part of a configuration: the same science has
the same ``run_id`` wherever it runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from genie_dg.arguments import check_fields, infos, option
from genie_dg.check import InputError

PRECISIONS = ("float32", "bfloat16", "float16")
"""What the forward pass computes in; weights are float32 always."""

EVAL_AUGMENT = ("none", "train", "train-in")
"""Which parts of training domains are evaluated with the training augmentation."""

ORACLES = ("last", "best")
"""Which record test-domain validation may look at: the last one of a run, or the best one."""

SCHEDULES = ("cosine", "linear")
"""How the learning rate falls after the warm-up."""

CLASS_WEIGHTS = ("balanced",)
"""How classes are weighed in the loss."""

TASK = ("train", "lr-find")
FITTED = (*TASK, "fit")
"""The commands that have a field's flag."""

OPTIMIZER = "genie, for pictures in files with scale_free=true unless a network or a setting is given"
BACKBONE = "efficientnet_lite0 with ImageNet weights for pictures in files, mlp for tables, cnn for others"
SIZE = "what suits the pictures, on a CPU at most 96; 224 for train with --backbone"
"""Defaults that hang on the data, in words."""


def _training(default: Any, help: str, verbs: tuple[str, ...] = ("train",), **info: Any) -> Any:
    """A setting of training that is off unless asked for: `option` says what it takes."""
    return option(default, help, verbs, group="training settings", omitted=True, swept=True, **info)


@dataclass(frozen=True)
class RunConfig:
    """One training.

    Args:
        dataset: a name of the registry of data sets, or the name of the user's own folder.
        test_domains: indices of the domains that are not trained on; none for a model that is trained on all.
        algorithm, optimizer, backbone: names of their registries.
        algorithm_settings, optimizer_settings: hyper-parameters; what is not named has its default.
        batch_size: samples of each training domain in a step.
        dropout: before the head.
        pretrained: start from published weights.
        freeze_statistics: keep batch-norm statistics; ``None`` for "when pretrained".
        image_size: pictures are resized to this; samples in memory keep their size.
        augment: DomainBed's training augmentation, for pictures in files.
        eval_augment: which parts of training domains are evaluated with the training augmentation: ``"none"``,
            ``"train"`` (both, as DomainBed does) or ``"train-in"`` (the part that trains, as SWAD does).
        steps, checkpoint_every: length, and how often the run is evaluated and saved.
        swad: average weights densely over the flat part of the validation loss.
        precision: of the forward pass.
        data_digest: of the samples (`DomainSet.digest`), for data whose name does not say which they are.
        weights_digest: of the local file of weights, when there is one.
        trial_seed: fixes splits, initial weights and batches.
        hparams_seed: which draw of the search this is; 0 for the defaults.
        protocol: the name of the rules that made this configuration.
        oracle: which record test-domain validation looks at, ``"last"`` or ``"best"``; empty for the rule that
            the protocol's name stands for. See `oracle_rule`.
        fast: OpenCV augments pictures and the network gets them channels last: quicker, with other roundings.
        threads: of torch on the CPU; sums are split among them, so another number gives other last digits.
        average_of: nothing is trained; the weights are the mean of those of these runs (DiWA).
        schedule: how the learning rate falls to 0 over the run, ``"cosine"`` or ``"linear"``; empty for not.
        final_lr: the part of the learning rate that a schedule ends at.
        warmup: steps in which the learning rate rises to its value.
        clip: the largest norm of the gradient of a role's parameters; 0 for any.
        label_smoothing: the part of a target that is shared evenly among the classes.
        class_weights: ``"balanced"`` weighs each class by one over its frequency in what trains; empty for not.
        freeze: how many feature points of the network, from the images on, do not train.
        early_stop: the run ends when validation accuracy has not risen for so many records; 0 for never.
    """

    dataset: str
    test_domains: tuple[int, ...]
    algorithm: str = option("ERM", "see genie-dg list algorithms", FITTED)
    optimizer: str = option("genie", "see genie-dg list optimizers", TASK, shown=OPTIMIZER)
    backbone: str = option("cnn", "see genie-dg list backbones", FITTED, shown=BACKBONE, swept=True)
    algorithm_settings: Mapping[str, Any] = field(default_factory=dict)
    optimizer_settings: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = option(32, "of each domain", FITTED, low=1, high=2**31 - 1, swept=True)
    dropout: float = option(0.0, "before the head", TASK, high=1, below_high=True, swept=True)
    pretrained: bool = option(False, "start from published weights", TASK, swept=True)
    freeze_statistics: bool | None = option(None, swept=True)
    image_size: int = option(224, "pixels", FITTED, shown=SIZE, low=1, high=2**15, swept=True)
    augment: bool = option(True, "no augmentation of pictures", TASK, flag="no-augment", swept=True)
    eval_augment: str = option("none", choices=EVAL_AUGMENT, swept=True)
    steps: int = option(1000, "of the training", ("train", "fit"), low=1, swept=True)
    checkpoint_every: int = option(
        100, "steps between evaluations", ("train", "fit"), flag="every", low=1, swept=True
    )
    swad: bool = option(False, "average weights densely over the flat part (SWAD)", ("train",), swept=True)
    precision: str = option("float32", "of the forward pass", ("train",), choices=PRECISIONS, swept=True)
    data_digest: str = ""
    weights_digest: str = ""
    trial_seed: int = option(0, "seed of splits, weights, batches", FITTED, flag="trial", high=2**63 - 1)
    hparams_seed: int = option(0, high=2**63 - 1)
    protocol: str = "custom"
    oracle: str = option("", choices=ORACLES, omitted=True)
    average_of: tuple[str, ...] = option((), omitted=True)
    fast: bool = option(
        False,
        "augment pictures in files by torch, channels first: slower, as runs before version 0.2 were made",
        TASK,
        flag="exact",
        omitted=True,
    )
    threads: int = option(
        1, "of torch; another number, other last digits", TASK, low=1, high=2**15, omitted=True
    )
    schedule: str = _training("", "the learning rate falls to 0", choices=SCHEDULES)
    final_lr: float = _training(0.0, "the part of the rate that a schedule ends at", metavar="PART", high=1.0)
    warmup: int = _training(0, "first steps, in which the learning rate rises", metavar="STEPS")
    clip: float = _training(0.0, "largest norm of the gradient", metavar="NORM", high=1e9)
    label_smoothing: float = _training(
        0.0, "of each target, for all classes", TASK, metavar="PART", high=1, below_high=True
    )
    class_weights: str = _training("", "rare classes count as much as others", TASK, choices=CLASS_WEIGHTS)
    freeze: int = _training(0, "first feature points that do not train", TASK, metavar="POINTS")
    early_stop: int = _training(
        0, "stop when validation has not risen for so many evaluations", metavar="RECORDS"
    )

    def __post_init__(self) -> None:
        check_fields(self)
        for name, off in OMITTED.items():
            if isinstance(off, float):  # 1 and 1.0 are one run
                object.__setattr__(self, name, float(getattr(self, name)))
        if self.warmup >= self.steps:
            raise InputError(
                f"got warmup={self.warmup} for {self.steps} steps; expected fewer steps of warm-up than steps."
            )
        object.__setattr__(self, "test_domains", tuple(sorted(set(self.test_domains))))
        object.__setattr__(self, "average_of", tuple(sorted(self.average_of)))

    @property
    def run_id(self) -> str:
        """Sixteen hexadecimal digits that name this science.

        >>> RunConfig("digits", (1, 0)).run_id == RunConfig("digits", (0, 1)).run_id
        True
        >>> RunConfig("digits", (0,)).run_id == RunConfig("digits", (0,), dropout=0.5).run_id
        False
        """
        return hashlib.sha256(canonical(self).encode("utf-8")).hexdigest()[:16]


OMITTED: dict[str, Any] = {
    name: getattr(RunConfig, name) for name, info in infos(RunConfig).items() if info.omitted
}
"""Fields that came after the first runs were stored, with the value that stands for what these did. A field
with that value is left out of the text of a configuration, so runs from before keep their identity."""


def canonical(config: RunConfig) -> str:
    """The configuration as JSON with sorted keys: equal configurations, equal text."""
    values = {name: x for name, x in asdict(config).items() if name not in OMITTED or x != OMITTED[name]}
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


def from_mapping(data: Mapping[str, Any]) -> RunConfig:
    """A configuration from what `canonical` wrote, or from TOML; unknown keys are refused.

    >>> config = RunConfig("digits", (0,), optimizer_settings={"lr": 0.1})
    >>> from_mapping(json.loads(canonical(config))) == config
    True
    """
    known = {f.name for f in fields(RunConfig)}
    strange = sorted(set(data) - known)
    if strange:
        raise InputError(
            f"A run has no {', '.join(map(repr, strange))}; its keys are {', '.join(sorted(known))}."
        )
    if "test_domains" not in data:
        raise InputError("No test domain was named; name at least one domain that is not trained on.")
    values = {**data, "test_domains": tuple(data["test_domains"])}
    return RunConfig(**values)


def oracle_rule(protocol: str, oracle: str = "") -> str:
    """Which record of a run test-domain validation looks at: ``"last"`` or ``"best"``.

    >>> oracle_rule("domainbed"), oracle_rule("genie-paper/changed"), oracle_rule("mine", "best")
    ('last', 'best', 'best')
    """
    return oracle or ("best" if protocol.partition("/")[0] == "genie-paper" else "last")
