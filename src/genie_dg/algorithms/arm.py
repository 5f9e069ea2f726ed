"""Adaptive risk minimisation with a context network: the input carries a summary of its domain."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from genie_dg._types import MAIN, DomainBatch, Network, Objective, Role, StepContext
from genie_dg.check import InputError

from .algorithm import Algorithm, AlgorithmRow

_HIDDEN = 64
"""Channels between the layers of the context network."""


def image_channels(featurizer: nn.Module) -> int:
    """The channels of the images: one less than the first convolution takes.

    >>> image_channels(nn.Sequential(nn.Conv2d(4, 8, 3), nn.Conv2d(8, 8, 3)))
    3
    """
    layers = (module for module in featurizer.modules() if isinstance(module, nn.Conv2d | nn.Linear))
    first = next(layers, None)
    if not isinstance(first, nn.Conv2d) or first.in_channels < 2:
        raise InputError(
            f"ARM got a network whose first layer is {first}; expected a Conv2d with the channels of the "
            "images and one more for the context, so choose another network or another algorithm."
        )
    return first.in_channels - 1


def context_network(channels: int) -> nn.Sequential:
    """Images ``[n, channels, h, w]`` to one channel of the same size."""
    return nn.Sequential(
        nn.Conv2d(channels, _HIDDEN, 5, padding=2), nn.BatchNorm2d(_HIDDEN), nn.ReLU(),
        nn.Conv2d(_HIDDEN, _HIDDEN, 5, padding=2), nn.BatchNorm2d(_HIDDEN), nn.ReLU(),
        nn.Conv2d(_HIDDEN, 1, 5, padding=2),
    )  # fmt: skip


class ARM(Algorithm):
    r"""Give the network each image with the mean context of its support set (ARM-CML).

    .. math::
        c_d = \frac1{n_d} \sum_{i \in d} g(x_i), \qquad
        L = \frac1N \sum_i \ell\big(f([x_i, c_{d(i)}]), y_i\big)

    g is the context network (three 5x5 convolutions, batch norm and ReLU between them) and gives one channel of
    the image's size; in training the support set of an image is its domain's batch; f is the network, whose
    input has one channel more than the images. f and g are trained together, on all domains at once.

    `predict` cuts the images it is given into support sets of the size of a training domain's batch, where that
    size divides their number, and takes them as one set where it does not; so a prediction depends on the batch
    it is made in. The benchmark evaluates batches of 64, as DomainBed does.

    Args:
        network: with one input channel more than the images have; how many they have is read from its first
            convolution.

    Differs from the public code (DomainBed): there the context network is not among the parameters that the
    optimizer steps and stays as it was drawn.
    """

    support_size: Tensor

    def __init__(self, network: Network, domains: int) -> None:
        super().__init__(network, domains)
        like = next(network.parameters())
        context = context_network(image_channels(network.featurizer))
        self.context = context.to(device=like.device, dtype=like.dtype)
        self.register_buffer("support_size", torch.zeros((), dtype=torch.int64))

    def roles(self) -> dict[str, Role]:
        """The network and the context network as ``"main"``."""
        return {MAIN: Role.of(self.network, self.context)}

    def objectives(self, batch: DomainBatch, context: StepContext) -> Iterator[Objective]:
        def loss() -> Tensor:
            return self.classification_loss(self._logits(batch.all_images, batch.sizes), batch.all_labels)

        yield Objective(MAIN, loss)
        self.support_size.fill_(batch.sizes[0])

    def predict(self, images: Tensor) -> Tensor:
        """Logits for images of one domain, which are one another's support sets."""
        size, n = int(self.support_size), len(images)
        return self._logits(images, [n] if size == 0 or n % size else [size] * (n // size))

    def _logits(self, images: Tensor, sizes: list[int]) -> Tensor:
        """For images that are support sets of ``sizes``, one after the other."""
        if images.dim() != 4:
            raise InputError(
                f"ARM got inputs of shape {tuple(images.shape)}; expected images [n, channels, height, width], "
                "to which it adds a channel, so choose another algorithm for flat inputs."
            )
        contexts = self.context(images).split(sizes)
        means = torch.cat([c.mean(0, keepdim=True).expand_as(c) for c in contexts])
        logits: Tensor = self.network(torch.cat([images, means], 1))
        return logits


ROW = AlgorithmRow(
    "ARM",
    ARM,
    paper="Zhang et al., Adaptive Risk Minimization: Learning to Adapt to Domain Shift, NeurIPS 2021",
    one_source="With one source domain ARM sees one kind of context only; it cannot learn to adapt to another.",
    extra_channels=1,
    batch_size=8,
    differs="The context network is trained, as in the paper; DomainBed leaves it as it was drawn, because its "
    "optimizer does not have it.",
)
