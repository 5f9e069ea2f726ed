"""What algorithms, models and the training loop hand to one another: batches, objectives, roles, networks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

MAIN = "main"
"""The role whose parameters make the predictions; the optimizer under study steps it."""


@dataclass(frozen=True)
class DomainBatch:
    """One step's samples: for each training domain its images and its labels, domains in a fixed order.

    >>> labels = torch.zeros(2).long(), torch.ones(3).long()
    >>> batch = DomainBatch((torch.zeros(2, 1), torch.ones(3, 1)), labels)
    >>> len(batch), batch.all_images.shape, batch.domain_labels.tolist()
    (2, torch.Size([5, 1]), [0, 0, 1, 1, 1])
    """

    images: tuple[Tensor, ...]
    labels: tuple[Tensor, ...]

    def __len__(self) -> int:
        return len(self.images)

    @property
    def sizes(self) -> list[int]:
        """Samples in each domain."""
        return [len(labels) for labels in self.labels]

    @property
    def all_images(self) -> Tensor:
        return torch.cat(self.images)

    @property
    def all_labels(self) -> Tensor:
        return torch.cat(self.labels)

    @property
    def domain_labels(self) -> Tensor:
        """For each sample of ``all_images`` the position of its domain."""
        device = self.labels[0].device
        return torch.cat([torch.full((n,), k, device=device) for k, n in enumerate(self.sizes)])


@dataclass(frozen=True)
class StepContext:
    """What an algorithm may know of the step besides its batch.

    Args:
        step: from 0.
        seed: of the run's own randomness.
        create_graph: the optimizer differentiates the gradient (AdaHessian), so gradients that an algorithm
            computes itself must carry their graph.
    """

    step: int
    seed: int = 0
    create_graph: bool = False

    def generator(self, purpose: int = 0) -> torch.Generator:
        """Random numbers of this step, on the CPU, the same whenever the step is run again.

        >>> a, b = StepContext(3).generator(), StepContext(3).generator()
        >>> torch.equal(torch.rand(4, generator=a), torch.rand(4, generator=b))
        True
        """
        key = (self.seed * 1_000_003 + self.step) * 1_009 + purpose
        return torch.Generator().manual_seed(key % (2**63 - 1))


@dataclass(frozen=True)
class Restart:
    """A fresh start of an optimizer: its state is dropped before the step.

    Args:
        lr: the learning rate from then on, as it would be for Adam, whose default in DomainBed is 5e-5; another
            optimizer takes the same multiple of its own default. ``None``: as before.
    """

    lr: float | None = None


@dataclass(frozen=True)
class Objective:
    """A loss for the parameters of one role.

    ``loss()`` computes the scalar anew each time it is called, from the weights as they then are: optimizers
    such as SAM call it several times in a step. It draws no random numbers of its own and changes no state
    except batch-norm statistics; what it needs is drawn before it is yielded, and what a step changes is stored
    after the yield.
    """

    role: str
    loss: Callable[[], Tensor]
    restart: Restart | None = None
    """Where given, the role's optimizer starts afresh before this step."""


@dataclass(frozen=True)
class Group:
    """Parameters that share a factor on the learning rate."""

    parameters: tuple[nn.Parameter, ...]
    lr_factor: float = 1.0


@dataclass(frozen=True)
class Role:
    """The parameters that one optimizer steps.

    Args:
        groups: what it steps.
        optimizer: a name of the registry of optimizers when the algorithm fixes it (adversaries, as
            published); ``None`` for the optimizer of the run.
        settings: of that fixed optimizer.
    """

    groups: tuple[Group, ...]
    optimizer: str | None = None
    settings: Mapping[str, object] = field(default_factory=dict)

    @classmethod
    def of(
        cls, *modules: nn.Module, optimizer: str | None = None, settings: Mapping[str, object] | None = None
    ) -> Role:
        """All parameters of some modules, in their order, at one learning rate.

        >>> len(Role.of(nn.Linear(2, 3), nn.Linear(3, 1, bias=False)).parameters)
        3
        """
        parameters = tuple(p for module in modules for p in module.parameters())
        return cls((Group(parameters),), optimizer, settings or {})

    @property
    def parameters(self) -> tuple[nn.Parameter, ...]:
        return tuple(p for group in self.groups for p in group.parameters)


Edit = Callable[[Tensor], Tensor]
"""Sees an activation at a feature point and returns what takes its place (itself, when it only looks)."""


class Sharing(ABC):
    """How several processes share the samples that go through a network; see `genie_dg.bench.sharing`."""

    @abstractmethod
    def features(self, featurizer: nn.Module, images: Tensor) -> Tensor:
        """What the featurizer makes of all images, of which this process computes its rows only."""

    @abstractmethod
    def edit(self, edit: Edit, samples: int) -> Edit:
        """The edit for the rows of this process, which is shown the activations of all ``samples``."""


class Network(nn.Module, ABC):
    """A classifier in two parts. ``forward(images)`` is ``head(features(images))``.

    Attributes:
        featurizer: images to vectors of ``feature_size``.
        head: features to ``classes`` logits.
        points: names of the feature points inside the featurizer, in the order of the forward pass.
        point_channels: the channels of the activation at each point (its dimension 1).
        sharing: the other processes of the run during a step, with which `features` shares its samples.
    """

    featurizer: nn.Module
    head: nn.Module
    feature_size: int
    classes: int
    points: tuple[str, ...]
    point_channels: Mapping[str, int]
    sharing: Sharing | None = None

    @abstractmethod
    def features(self, images: Tensor, edits: Mapping[str, Edit] | None = None) -> Tensor:
        """The feature vectors, with dropout while training where the network has it.

        ``edits`` are applied to the activations at the points they name.
        """

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(images))
        return logits
