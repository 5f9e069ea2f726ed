"""How evenly parameters move: shares against brute force, the recorder against weights kept by hand."""

from __future__ import annotations

import doctest
import math
import resource
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from genie_dg.diagnostics import MeasurementError, updates
from genie_dg.diagnostics.updates import UpdateRecorder, effective_number, gini, top_share
from tests.diagnostics.models import CASES, loss

# -- brute-force twins ---


def brute_gini(x: list[float]) -> float:
    """Half the mean absolute difference of two entries over the mean, in exact fractions."""
    exact = [Fraction(v) for v in x]
    differences = sum(abs(a - b) for a in exact for b in exact)
    return float(differences / (2 * len(exact) * sum(exact)))


def brute_top(x: list[float], percent: int) -> float:
    count = max(1, -(-percent * len(x) // 100))
    exact = sorted((Fraction(v) for v in x), reverse=True)
    return float(sum(exact[:count]) / sum(exact))


def brute_effective(x: list[float]) -> float:
    exact = [Fraction(v) for v in x]
    return float(sum(exact) ** 2 / sum(v * v for v in exact))


amounts = st.lists(
    st.floats(0, 1e6, allow_subnormal=False, width=32) | st.just(0.0) | st.sampled_from([1e-30, 1e30]),
    min_size=1,
    max_size=40,
).filter(any)
dtypes = st.sampled_from([torch.float32, torch.float64])
fair = settings(max_examples=150, deadline=None, derandomize=True)


@fair
@given(x=amounts, dtype=dtypes, percent=st.integers(1, 100))
def test_shares_match_brute_force(x: list[float], dtype: torch.dtype, percent: int) -> None:
    tensor = torch.tensor(x, dtype=dtype)
    kept = tensor.clone()
    plain = tensor.tolist()
    assert gini(tensor) == pytest.approx(brute_gini(plain), abs=1e-13)
    assert top_share(tensor, percent / 100) == pytest.approx(brute_top(plain, percent), rel=1e-12)
    assert effective_number(tensor) == pytest.approx(brute_effective(plain), rel=1e-12)
    assert torch.equal(tensor, kept)


@fair
@given(x=amounts, exponent=st.integers(-60, 60), seed=st.integers(0, 999))
def test_unit_order_and_shape_do_not_matter(x: list[float], exponent: int, seed: int) -> None:
    tensor = torch.tensor(x, dtype=torch.float64)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    other = (tensor * 3.0**exponent)[order].reshape(1, -1, 1)
    for share in (gini, top_share, effective_number):
        assert share(other) == pytest.approx(share(tensor), rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64])
@pytest.mark.parametrize("n", [1, 2, 7, 100, 1001])
def test_the_two_extremes_are_exact(n: int, dtype: torch.dtype) -> None:
    same, one = torch.full((n,), 3, dtype=dtype), torch.zeros(n, dtype=dtype)
    one[n // 2] = 5
    assert gini(same) == 0.0
    assert gini(one) == (n - 1) / n
    assert top_share(same) == pytest.approx(math.ceil(n / 100) / n, rel=1e-15)
    assert top_share(one) == 1.0
    assert (effective_number(same), effective_number(one)) == (n, 1.0)


@pytest.mark.parametrize(
    ("n", "fraction", "count"), [(100, 0.07, 7), (300, 0.29, 87), (101, 0.01, 2), (5, 1.0, 5)]
)
def test_the_top_is_counted_without_rounding(n: int, fraction: float, count: int) -> None:
    """0.07 * 100 and 0.29 * 300 are a little off in floating point, and must not count one more."""
    x = torch.zeros(n)
    x[:count] = 1.0
    assert top_share(x, fraction) == 1.0
    assert top_share(torch.ones(n), fraction) == count / n


def test_extreme_numbers_do_not_overflow() -> None:
    for unit in (1e300, 1e-300):
        x = torch.tensor([1.0, 1.0, 2.0, 0.0], dtype=torch.float64) * unit
        assert gini(x) == pytest.approx(0.375)
        assert top_share(x) == pytest.approx(0.5)
        assert effective_number(x) == pytest.approx(16 / 6)


def test_several_chunks_equal_one(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(1000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = gini(x), top_share(x), effective_number(x)
    monkeypatch.setattr(updates, "CHUNK", 7)
    assert (gini(x), top_share(x), effective_number(x)) == pytest.approx(whole, rel=1e-13)


def test_25_million_entries_are_exact_in_bounded_memory() -> None:
    """1, 2, ..., n in disorder has known answers: float32 sums would be off in the third digit."""
    n = 25_000_000
    x = (torch.arange(n, dtype=torch.int64) * 7_368_787 % n + 1).to(torch.float64)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert gini(x) == pytest.approx((n - 1) / (3 * n), rel=1e-12)
    assert effective_number(x) == pytest.approx(3 * n * (n + 1) / (2 * (2 * n + 1)), rel=1e-12)
    assert top_share(x) == pytest.approx(0.01 * (1.99 * n + 1) / (n + 1), rel=1e-12)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    assert peak < 6 * x.numel() * 8


NOTHING_TO_SHARE: list[tuple[Any, str]] = [
    ([], "is empty"),
    ([0.0, 0.0], "between 0 and 0; .* not all zero"),
    ([1.0, -1.0], "between -1 and 1;"),
    ([1.0, math.nan], "between nan and nan;"),
    ([1.0, math.inf], "between 1 and inf;"),
]


@pytest.mark.parametrize("share", [gini, top_share, effective_number])
@pytest.mark.parametrize(("x", "sentence"), NOTHING_TO_SHARE)
def test_what_has_no_shares(share: Any, x: list[float], sentence: str) -> None:
    with pytest.raises(MeasurementError, match=sentence):
        share(torch.tensor(x))


@pytest.mark.parametrize("fraction", [0.0, -0.1, 1.1, math.nan])
def test_a_fraction_is_a_part(fraction: float) -> None:
    with pytest.raises(MeasurementError, match=r"^got fraction=.*; expected a number above 0 and at most 1\.$"):
        top_share(torch.ones(3), fraction)


# -- the recorder ---


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().double().flatten() for p in model.parameters() if p.requires_grad])


@pytest.mark.parametrize("bins", [1, 7, 50, 10_000])
@pytest.mark.parametrize("name", list(CASES))
def test_the_recorder_matches_weights_kept_by_hand(name: str, bins: int) -> None:
    """After real training steps, with more than one step between two records."""
    case = CASES[name]()
    recorder = UpdateRecorder(case.model, bins)
    optimizer = torch.optim.SGD(case.model.parameters(), lr=0.1, momentum=0.9)
    rows = []
    for step in (2, 3, 7):
        before = flat(case.model)
        for _ in range(2):
            optimizer.zero_grad()
            loss(case.model, *case.data).backward()
            optimizer.step()
        moved = (flat(case.model) - before).abs()
        numbers = recorder.record(step)
        assert numbers == pytest.approx(
            {
                "norm": moved.norm().item(),
                "mean": moved.mean().item(),
                "largest": moved.max().item(),
                "moved_share": (moved > 0).double().mean().item(),
                "gini": gini(moved),
                "top_1_percent": top_share(moved, 0.01),
                "effective_share": effective_number(moved) / len(moved),
            },
            rel=1e-12,
        )
        assert all(type(value) is float for value in numbers.values())
        rows.append(moved.tolist())
    heatmap = recorder.heatmap()
    n, groups = len(rows[0]), min(bins, len(rows[0]))
    assert heatmap.steps == (2, 3, 7)
    for row, values in zip(rows, heatmap.values, strict=True):
        assert len(values) == groups
        owner = [next(b for b in range(groups) if i < (b + 1) * n // groups) for i in range(n)]
        for b in range(groups):
            mine = [v for v, o in zip(row, owner, strict=True) if o == b]
            assert values[b] == pytest.approx(sum(mine) / len(mine), rel=1e-12)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(n=st.integers(1, 60), bins=st.integers(1, 80))
def test_groups_cover_every_id_once_and_keep_the_total(n: int, bins: int) -> None:
    weights = nn.Parameter(torch.zeros(n, dtype=torch.float64))
    recorder = UpdateRecorder([("w", weights)], bins)
    with torch.no_grad():
        weights += torch.arange(1, n + 1)
    recorder.record(0)
    heatmap = recorder.heatmap()
    sizes = [b - a for a, b in zip(heatmap.edges, heatmap.edges[1:], strict=False)]
    assert (heatmap.edges[0], heatmap.edges[-1], len(sizes)) == (0, n, min(n, bins))
    assert 1 <= min(sizes) <= max(sizes) <= min(sizes) + 1
    total = sum(size * value for size, value in zip(sizes, heatmap.values[0], strict=True))
    assert total == pytest.approx(n * (n + 1) / 2)


def test_names_and_ids_follow_the_trainable_parameters() -> None:
    """A frozen tensor has no IDs, and a tied one has them once, under its first name."""
    model = nn.ModuleDict({"a": nn.Linear(3, 2), "frozen": nn.Linear(2, 2), "b": nn.Linear(2, 2)})
    model["frozen"].requires_grad_(False)
    model["c"] = model["a"]
    expected = {"a.weight": 0, "a.bias": 6, "b.weight": 8, "b.bias": 12}
    assert UpdateRecorder(model).heatmap().boundaries == expected
    assert UpdateRecorder(model.named_parameters(remove_duplicate=False)).heatmap().boundaries == expected
    assert len(UpdateRecorder(model).heatmap().edges) == 15


def test_normalised_divides_each_row_by_its_maximum() -> None:
    weights = nn.Parameter(torch.zeros(3))
    recorder = UpdateRecorder([("w", weights)])
    for step, delta in enumerate([[1.0, 2.0, 4.0], [0.0, 0.0, 0.0], [-3.0, 0.0, 1.5]]):
        with torch.no_grad():
            weights += torch.tensor(delta)
        recorder.record(step)
    heatmap = recorder.heatmap()
    assert heatmap.values == ((1.0, 2.0, 4.0), (0.0, 0.0, 0.0), (3.0, 0.0, 1.5))
    scaled = heatmap.normalised()
    assert scaled.values == ((0.25, 0.5, 1.0), (0.0, 0.0, 0.0), (1.0, 0.0, 0.5))
    assert (scaled.steps, scaled.edges, scaled.boundaries) == ((0, 1, 2), (0, 1, 2, 3), {"w": 0})


def test_no_change_has_sizes_but_no_shares() -> None:
    weights = nn.Parameter(torch.ones(4))
    recorder = UpdateRecorder([("w", weights)], bins=2)
    assert recorder.record(1) == {"norm": 0.0, "mean": 0.0, "largest": 0.0, "moved_share": 0.0}
    with torch.no_grad():
        weights[0] = 3.0
    assert recorder.record(2)["gini"] == 0.75
    assert recorder.heatmap().values == ((0.0, 0.0), (1.0, 0.0))


def test_broken_weights_are_refused_and_nothing_is_recorded() -> None:
    good, bad = nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(2))
    recorder = UpdateRecorder([("good", good), ("bad", bad)])
    for value in (math.nan, math.inf):
        with torch.no_grad():
            good += 1
            bad[1] = value
        with pytest.raises(MeasurementError, match="The update of bad is not finite; stop the training or"):
            recorder.record(1)
        assert recorder.heatmap().steps == ()
    with torch.no_grad():
        bad.zero_()
    assert recorder.record(1)["norm"] == pytest.approx(math.sqrt(8))


def test_what_the_recorder_refuses() -> None:
    weights = nn.Parameter(torch.zeros(2))
    with pytest.raises(MeasurementError, match="no trainable parameter"):
        UpdateRecorder(nn.Linear(2, 2).requires_grad_(False))
    with pytest.raises(MeasurementError, match="got bins=0; expected a whole number"):
        UpdateRecorder([("w", weights)], bins=0)


def test_docstring_examples() -> None:
    failed, tried = doctest.testmod(updates, extraglobs={"torch": torch})
    assert (failed, tried > 5) == (0, True)


def test_groups_by_edges() -> None:
    weights = torch.zeros(4, requires_grad=True)
    recorder = UpdateRecorder([("w", weights)], bins=[0, 3, 4])
    with torch.no_grad():
        weights.add_(torch.tensor([3.0, 0.0, -3.0, 5.0]))
    recorder.record(1)
    assert recorder.heatmap().values == ((2.0, 5.0),)
    assert recorder.heatmap().edges == (0, 3, 4)
