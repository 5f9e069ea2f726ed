"""What an algorithm is: a network with an objective over domains. It owns no optimizer and no loop."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from genie_dg._types import MAIN, DomainBatch, Network, Objective, Restart, Role, StepContext
from genie_dg.check import InputError, whole_number
from genie_dg.search_space import Space


def at_least_float32(x: Tensor) -> Tensor:
    """The tensor itself, or in float32 where it is of half precision, as inside autocast.

    >>> [at_least_float32(torch.ones(1).to(t)).dtype for t in (torch.bfloat16, torch.float32, torch.float64)]
    [torch.float32, torch.float32, torch.float64]
    """
    return x.float() if x.dtype.itemsize < 4 else x


class Algorithm(nn.Module, ABC):
    """The objective over domains, with whatever it learns besides the network.

    A subclass takes ``(network, domains, *, hyper-parameters...)`` and writes `objectives`. What must survive a
    restart is a parameter or a buffer, so the state dict is the whole state.

    Args:
        network: makes the predictions.
        domains: how many training domains every batch has.
    """

    def __init__(self, network: Network, domains: int) -> None:
        super().__init__()
        self.network, self.domains = network, whole_number("domains", domains)
        self.label_smoothing = 0.0
        self.register_buffer("class_weights", None, persistent=False)

    label_smoothing: float
    class_weights: Tensor | None

    def classification_loss(self, logits: Tensor, labels: Tensor, reduction: str = "mean") -> Tensor:
        """The cross entropy of class labels, with the run's label smoothing and weights of classes.

        For the classes of samples only, not for domains. As in torch, the mean is divided by the sum of the
        samples' weights. A run without either has torch's plain ``cross_entropy``.

        Args:
            logits: ``[n, classes]``.
            labels: ``[n]``.
            reduction: ``"mean"``, ``"sum"`` or ``"none"``.
        """
        weights = self.class_weights
        if weights is not None:
            weights = weights.to(torch.promote_types(weights.dtype, logits.dtype))
        return cross_entropy(logits, labels, weights, reduction=reduction, label_smoothing=self.label_smoothing)

    def losses_of_domains(self, logits: Iterable[Tensor], labels: Sequence[Tensor]) -> Tensor:
        """The mean loss of each domain, of shape ``[domains]``, from the logits and the labels of each."""
        return torch.stack([self.classification_loss(z, y) for z, y in zip(logits, labels, strict=True)])

    @abstractmethod
    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        """The losses of one step, in order. The loop steps a role before it asks for the next objective.

        Random numbers are drawn before the yield, from ``context.generator()``; buffers are written after it.
        """

    def roles(self) -> dict[str, Role]:
        """Which parameters are stepped under which name; by default the whole network as ``"main"``."""
        return {MAIN: Role.of(self.network)}

    def predict(self, images: Tensor) -> Tensor:
        """Logits for images of any domain."""
        logits: Tensor = self.network(images)
        return logits


class OneLoss(Algorithm):
    """An algorithm whose step is one `loss`, without random numbers and without a state of its own."""

    least_samples: ClassVar[int] = 1
    """How many samples of each domain a batch must have."""

    restarts: Mapping[float, Restart] = {}
    """Steps before which the optimizer starts afresh: a penalty sets in; its averages are of another loss."""

    @abstractmethod
    def loss(self, batch: DomainBatch, context: StepContext) -> Tensor:
        """The scalar that the role ``"main"`` lowers."""

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        if min(batch.sizes) < self.least_samples:
            raise InputError(
                f"{type(self).__name__} got a batch with {batch.sizes} samples per domain; expected "
                f"{self.least_samples} or more of each, so raise the batch size."
            )
        yield Objective(MAIN, partial(self.loss, batch, context), self.restarts.get(context.step))


@dataclass(frozen=True)
class AlgorithmRow:
    """One algorithm of the registry, with everything that other packages need to know about it.

    Args:
        name: as results call it.
        build: the class, or any function with its signature ``(network, domains, **settings)``.
        paper: authors, title, venue.
        space: its hyper-parameters; their names are the keywords of ``build``.
        by_set: rules and defaults that public code has for some data sets only, by the name of the set, or for
            all sets of ``"small"`` or of ``"large"`` images; they replace those of ``space`` and those of lr,
            batch_size and weight_decay, which all algorithms share.
        domainbed: the largest relative difference of a tensor from DomainBed's code after 20 steps of Adam in
            float64, at the same weights, batches and random numbers and with the named differences taken out;
            ``None`` where they cannot be, or where DomainBed does not have it.
        differs: each difference from DomainBed's code that changes results, a sentence each, with the side that
            the paper takes.
        one_source: what becomes of it with a single training domain; empty when nothing special happens.
        one_process: why several processes cannot share its step, as the end of "because ..."; empty when they
            can, which is so when samples go through networks only by `Network.features`, whose weights it
            differentiates itself only if it says so by ``inner_gradients``, and when random numbers are those
            of the context.
        inner_gradients: it computes gradients of its own, besides those of its objectives.
        extra_channels: channels that the network's input has besides the image's.
        adversarial: it trains an adversary with a learning rate ``lr_d`` of its own, and public code calls the
            learning rate and the weight decay of the network ``lr_g`` and ``weight_decay_g``.
        batch_size: samples of each domain that public code always uses with large images; ``None`` when the
            batch size is searched as for the others.
        plain_loss: why its classes can have neither label smoothing nor weights, as the end of "because ...";
            empty when it computes their loss with `Algorithm.classification_loss`.
    """

    name: str
    build: Callable[..., Algorithm]
    paper: str
    space: Space = field(default_factory=dict)
    by_set: Mapping[str, Space] = field(default_factory=dict)
    domainbed: float | None = None
    differs: str = ""
    one_source: str = ""
    one_process: str = ""
    inner_gradients: bool = False
    extra_channels: int = 0
    adversarial: bool = False
    batch_size: int | None = None
    plain_loss: str = ""
