"""Tests what the faults of a checked run make of its verdict."""

from __future__ import annotations

import pytest

from harness.judge.process.faults import Faults
from harness.records.record import Status
from harness.wire.replies import Report

UNCHECKED = Report(
    "unchecked", kernel="count", line=None, message="races behind that go unnoticed", remedy="", accesses="[]"
)
EXPLORED = Report("explored", kernel="count", line=2, message="all 24 orders ran", remedy="", accesses="[]")
RACE = Report("race", kernel="count", line=3, message="nothing orders the two", remedy="", accesses="[]")


@pytest.mark.parametrize(
    ("reports", "by_outputs", "status"),
    [
        ([], Status.PASSED, Status.PASSED),
        ([UNCHECKED], Status.PASSED, Status.UNSUPPORTED),
        ([UNCHECKED], Status.WRONG_OUTPUT, Status.WRONG_OUTPUT),
        ([UNCHECKED, RACE], Status.PASSED, Status.UNSAFE),
        ([EXPLORED], Status.PASSED, Status.PASSED),
        ([EXPLORED, RACE], Status.PASSED, Status.UNSAFE),
    ],
)
def test_a_pass_that_was_not_checked_to_its_end_is_none(
    reports: list[Report], by_outputs: Status, status: Status
) -> None:
    faults = Faults(is_checked=True)
    faults.take(reports)
    told, message = faults.verdict(by_outputs, "")
    assert told is status
    assert (status is not Status.UNSUPPORTED) or "races behind that go unnoticed" in message
