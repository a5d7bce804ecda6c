"""Tests a case's result: what each stage adds, and the final record."""

from __future__ import annotations

from harness.judge.evaluation.case_result import CaseResult
from harness.records.record import REPORT, EvaluationRecord, Finding, PrecisionClass, Status

BLANK = EvaluationRecord(
    problem="p",
    solution="s",
    case="odd",
    device="cpu",
    status=Status.HARNESS_ERROR,
    message="",
    seed="ab",
    digest="d1",
    problem_digest="d2",
    precision_class=PrecisionClass.FP32,
)
FINDING = Finding("flags", None, None, (), "leave them", "a flag was changed", REPORT)
TRIALS = {"status": Status.PASSED, "message": "note", "trials": 5, "digests": {"y": ("a",)}}


def test_a_result_of_trials_alone() -> None:
    record = CaseResult.of(TRIALS).written(BLANK)
    assert (record.status, record.message, record.trials, record.digests) == (Status.PASSED, "note", 5, {"y": ("a",)})
    assert (record.findings, record.further_draws, record.robustness, record.replay) == ((), {}, {}, {})


def test_a_later_stage_replaces_what_it_names_and_leaves_the_rest() -> None:
    result = CaseResult.of(TRIALS)
    result.add({"status": Status.WRONG_OUTPUT, "message": "in a timed call", "trials": 6})
    assert not result.has_passed
    record = result.written(BLANK)
    assert (record.status, record.message, record.trials) == (Status.WRONG_OUTPUT, "in a timed call", 6)
    assert record.digests == {"y": ("a",)}


def test_the_verdict_stays_where_a_stage_says_nothing_of_it() -> None:
    fields = {"own_share": 0.5, "findings": (FINDING,)}
    result = CaseResult.of(TRIALS)
    result.add(fields)
    assert result.has_passed
    record = result.written(BLANK)
    assert (record.message, record.own_share, record.findings) == ("note", 0.5, (FINDING,))
    assert fields.keys() == {"own_share", "findings"}
