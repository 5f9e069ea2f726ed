"""SWAD against a twin that keeps every iterate and applies the paper's definition to the list of losses."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from genie_dg.optim.swad import SWAD


def interval(losses: Sequence[float], n_s: int, n_e: int, r: float) -> tuple[int, int | None] | None:
    """First and last evaluation (from 0) of the stretch; last None: to the end; None: no stretch.

    The loop of Algorithm 1, with r there being 1 + r here.
    """
    begin, threshold = None, 0.0
    for i in range(len(losses)):
        if begin is None:
            window = losses[max(i - n_s + 1, 0) : i + 1]
            if len(window) == n_s and losses[i - n_s + 1] == min(window):
                begin, threshold = i - n_s + 1, (1 + r) / n_s * sum(window)
        elif threshold < min(losses[max(i - n_e + 1, 0) : i + 1]):
            return begin, i - n_e
    return None if begin is None else (begin, None)


def direct(
    iterates: list[Tensor], ends: list[int], losses: Sequence[float], n_s: int, n_e: int, r: float
) -> Tensor:
    """The mean over the iterates of the stretch; ends[k] is the number of iterates before evaluation k."""
    span = interval(losses, n_s, n_e, r)
    starts = [0, *ends[:-1]]
    if span is None:
        chosen = iterates[starts[-1] : ends[-1]] if losses else iterates
    else:
        begin, last = span
        chosen = iterates[starts[begin] : (len(iterates) if last is None else ends[last])]
    return torch.stack([x.double() for x in chosen]).mean(0)


SEQUENCES = {
    "a valley": [5, 4, 3, 2, 1, 1.1, 1.2, 1.0, 1.1, 1.3, 2, 2, 2, 2, 2, 2, 2, 2],
    "no beginning": [9, 8, 7, 6, 5, 4, 3, 2, 1],
    "no end": [3, 2, 1, 1.1, 1.2, 1.1, 1.0, 0.9, 0.8, 0.7, 0.6],
    "one good evaluation among bad ones": [1, 2, 2, 9, 9, 9, 9, 9, 1, 9, 9, 9, 9, 9, 9, 9],
    "all the same": [1] * 12,
    "all zero": [0] * 12,
    "only two": [2, 1],
    "none": [],
}


@pytest.mark.parametrize("name", SEQUENCES)
@pytest.mark.parametrize(("n_s", "n_e", "r"), [(3, 6, 0.3), (3, 2, 0.1), (1, 1, 0.0), (2, 3, 0.5), (4, 1, 0.3)])
@pytest.mark.parametrize("tail", [0, 2])
def test_agrees_with_the_definition(name: str, n_s: int, n_e: int, r: float, tail: int) -> None:
    compare([float(x) for x in SEQUENCES[name]], n_s, n_e, r, tail)


def test_agrees_on_random_losses() -> None:
    kinds = set()
    for seed in range(60):
        chance = random.Random(seed)
        losses = [chance.choice([0.5, 1.0, 1.2, 1.4, 2.0]) * (0.7**k + 0.3 + 0.03 * k) for k in range(14)]
        n_s, n_e, r = chance.randint(1, 4), chance.randint(1, 5), chance.choice([0.0, 0.3, 1.0])
        span = interval(losses, n_s, n_e, r)
        kinds.add("none" if span is None else "open" if span[1] is None else "closed")
        compare(losses, n_s, n_e, r, seed % 3)
    assert kinds == {"none", "open", "closed"}


def compare(losses: list[float], n_s: int, n_e: int, r: float, tail: int) -> None:
    """Feed random weights in segments of different lengths and compare at every evaluation."""
    generator = torch.Generator().manual_seed(len(losses))
    swad = SWAD({"w": torch.zeros(3)}, n_s, n_e, r)
    iterates: list[Tensor] = []
    ends: list[int] = []

    def steps(count: int) -> None:
        for _ in range(count):
            iterates.append(torch.randn(3, generator=generator))
            swad.update({"w": iterates[-1]})

    for k, loss in enumerate(losses):
        steps(1 if k == 0 else 2 + k % 3)
        ends.append(len(iterates))
        swad.evaluated(loss)
        span = interval(losses[: k + 1], n_s, n_e, r)
        assert swad.converged == (span is not None)
        assert swad.finished == (span is not None and span[1] is not None)
        expected = direct(iterates, ends, losses[: k + 1], n_s, n_e, r)
        torch.testing.assert_close(swad.average()["w"].double(), expected, rtol=1e-5, atol=1e-5)
    steps(tail)
    if iterates:
        expected = direct(iterates, ends, losses, n_s, n_e, r)
        torch.testing.assert_close(swad.average()["w"].double(), expected, rtol=1e-5, atol=1e-5)


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(2, 3), nn.BatchNorm1d(3)
        self.short = nn.Parameter(torch.ones(2, dtype=torch.bfloat16))


def moved(module: Small, seed: int) -> Small:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for x in module.state_dict().values():
            x.copy_(torch.randn(x.shape, generator=generator) if x.is_floating_point() else torch.tensor(seed))
    return module


def test_a_module_with_statistics_counts_and_half_precision() -> None:
    module = Small()
    swad = SWAD(module, n_converge=1, n_tolerance=2)
    seen = []
    for step, loss in enumerate([1.0, 1.1, 1.2, 9.0, 9.0]):
        swad.update(moved(module, step))
        seen.append({name: x.clone() for name, x in module.state_dict().items()})
        swad.evaluated(loss)
    assert swad.finished
    average = swad.average()
    assert list(average) == list(module.state_dict())
    for name, x in module.state_dict().items():
        assert average[name].dtype == x.dtype
        kept = [weights[name] for weights in seen[:3]]
        expected = torch.stack([k.double() for k in kept]).mean(0) if x.is_floating_point() else kept[-1]
        torch.testing.assert_close(average[name], expected.to(x.dtype))
    module.load_state_dict(average)


@pytest.mark.parametrize("stop", [0, 1, 4, 9, 13, 17, 23])
def test_a_loaded_state_goes_on_bit_for_bit(stop: int, tmp_path: Path) -> None:
    """Stops in every phase: at the start, within a segment, before and after the beginning and the end."""
    losses = [3.0, 2.0, 1.0, 1.2, 1.1, 1.0, 5.0, 5.0, 5.0, 5.0]

    def run(swad: SWAD, first: int, last: int) -> None:
        module = Small()
        for step in range(first, last):
            swad.update(moved(module, step))
            if step % 2:
                swad.evaluated(losses[step // 2 % len(losses)])

    def fresh() -> SWAD:
        return SWAD(Small(), n_converge=2, n_tolerance=3)

    whole, part, resumed = fresh(), fresh(), fresh()
    run(whole, 0, 24)
    run(part, 0, stop)
    torch.save(part.state_dict(), tmp_path / "swad.pt")
    run(part, stop, 24)
    resumed.load_state_dict(torch.load(tmp_path / "swad.pt", weights_only=True))
    run(resumed, stop, 24)
    assert whole.finished
    assert resumed.finished
    for name, x in whole.average().items():
        assert torch.equal(x, resumed.average()[name])
        assert torch.equal(x, part.average()[name])


def test_bad_input() -> None:
    w = {"w": torch.zeros(2)}
    for settings in ({"n_converge": 0}, {"n_tolerance": 1.5}, {"tolerance_ratio": -0.1}, {"n_converge": True}):
        with pytest.raises(ValueError, match=rf"^got {next(iter(settings))}=.*; expected .*\.$"):
            SWAD(w, **settings)  # type: ignore[arg-type]
    swad = SWAD(w)
    with pytest.raises(ValueError, match="no weights to average"):
        swad.average()
    with pytest.raises(ValueError, match="without a step"):
        swad.evaluated(1.0)
    with pytest.raises(ValueError, match="other names or shapes"):
        swad.update({"v": torch.zeros(2)})
    with pytest.raises(ValueError, match="other names or shapes"):
        swad.update({"w": torch.zeros(3)})
    swad.update(w)
    for loss in (float("nan"), -0.1):
        with pytest.raises(ValueError, match=r"^got loss=.* at least 0"):
            swad.evaluated(loss)
    other = SWAD(w, n_tolerance=2)
    with pytest.raises(ValueError, match=r"saved with .*\[3, 6, 0.3\] and is now \[3, 2, 0.3\]"):
        other.load_state_dict(swad.state_dict())
