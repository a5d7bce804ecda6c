"""Tests budgets: what passes, what fails, and that a missing number never passes."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from harness.judge.reference.equivalence import (
    FLOORS,
    NO_ERROR,
    Errors,
    deviation,
    joined,
    judge,
    magnitude,
    relative,
    sums_fit_float32,
)
from harness.records.record import PrecisionClass

FP32 = FLOORS[PrecisionClass.FP32]


def errors_of(received: torch.Tensor, exact: torch.Tensor) -> Errors:
    return relative(deviation(received, exact), magnitude(exact))


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(7))


def test_rounding_to_fp32_passes_and_to_lower_classes_fails() -> None:
    exact = draw(8, 1000)
    assert judge(errors_of(exact.float(), exact), NO_ERROR, FP32).ok
    assert not judge(errors_of(exact.half(), exact), NO_ERROR, FP32).ok
    assert judge(errors_of(exact.half(), exact), NO_ERROR, FLOORS[PrecisionClass.TEN_BIT]).ok
    assert not judge(errors_of(exact.bfloat16(), exact), NO_ERROR, FLOORS[PrecisionClass.TEN_BIT]).ok
    assert judge(errors_of(exact.bfloat16(), exact), NO_ERROR, FLOORS[PrecisionClass.SEVEN_BIT]).ok


def test_one_wrong_element_in_a_large_tensor_fails_by_the_maximum_norm() -> None:
    exact = draw(4, 250_000)
    received = exact.clone()
    received[2, 17] += 1e-3
    errors = errors_of(received, exact)
    assert errors.l2 < FP32.l2
    assert not judge(errors, NO_ERROR, FP32).ok


def test_one_wrong_sample_fails_by_its_slice() -> None:
    exact = draw(2000, 50)
    received = exact * 1.0
    received[3] *= 1 + 2e-5
    errors = errors_of(received, exact)
    assert errors.l2 < FP32.l2
    assert errors.slice_l2 > FP32.l2
    assert not judge(errors, NO_ERROR, FP32).ok


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_never_passes(bad: float) -> None:
    exact = draw(3, 5)
    received = exact.clone()
    received[1, 1] = bad
    verdict = judge(errors_of(received, exact), Errors(1e9, 1e9, 1e9, 1e9), FP32)
    assert not verdict.ok
    assert verdict.share == math.inf


def test_non_finite_elements_of_the_reference_must_be_matched_with_their_sign() -> None:
    exact = draw(3, 5)
    exact[0, 0], exact[0, 1], exact[2, 2] = math.inf, -math.inf, math.nan
    assert judge(errors_of(exact.float(), exact), NO_ERROR, FP32).ok
    for index, value in (((0, 0), -math.inf), ((0, 1), 3e38), ((2, 2), 0.0)):
        received = exact.float()
        received[index] = value
        assert not judge(errors_of(received, exact), NO_ERROR, FP32).ok


def test_an_infinite_eager_error_gives_no_budget() -> None:
    verdict = judge(Errors(1.0, 1.0, 1.0, 1.0), Errors(math.inf, math.nan, math.inf, math.nan), FP32)
    assert not verdict.ok


def test_eager_widens_the_budget_by_its_factor() -> None:
    eager = Errors(1e-4, 1e-3, 2e-4, 2e-3)
    assert judge(Errors(7.9e-4, 15.9e-3, 15.9e-4, 31.9e-3), eager, FP32).ok
    for name in Errors._fields:
        too_much = Errors(0.0, 0.0, 0.0, 0.0)._replace(**{name: 40e-3})
        assert not judge(too_much, eager, FP32).ok


def test_a_slice_of_rounding_alone_is_judged_by_the_whole() -> None:
    exact = torch.randn(4, 50, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    exact[2] *= 1e-17  # what float64 leaves of a sum that is zero
    received = exact.clone()
    received[2] = 1e-9
    whole = relative(deviation(received, exact), magnitude(exact))
    assert whole.slice_l2 < 1e-8
    received[1] += 1e-4
    assert relative(deviation(received, exact), magnitude(exact)).slice_l2 > 1e-5


def test_a_zero_reference_accepts_zero_alone() -> None:
    exact = torch.zeros(3, 4, dtype=torch.float64)
    assert judge(errors_of(torch.zeros(3, 4), exact), NO_ERROR, FP32).ok
    assert not judge(errors_of(torch.full((3, 4), 1e-30), exact), NO_ERROR, FP32).ok


@given(st.lists(st.integers(0, 5), max_size=2), st.integers(1, 6), st.integers(1, 3))
def test_judging_in_pieces_gives_the_same_errors(others: list[int], rows: int, pieces: int) -> None:
    exact, received = draw(rows, *others), draw(rows, *others).float() + 1e-3
    parts = zip(received.tensor_split(pieces), exact.tensor_split(pieces), strict=True)
    kept = [(mine, theirs) for mine, theirs in parts if theirs.shape[0]]
    split = relative(
        joined([deviation(mine, theirs) for mine, theirs in kept]),
        joined([magnitude(theirs) for _, theirs in kept]),
    )
    assert split == pytest.approx(errors_of(received, exact))


@pytest.mark.gpu
@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e-6, 1.0, 1e25])
def test_sums_on_a_gpu_are_those_on_the_cpu(size: float) -> None:
    exact, spread = torch.randn(6, 1 << 18, dtype=torch.float64), torch.logspace(-9, 0, 6, dtype=torch.float64)
    received = (exact + size * spread[:, None] * torch.randn_like(exact)).float()
    received[2] = exact[2].float()
    ours, theirs = deviation(received, exact), deviation(received.cuda(), exact.cuda())
    assert torch.allclose(theirs.squares, ours.squares, rtol=1e-4, atol=0)
    assert torch.equal(theirs.maximum, ours.maximum)


@pytest.mark.parametrize(
    ("largest", "fits"), [(0.0, True), (1e-9, True), (1e-13, False), (1e16, False), (math.nan, False)]
)
def test_only_what_float32_holds_is_summed_in_it(largest: float, fits: bool) -> None:
    assert sums_fit_float32(torch.tensor([1.0, largest], dtype=torch.float64), 1 << 24) == fits


def test_slices_of_one_element_are_no_slices() -> None:
    exact = torch.tensor([[1.0], [1e-6]], dtype=torch.float64)
    received = exact + torch.tensor([[0.0], [1e-8]], dtype=torch.float64)  # 1 % of an element that cancellation left
    assert judge(relative(deviation(received, exact), magnitude(exact)), NO_ERROR, FLOORS[PrecisionClass.FP32]).ok
    assert judge(
        relative(deviation(received[:, 0], exact[:, 0]), magnitude(exact[:, 0])), NO_ERROR, FLOORS[PrecisionClass.FP32]
    ).ok


@pytest.mark.parametrize(
    "damage",
    [
        lambda x: x + torch.tensor([1e-4] + [0.0] * 99, dtype=x.dtype).view_as(x),  # one sample, 1e-4 of the RMS
        lambda x: x.half().to(x.dtype),
        lambda x: x * (1 + 1e-5),
        lambda x: torch.where(torch.arange(100).view_as(x) == 7, float("nan"), x),
        lambda x: x.roll(1, 0),
    ],
)
@pytest.mark.parametrize("shape", [(100,), (100, 1)])
def test_a_column_hides_no_more_than_a_vector(damage: Callable[..., torch.Tensor], shape: tuple[int, ...]) -> None:
    exact = torch.linspace(-1.7, 1.7, 100, dtype=torch.float64).reshape(shape)
    errors = relative(deviation(damage(exact), exact), magnitude(exact))
    assert not judge(errors, NO_ERROR, FLOORS[PrecisionClass.FP32]).ok
