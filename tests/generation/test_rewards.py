"""Tests the reward: what is certain counts, no failure beats a pass, and faults of the machine are masked."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.records.record import EvaluationRecord, PrecisionClass, Status
from harness.rewards import MASKED, reward

BLANK = EvaluationRecord(
    problem="p",
    solution="s",
    case="small",
    device="cuda:0",
    status=Status.PASSED,
    message="",
    seed="",
    digest="",
    problem_digest="",
    precision_class=PrecisionClass.FP32,
    own_share=0.9,
)
FAILURES = sorted(set(Status) - MASKED - {Status.PASSED})
lowers = st.floats(allow_nan=True, allow_infinity=True)


def passed(lower: float | None = None, direction: str = "forward_backward", **more: Any) -> EvaluationRecord:
    """A pass with an own kernel and a certified speedup whose interval begins at ``lower``."""
    if lower is None:
        return dataclasses.replace(BLANK, **more)
    interval, certified = {direction: (lower, lower)}, {direction: {"calls": 1}}
    return dataclasses.replace(BLANK, **{"speedup_interval": interval, "certified": certified, **more})


def failed(status: Status, **more: Any) -> EvaluationRecord:
    return dataclasses.replace(BLANK, status=status, **more)


@given(lowers, st.sampled_from(FAILURES), st.one_of(st.none(), st.floats(0, 1)), lowers)
def test_no_failure_is_above_a_pass(lower: float, status: Status, share: float | None, claimed: float) -> None:
    success = reward([passed(lower)])
    failure = reward([dataclasses.replace(passed(claimed), status=status, own_share=share)])
    assert success is not None
    assert failure is not None
    assert failure < 0 <= success <= 1


@given(lowers, lowers)
def test_more_speed_is_never_less(one: float, other: float) -> None:
    slow, fast = reward([passed(one)]), reward([passed(other)])
    assert slow is not None
    assert fast is not None
    if math.isfinite(one) and math.isfinite(other) and one <= other:
        assert slow <= fast


@given(st.floats(1.06, 1e6))
def test_speed_that_is_certain_earns_its_share(lower: float) -> None:
    assert reward([passed(lower)]) == 1 - 1.05 / lower
    assert reward([passed(lower, "forward")]) == 1 - 1.05 / lower
    assert reward([passed(lower, certified={})]) == 0
    assert reward([passed(lower), passed(1.0)]) == 0


@given(st.lists(st.sampled_from(sorted(Status)), min_size=1, max_size=4))
def test_one_failure_is_a_failure_and_one_fault_of_the_machine_masks_a_pass(statuses: list[Status]) -> None:
    found = reward([failed(status) for status in statuses])
    if set(statuses) & set(FAILURES):
        assert found is not None
        assert found < 0
    elif set(statuses) & MASKED:
        assert found is None
    else:
        assert found == 0


def test_a_pass_without_an_own_kernel_is_no_success() -> None:
    assert reward([passed(3.0, own_share=0.0)]) == reward([passed(3.0, own_share=0.01)]) == -1
    assert reward([passed(3.0, own_share=None)]) is None
    assert reward([]) is None
    assert reward([failed(Status.BUILD_ERROR)]) == -1
    assert reward([failed(Status.WRONG_GRADIENT)]) == -0.5
