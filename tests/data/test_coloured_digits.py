"""Coloured digits: DomainBed's definition, its order of random numbers and its rates."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from genie_dg.data.coloured_digits import coloured_mnist
from genie_dg.data.domains import DataError, DomainSet, TensorDomain


def pixels(domain_set: DomainSet, index: int) -> Tensor:
    domain = domain_set.domains[index]
    assert isinstance(domain, TensorDomain)
    return domain.images


def known(count: int, side: int = 1) -> tuple[Tensor, Tensor]:
    """Images whose every pixel is 1 + 10 times their digit plus their digit: the digit survives colouring."""
    digits = torch.arange(count) % 10
    images = (1 + 11 * digits).to(torch.uint8).view(-1, 1, 1).expand(-1, side, side).contiguous()
    return images, digits


def slow_twin(images: Tensor, digits: Tensor, seed: int) -> list[tuple[list[list[float]], list[int]]]:
    """The definition in plain Python, one image after another, with the numbers of torch's global generator."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        order = torch.randperm(len(images)).tolist()
        found = []
        for start, flip in enumerate((0.1, 0.2, 0.9)):
            mine = order[start::3]
            label_draws, colour_draws = torch.rand(len(mine)).tolist(), torch.rand(len(mine)).tolist()
            samples: list[list[float]] = []
            labels: list[int] = []
            for index, label_draw, colour_draw in zip(mine, label_draws, colour_draws, strict=True):
                label = int(digits[index] < 5)
                label = 1 - label if label_draw < 0.25 else label
                shade = 1 - label if colour_draw < flip else label
                grey, black = images[index].flatten().tolist(), [0] * images[index].numel()
                samples.append(black + grey if shade == 1 else grey + black)
                labels.append(label)
            found.append((samples, labels))
        return found


@pytest.mark.parametrize("seed", [0, 17])
def test_the_samples_are_those_of_the_slow_twin(seed: int) -> None:
    images = torch.randint(256, (200, 4, 4), generator=torch.Generator().manual_seed(1)).to(torch.uint8)
    digits = torch.arange(200) % 10
    made = coloured_mnist(images, digits, seed)
    for index, (samples, labels) in enumerate(slow_twin(images, digits, seed)):
        assert pixels(made, index).flatten(1).tolist() == samples
        assert made.domains[index].labels.tolist() == labels


def test_label_noise_and_colours_have_their_rates() -> None:
    """Within four standard deviations of 30,000 draws each."""
    made = coloured_mnist(*known(90_000), seed=4)
    for index, flip in enumerate((0.1, 0.2, 0.9)):
        values = pixels(made, index).flatten(1).int()
        digits = (values.amax(1) - 1) // 11
        labels = torch.from_numpy(made.domains[index].labels)
        colours = (values[:, 1] > 0).long()
        bound = 4 * math.sqrt(0.25 / len(labels))
        wrong = labels != (digits < 5).long()
        flipped = colours != labels
        assert wrong.double().mean().item() == pytest.approx(0.25, abs=bound)
        assert flipped.double().mean().item() == pytest.approx(flip, abs=bound)
        # The two are independent, and neither depends on the digit.
        assert (wrong & flipped).double().mean().item() == pytest.approx(0.25 * flip, abs=bound)
        assert wrong[digits < 5].double().mean().item() == pytest.approx(0.25, abs=1.5 * bound)


@pytest.mark.parametrize(
    ("images", "labels", "options", "message"),
    [
        (torch.zeros(4, 2, 2, dtype=torch.uint8), torch.zeros(3), {}, "4 images and 3 labels"),
        (torch.zeros(2, 2, 2, dtype=torch.uint8), torch.zeros(2), {}, "2 images for 3 domains"),
        (torch.zeros(4, 2, 2, dtype=torch.uint8), torch.zeros(4), {"flips": []}, "one or more"),
        (torch.zeros(4, 2, 2, dtype=torch.uint8), torch.zeros(4), {"flips": [1.1]}, "from 0 to 1"),
        (torch.zeros(4, 2, 2, dtype=torch.uint8), torch.zeros(4), {"flips": [0.1, 0.1]}, "name of its own"),
    ],
)
def test_bad_input_is_refused(images: Tensor, labels: Tensor, options: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        coloured_mnist(images, labels, **options)  # type: ignore[arg-type]
