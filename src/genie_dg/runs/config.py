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

from genie_dg.check import InputError, boolean, number, one_of, whole_number

PRECISIONS = ("float32", "bfloat16", "float16")
"""What the forward pass computes in; weights are float32 always."""

EVAL_AUGMENT = ("none", "train", "train-in")
"""Which parts of training domains are evaluated with the training augmentation."""

ORACLES = ("last", "best")
"""Which record test-domain validation may look at: the last one of a run, or the best one."""

MOST = {
    "batch_size": 2**31 - 1,
    "steps": 2**53 - 1,
    "checkpoint_every": 2**53 - 1,
    "image_size": 2**15,
    "threads": 2**15,
}
"""Sizes that a run can have at most, far beyond what is of use."""

SCHEDULES = ("cosine", "linear")
"""How the learning rate falls after the warm-up."""

CLASS_WEIGHTS = ("balanced",)
"""How classes are weighed in the loss."""

TRAINING: dict[str, Any] = {
    "schedule": "",
    "warmup": 0,
    "clip": 0.0,
    "label_smoothing": 0.0,
    "class_weights": "",
    "freeze": 0,
    "early_stop": 0,
}
"""The settings of training that ``train`` and ``sweep`` share, each with the value that leaves it off."""

LATER: dict[str, Any] = {"oracle": "", "average_of": (), "fast": False, "threads": 1, **TRAINING}
"""Fields that came after the first runs were stored, with the value that stands for what these did. A field
with that value is left out of the text of a configuration, so runs from before keep their identity."""


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
        warmup: steps in which the learning rate rises to its value.
        clip: the largest norm of the gradient of a role's parameters; 0 for any.
        label_smoothing: the part of a target that is shared evenly among the classes.
        class_weights: ``"balanced"`` weighs each class by one over its frequency in what trains; empty for not.
        freeze: how many feature points of the network, from the images on, do not train.
        early_stop: the run ends when validation accuracy has not risen for so many records; 0 for never.
    """

    dataset: str
    test_domains: tuple[int, ...]
    algorithm: str = "ERM"
    optimizer: str = "genie"
    backbone: str = "cnn"
    algorithm_settings: Mapping[str, Any] = field(default_factory=dict)
    optimizer_settings: Mapping[str, Any] = field(default_factory=dict)
    batch_size: int = 32
    dropout: float = 0.0
    pretrained: bool = False
    freeze_statistics: bool | None = None
    image_size: int = 224
    augment: bool = True
    eval_augment: str = "none"
    steps: int = 1000
    checkpoint_every: int = 100
    swad: bool = False
    precision: str = "float32"
    data_digest: str = ""
    weights_digest: str = ""
    trial_seed: int = 0
    hparams_seed: int = 0
    protocol: str = "custom"
    oracle: str = ""
    average_of: tuple[str, ...] = ()
    fast: bool = False
    threads: int = 1
    schedule: str = ""
    warmup: int = 0
    clip: float = 0.0
    label_smoothing: float = 0.0
    class_weights: str = ""
    freeze: int = 0
    early_stop: int = 0

    def __post_init__(self) -> None:
        for name, high in MOST.items():
            whole_number(name, getattr(self, name))
            whole_number(name, getattr(self, name), 1, high)
        for name in ("trial_seed", "hparams_seed"):
            whole_number(name, getattr(self, name), 0)
            whole_number(name, getattr(self, name), 0, 2**63 - 1)
        for switch in (f.name for f in fields(self) if isinstance(f.default, bool)):
            boolean(switch, getattr(self, switch))
        if self.freeze_statistics is not None:
            boolean("freeze_statistics", self.freeze_statistics)
        number("dropout", self.dropout, 0, 1, open_high=True)
        one_of("precision", self.precision, PRECISIONS)
        one_of("eval_augment", self.eval_augment, EVAL_AUGMENT)
        if self.oracle:
            one_of("oracle", self.oracle, ORACLES)
        self._check_training()
        object.__setattr__(self, "test_domains", tuple(sorted(set(self.test_domains))))
        object.__setattr__(self, "average_of", tuple(sorted(self.average_of)))

    def _check_training(self) -> None:
        if self.schedule:
            one_of("schedule", self.schedule, SCHEDULES)
        if self.class_weights:
            one_of("class_weights", self.class_weights, CLASS_WEIGHTS)
        for name in ("warmup", "freeze", "early_stop"):
            whole_number(name, getattr(self, name), 0)
        number("clip", self.clip, 0, 1e9)
        number("label_smoothing", self.label_smoothing, 0, 1, open_high=True)
        for name in ("clip", "label_smoothing"):  # 1 and 1.0 are one run
            object.__setattr__(self, name, float(getattr(self, name)))
        if self.warmup >= self.steps:
            raise InputError(
                f"got warmup={self.warmup} for {self.steps} steps; expected fewer steps of warm-up than steps."
            )

    @property
    def run_id(self) -> str:
        """Sixteen hexadecimal digits that name this science.

        >>> RunConfig("digits", (1, 0)).run_id == RunConfig("digits", (0, 1)).run_id
        True
        >>> RunConfig("digits", (0,)).run_id == RunConfig("digits", (0,), dropout=0.5).run_id
        False
        """
        return hashlib.sha256(canonical(self).encode("utf-8")).hexdigest()[:16]


def canonical(config: RunConfig) -> str:
    """The configuration as JSON with sorted keys: equal configurations, equal text."""
    values = {name: x for name, x in asdict(config).items() if name not in LATER or x != LATER[name]}
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
