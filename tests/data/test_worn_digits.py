"""Worn digits: every image once, each domain worn in its own way, the same every time."""

from __future__ import annotations

import numpy as np
import torch

from genie_dg.data.digits import load_digits
from genie_dg.data.worn_digits import worn_digits


def test_every_digit_belongs_to_one_domain() -> None:
    data = worn_digits()
    labels = np.concatenate([domain.labels for domain in data.domains])
    assert len(labels) == 1797
    assert np.array_equal(np.bincount(labels), np.bincount(load_digits()[1].numpy()))
    assert all(len(np.unique(domain.labels)) == 10 for domain in data.domains)


def test_the_wear_is_what_its_name_says() -> None:
    clean, noise, blur, faded, bar = (domain.images for domain in worn_digits().domains)  # type: ignore[attr-defined]
    assert all(images.min() >= 0 and images.max() <= 1 for images in (clean, noise, blur, faded, bar))
    originals = {tuple(image.flatten().tolist()) for image in load_digits()[0].float()}
    assert all(tuple(image.flatten().tolist()) in originals for image in clean)
    torch.testing.assert_close(torch.stack([faded.min(), faded.max()]), torch.tensor([0.3, 0.65]))
    assert (bar == 1).all(-1).any(-1).all()  # a full row in every image
    sharp, soft = ((images.diff(dim=-1) ** 2).mean() for images in (clean, blur))
    assert soft < sharp / 3
    paper = [(images == 0).double().mean() for images in (clean, noise)]
    assert paper[1] < 0.7 * paper[0]  # half of the paper is speckled


def test_it_is_the_same_every_time_and_another_with_another_seed() -> None:
    assert worn_digits().digest() == worn_digits().digest()
    assert worn_digits(1).digest() != worn_digits().digest()
