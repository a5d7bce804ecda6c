"""Tests rewards of answers: an answer without code is a failure, and no fault of the machine is scored."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness import (
    Answer,
    AnswerError,
    DeadlineExceeded,
    DeviceError,
    Entry,
    HarnessError,
    ProblemError,
    Status,
    StoreError,
    UsageError,
)
from harness.compilation.errors import may_pass_next_time
from harness.judge.process.candidate_stopped import OUT_OF_MEMORY_KILLS
from harness.judge.process.disk import OTHERS_MAY_HAVE
from harness.rewards import FAILED, NO_KERNEL, reward
from tests.generation.test_rewards import FAILURES, failed, passed

ENTRY = Entry("x\n", "p")


@given(st.sampled_from([HarnessError, DeadlineExceeded, DeviceError, ProblemError, StoreError, UsageError]), st.text())
def test_no_error_but_that_of_the_answer_is_scored(error: type[HarnessError], words: str) -> None:
    assert reward(Answer(ENTRY, (), error(words))) is None
    assert reward(Answer(ENTRY, (passed(3.0),), error(words))) is None
    assert reward(Answer(ENTRY, (), AnswerError(words))) == NO_KERNEL


@given(st.sampled_from(FAILURES), st.floats(1.06, 100))
def test_an_answer_earns_what_its_records_earn(status: Status, lower: float) -> None:
    for records in ([passed(lower)], [failed(status)], [passed(lower), failed(status)]):
        assert reward(Answer(ENTRY, tuple(records))) == reward(records)


@pytest.mark.parametrize(
    ("status", "message", "own"),
    [
        (Status.CRASHED, f"killed: {OUT_OF_MEMORY_KILLS}", "signal SIGSEGV"),
        (Status.RUNTIME_ERROR, f"no space: {OTHERS_MAY_HAVE}", "ZeroDivisionError"),
    ],
)
def test_what_the_machine_may_have_caused_is_masked(status: Status, message: str, own: str) -> None:
    assert not may_pass_next_time(own)
    assert reward([replace(failed(status), message=message)]) is None
    assert reward([replace(failed(status), message=own)]) == FAILED
