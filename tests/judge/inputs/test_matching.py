"""Tests the matching of the candidate's parameters to the reference's."""

from __future__ import annotations

import pytest

from harness.judge.inputs.matching import MatchError, match_state
from harness.wire.tensors import StateTensor


def parameter(name: str, *shape: int, fill: float | None = None) -> StateTensor:
    return StateTensor(name, True, shape, "float32", fill)


def buffer(name: str, *shape: int) -> StateTensor:
    return StateTensor(name, False, shape, "float32", None)


REFERENCE = [parameter("gn.weight", 8, fill=1.0), parameter("gn.bias", 8, fill=0.0)]


def test_equal_names_match_whatever_else_there_is() -> None:
    candidate = [
        parameter("extra", 8),
        parameter("gn.bias", 8),
        parameter("gn.weight", 8),
        buffer("workspace", 3),
    ]
    assert match_state(REFERENCE, candidate, {}) == {"gn.weight": "gn.weight", "gn.bias": "gn.bias"}


def test_other_names_match_by_their_initial_fill_before_their_order() -> None:
    candidate = [parameter("beta", 8, fill=0.0), parameter("gamma", 8, fill=1.0)]
    assert match_state(REFERENCE, candidate, {}) == {"gn.weight": "gamma", "gn.bias": "beta"}


def test_other_names_match_in_order_where_the_fill_tells_nothing() -> None:
    candidate = [parameter("gamma", 8), parameter("beta", 8)]
    assert match_state(REFERENCE, candidate, {}) == {"gn.weight": "gamma", "gn.bias": "beta"}


def test_a_declared_map_comes_before_order() -> None:
    candidate = [parameter("beta", 8), parameter("gamma", 8)]
    declared = {"gamma": "gn.weight", "beta": "gn.bias"}
    assert match_state(REFERENCE, candidate, declared) == {"gn.weight": "gamma", "gn.bias": "beta"}


def test_an_unmatched_buffer_is_left_alone() -> None:
    assert match_state([buffer("running_mean", 4)], [], {}) == {}


@pytest.mark.parametrize(
    ("candidate", "declared", "words"),
    [
        ([parameter("gn.weight", 8)], {}, "gn.bias"),
        ([parameter("gn.weight", 4), parameter("gn.bias", 8)], {}, "shape [4]"),
        ([parameter("a", 8), parameter("b", 8), parameter("c", 8)], {}, "several match"),
        ([parameter("gamma", 8), parameter("beta", 8)], {"gama": "gn.weight"}, "Did you mean 'gamma'"),
        ([parameter("gamma", 8), parameter("beta", 8)], {"gamma": "gn.wait"}, "gn.weight"),
        ([buffer("a", 8), buffer("b", 8)], {}, "a of ModelNew has that shape, but is a buffer"),
        ([parameter("n" * 2000, 8, fill=1.0), parameter("beta", 8, fill=0.0)], {}, "2,000 characters"),
    ],
)
def test_what_cannot_be_matched_is_named(candidate: list[StateTensor], declared: dict[str, str], words: str) -> None:
    with pytest.raises(MatchError) as caught:
        match_state(REFERENCE, candidate, declared)
    assert words in str(caught.value)
