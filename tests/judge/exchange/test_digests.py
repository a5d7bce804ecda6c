"""Tests digests of tensors: equal for the same bits, places and form, and otherwise different."""

from __future__ import annotations

import itertools

import pytest
import torch

from harness.judge.exchange import digests
from harness.judge.exchange.digests import Digests
from harness.judge.trials.repeats import difference


def digest(*tensors: torch.Tensor | str) -> str:
    found = Digests()
    for tensor in tensors:
        found.add("it", tensor)
    return found.finished()["it"]


BASE = torch.arange(1.0, 31.0).reshape(5, 6)


def swapped(first: int, second: int) -> torch.Tensor:
    other = BASE.clone().flatten()
    other[[first, second]] = other[[second, first]]
    return other.reshape(5, 6)


def negated(*places: int) -> torch.Tensor:
    other = BASE.clone().flatten()
    other[list(places)] *= -1
    return other.reshape(5, 6)


def test_whatever_differs_has_another_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(digests, "COLUMNS", 7)
    others = [
        BASE, swapped(0, 1), swapped(3, 11), swapped(8, 16), negated(0), negated(0, 1), negated(0, 8), -BASE,
        BASE.reshape(6, 5), BASE.double(), BASE.int(), BASE[:4], BASE.to(torch.bfloat16), torch.zeros(30),
        -torch.zeros(30), torch.zeros(0), torch.full((30,), float("nan")), torch.tensor([True, False, True]),
        torch.tensor([True, False, False]), torch.arange(7, dtype=torch.uint8), torch.arange(8, dtype=torch.uint8),
    ]  # fmt: skip
    found = [*map(digest, others), digest("no gradient"), digest(BASE, BASE), digest(BASE, -BASE), digest(-BASE, BASE)]
    for (one, first), (another, second) in itertools.combinations(enumerate(found), 2):
        assert first != second, (one, another)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_change_that_is_the_same_in_many_places_does_not_vanish(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(digests, "COLUMNS", 7)
    drawn = torch.randn(1024, 64, generator=torch.Generator().manual_seed(0)).to(dtype)
    alternating = torch.tensor([1.0, -1.0]).repeat(32).to(dtype)
    zeros = torch.zeros_like(drawn)
    changed = [drawn, -drawn, 2 * drawn, 4 * drawn, drawn * alternating, drawn * -alternating, zeros, -zeros]
    assert len(set(map(digest, changed))) == len(changed)


def test_every_second_sign_of_whole_rows_is_seen() -> None:
    drawn = torch.randn(4 * digests.COLUMNS, generator=torch.Generator().manual_seed(0))  # two rows of 64-bit words
    assert digest(drawn) != digest(drawn * torch.tensor([1.0, -1.0]).repeat(len(drawn) // 2))


def test_the_same_bits_have_the_same_digest_wherever_they_lie() -> None:
    strided = torch.empty(6, 5).t().copy_(BASE)
    offset = torch.cat([torch.zeros(3), BASE.flatten()])[3:].reshape(5, 6)
    assert len({digest(one) for one in (BASE, BASE.clone(), strided, offset)}) == 1
    assert digest(BASE) == "47e8d3207a6f840a"  # records of other machines have it, too


@pytest.mark.parametrize(
    ("other", "l2", "largest"),
    [
        (BASE, 0.0, 0.0),
        (BASE * 1.5, 0.5, 0.5 * 30 / float(BASE.square().mean().sqrt())),
        (torch.where(BASE == 7, float("nan"), BASE), float("inf"), float("inf")),
        (torch.where(BASE == 7, float("inf"), BASE), float("inf"), float("inf")),
    ],
)
def test_how_far_results_lie_apart(other: torch.Tensor, l2: float, largest: float) -> None:
    assert difference(BASE, other) == pytest.approx((l2, largest))
    spoilt = torch.where(BASE == 3, float("nan"), BASE)
    assert difference(spoilt, spoilt) == (0.0, 0.0)
