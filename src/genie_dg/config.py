"""What a run is: one frozen record of everything that changes the science, and its identity.

Paths, devices, worker counts and progress bars are not part of it: the same science has the same ``run_id``
wherever it runs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

PRECISIONS = ("float32", "bfloat16", "float16")
"""What the forward pass computes in; weights are float32 always."""


EVAL_AUGMENT = ("none", "train", "train-in")
"""Which parts of training domains are evaluated with the training augmentation."""


class ConfigError(ValueError):
    """A run cannot be as asked; the message says what came, what is allowed and what to do."""


@dataclass(frozen=True)
class RunConfig:
    """One training.

    Args:
        dataset: a name of the table of data sets, or the name of the user's own folder.
        test_domains: indices of the domains that are not trained on.
        algorithm, optimizer, backbone: names of their tables.
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

    def __post_init__(self) -> None:
        for name in ("batch_size", "steps", "checkpoint_every", "image_size"):
            value = getattr(self, name)
            if not isinstance(value, int) or value < 1:
                raise ConfigError(f"{name}={value!r} came; it must be a whole number of at least 1.")
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout={self.dropout} came; it must be from 0 up to, but not including, 1.")
        if self.precision not in PRECISIONS:
            raise ConfigError(
                f"precision={self.precision!r} is not one of {', '.join(PRECISIONS)}; choose one of them."
            )
        if self.eval_augment not in EVAL_AUGMENT:
            raise ConfigError(
                f"eval_augment={self.eval_augment!r} is not one of {', '.join(EVAL_AUGMENT)}; choose one."
            )
        if not self.test_domains:
            raise ConfigError("No test domain was named; name at least one domain that is not trained on.")
        object.__setattr__(self, "test_domains", tuple(sorted(set(self.test_domains))))

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
    return json.dumps(asdict(config), sort_keys=True, separators=(",", ":"), allow_nan=False)


def from_mapping(data: Mapping[str, Any]) -> RunConfig:
    """A configuration from what `canonical` wrote, or from TOML; unknown keys are refused.

    >>> config = RunConfig("digits", (0,), optimizer_settings={"lr": 0.1})
    >>> from_mapping(json.loads(canonical(config))) == config
    True
    """
    known = {f.name for f in fields(RunConfig)}
    strange = sorted(set(data) - known)
    if strange:
        raise ConfigError(
            f"A run has no {', '.join(map(repr, strange))}; its keys are {', '.join(sorted(known))}."
        )
    values = dict(data)
    values["test_domains"] = tuple(values.get("test_domains", ()))
    return RunConfig(**values)
