"""Rotated and worn digits: a partition of the real data, turned the right way, worn as the names say."""

from __future__ import annotations

import pytest
import torch

from genie_dg.data.digits import load_digits, rotate, rotated_digits, worn_digits

pytest.importorskip("sklearn")


def test_every_image_is_in_exactly_one_domain() -> None:
    domains = rotated_digits()
    assert [domain.angle for domain in domains] == [0, 15, 30, 45, 60, 75]
    assert {len(domain.labels) for domain in domains} == {299, 300}
    together = torch.cat([domain.source for domain in domains])
    assert torch.equal(together.sort().values, torch.arange(1797))


def test_each_domain_holds_its_own_images_turned_by_its_angle() -> None:
    images, _ = load_digits()
    for domain in rotated_digits(seed=3):
        turned = rotate(images[domain.source], domain.angle).float()
        torch.testing.assert_close(domain.images, turned, rtol=0, atol=1e-6)


@pytest.mark.parametrize("quarter_turns", [1, 2, 3, 4])
@pytest.mark.parametrize("side", [7, 8])
def test_quarter_turns_match_rot90(quarter_turns: int, side: int) -> None:
    images = torch.rand(3, 2, side, side, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    expected = torch.rot90(images, quarter_turns, (-2, -1))
    torch.testing.assert_close(rotate(images, 90.0 * quarter_turns), expected, rtol=0, atol=1e-9)


def test_rotation_is_counter_clockwise_and_smooth_in_between() -> None:
    """The centre of mass of a spot to the right of the centre moves up and to the left, by the angle."""
    spot = torch.zeros(1, 1, 33, 33, dtype=torch.float64)
    spot[0, 0, 15:18, 25:28] = 1.0
    turned = rotate(spot, 30.0)[0, 0]
    across = torch.arange(33, dtype=torch.float64) - 16
    x = (turned.sum(0) * across).sum() / turned.sum()
    y = -(turned.sum(1) * across).sum() / turned.sum()  # rows count downwards
    angle = torch.rad2deg(torch.atan2(y, x)).item()
    assert angle == pytest.approx(30.0, abs=0.5)
    assert torch.hypot(x, y).item() == pytest.approx(10.0, abs=0.1)


@pytest.mark.parametrize("angles", [[], [0, 15, 0]])
def test_bad_angles_are_refused(angles: list[float]) -> None:
    with pytest.raises(ValueError, match="one or more, all different"):
        rotated_digits(angles)


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
